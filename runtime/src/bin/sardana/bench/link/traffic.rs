//! Messages over one pair of links: there and back, one way, and both ways at once. Must not know how the links were made.

use std::io;
use std::time::{Duration, Instant};

use sardana_collectives::limits::CHUNK_BYTES;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot};
use sardana_collectives::links::{LinkError, LinkReceiver, LinkSender};
use sardana_collectives::runs::Runs;
use sardana_protocol::plan::HopId;
use sardana_protocol::words::{Generation, Step};
use serde::{Deserialize, Serialize};

use crate::bench::times::{processor, quantile};

/// What is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Traffic {
    /// Bytes of a message.
    pub(super) bytes: u64,
    /// Round trips.
    pub(super) trips: u64,
    /// Messages one after the other, in each of the other two parts.
    pub(super) messages: u64,
}

/// What one end has seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Seconds there and back: the median, the 99th percentile, the least. No numbers at the end that answers.
    pub(super) trip: [f64; 3],
    /// Seconds of all messages one way.
    pub(super) one_way: f64,
    /// Seconds of as many each way, both at once.
    pub(super) both_ways: f64,
    /// Seconds that this end had of a processor for those one way.
    pub(super) processor: f64,
}

/// Which end of the pair of links this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// It begins, and takes the times.
    Asks,
    /// It answers.
    Answers,
}

/// The link on which this end sends.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) link: LinkSender,
    pub(super) frames: Frames,
}

/// The link on which this end receives.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) link: LinkReceiver,
    pub(super) frames: Frames,
}

/// The frames of one link: each message counts as a step of its own.
#[derive(Debug)]
pub(super) struct Frames {
    generation: Generation,
    hop: HopId,
    messages: u64,
}

impl Frames {
    pub(super) const fn new(generation: Generation, hop: HopId) -> Self {
        Self {
            generation,
            hop,
            messages: 0,
        }
    }

    fn next_message(&mut self) -> impl Fn(usize, usize) -> FrameHeader + use<> {
        let (generation, hop, step) = (self.generation, self.hop, Step::new(self.messages));
        self.messages += 1;
        move |chunk, bytes| FrameHeader {
            generation,
            step,
            plan: PlanSlot::Steady,
            hop,
            kind: FrameKind::Running,
            // Sizes are bounded far below.
            chunk: chunk as u32,
            payload_bytes: bytes as u32,
        }
    }
}

impl Outgoing {
    async fn send(&mut self, message: &[u8]) -> Result<(), LinkError> {
        let header = self.frames.next_message();
        for (chunk, part) in message.chunks(CHUNK_BYTES).enumerate() {
            let fill = |payload: &mut [u8]| payload.copy_from_slice(part);
            self.link.send(&header(chunk, part.len()), fill).await?;
        }
        Ok(())
    }
}

impl Incoming {
    async fn receive(&mut self, into: &mut [u8]) -> Result<(), LinkError> {
        let header = self.frames.next_message();
        for (chunk, part) in into.chunks_mut(CHUNK_BYTES).enumerate() {
            self.link.receive(&header(chunk, part.len())).await?.copy_to(part);
        }
        Ok(())
    }
}

/// A message that only says that the end that sends it is so far.
const WORD: [u8; 4] = [7; 4];

/// One end of the pair of links.
#[derive(Debug)]
pub(super) struct End {
    pub(super) side: Side,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
}

impl End {
    /// Does this end's part of all three.
    ///
    /// # Errors
    /// When a link breaks.
    pub(super) async fn carry(&mut self, traffic: Traffic) -> io::Result<Seen> {
        let bytes = usize::try_from(traffic.bytes).map_err(io::Error::other)?;
        let (message, mut into) = (vec![1_u8; bytes], vec![0_u8; bytes]);
        let trips = self.trips(traffic.trips, &message, &mut into);
        let trip = trips.await.map_err(io::Error::other)?;
        if self.side == Side::Asks && into != message {
            return Err(io::Error::other("other bytes came back than were sent"));
        }
        let before = processor();
        let one_way = self.one_way(traffic.messages, &message, &mut into);
        let one_way = one_way.await.map_err(io::Error::other)?;
        let processor = processor().saturating_sub(before);
        let both_ways = self.both_ways(traffic.messages, &message, &mut into);
        let both_ways = both_ways.await.map_err(io::Error::other)?;
        Ok(Seen {
            trip,
            one_way: one_way.as_secs_f64(),
            both_ways: both_ways.as_secs_f64(),
            processor: processor.as_secs_f64(),
        })
    }

    async fn trips(&mut self, trips: u64, message: &[u8], into: &mut [u8]) -> Result<[f64; 3], LinkError> {
        let mut times = Vec::new();
        for trip in 0..WARM_UP + trips {
            match self.side {
                Side::Asks => {
                    let began = Instant::now();
                    self.outgoing.send(message).await?;
                    self.incoming.receive(into).await?;
                    if trip >= WARM_UP {
                        times.push(began.elapsed().as_secs_f64());
                    }
                }
                Side::Answers => {
                    self.incoming.receive(into).await?;
                    self.outgoing.send(into).await?;
                }
            }
        }
        Ok([0.5, 0.99, 0.0].map(|share| quantile(&mut times, share)))
    }

    async fn one_way(&mut self, messages: u64, message: &[u8], into: &mut [u8]) -> Result<Duration, LinkError> {
        let began = Instant::now();
        match self.side {
            Side::Asks => {
                for _ in 0..messages {
                    self.outgoing.send(message).await?;
                }
                self.incoming.receive(&mut WORD.clone()).await?;
            }
            Side::Answers => {
                for _ in 0..messages {
                    self.incoming.receive(into).await?;
                }
                self.outgoing.send(&WORD).await?;
            }
        }
        Ok(began.elapsed())
    }

    async fn both_ways(&mut self, messages: u64, message: &[u8], into: &mut [u8]) -> Result<Duration, LinkError> {
        let Self {
            side,
            outgoing,
            incoming,
        } = self;
        if *side == Side::Answers {
            incoming.receive(&mut WORD.clone()).await?;
        }
        let began = Instant::now();
        let send = async {
            if *side == Side::Asks {
                outgoing.send(&WORD).await?;
            }
            for _ in 0..messages {
                outgoing.send(message).await?;
            }
            Ok::<(), LinkError>(())
        };
        let receive = async {
            for _ in 0..messages {
                incoming.receive(into).await?;
            }
            Ok::<(), LinkError>(())
        };
        tokio::try_join!(send, receive)?;
        // What this end has sent may still be on its way.
        match side {
            Side::Asks => incoming.receive(&mut WORD.clone()).await?,
            Side::Answers => outgoing.send(&WORD).await?,
        }
        Ok(began.elapsed())
    }
}

/// Round trips before those that are measured.
const WARM_UP: u64 = 3;

#[cfg(test)]
mod tests {
    use sardana_collectives::links::in_process;
    use sardana_protocol::words::Incarnation;

    use super::*;

    #[tokio::test]
    async fn both_ends_carry_the_same_messages_and_only_the_one_that_asks_takes_times() {
        let frames = |hop| Frames::new(Generation::new(Incarnation::new(1), 1), hop);
        let ((out, arrives), (back, comes_back)) = (in_process(), in_process());
        let end = |side, [there, here]: [HopId; 2], (sender, receiver)| End {
            side,
            outgoing: Outgoing {
                link: sender,
                frames: frames(there),
            },
            incoming: Incoming {
                link: receiver,
                frames: frames(here),
            },
        };
        let mut asks = end(Side::Asks, [0, 1], (out, comes_back));
        let mut answers = end(Side::Answers, [1, 0], (back, arrives));
        for bytes in [4, 3 * CHUNK_BYTES as u64 + 4] {
            let traffic = Traffic {
                bytes,
                trips: 5,
                messages: 7,
            };
            let (asked, answered) = tokio::try_join!(asks.carry(traffic), answers.carry(traffic)).unwrap();
            let [median, slow, least] = asked.trip;
            assert!(0.0 < least && least <= median && median <= slow, "{asked:?}");
            assert!(asked.one_way > 0.0 && asked.both_ways > 0.0, "{asked:?}");
            assert!(answered.trip.iter().all(|time| time.is_nan()), "{answered:?}");
        }
        // Trips with those before them; one way and each way, and the word to begin; each way, and two words that all is there.
        let sent = (2 * (WARM_UP + 5 + 7 + 7 + 1), 2 * (WARM_UP + 5 + 7 + 2));
        assert_eq!((asks.outgoing.frames.messages, answers.outgoing.frames.messages), sent);
    }
}
