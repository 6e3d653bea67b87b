//! The bytes that follow an answer: on its stream, or, from a worker of this host, through memory that both map.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use quinn::RecvStream;
use sardana_collectives::limits::CHUNK_BYTES;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot};
use sardana_collectives::links::{LinkError, LinkReceiver, LinkSender};
use sardana_collectives::stores::Stores;
use sardana_protocol::words::{Generation, Step, WorkerId};
use tokio::sync::oneshot;

use super::fetch::FetchError;

/// Names a load that a worker waits for; of that worker's choice.
pub(super) type Ticket = u64;

/// The loads that may come through memory.
#[derive(Debug, Default)]
pub(super) struct Loads {
    last: AtomicU64,
    waiting: Mutex<BTreeMap<Ticket, (WorkerId, oneshot::Sender<LinkReceiver>)>>,
}

/// A load that may come through memory. Dropped, it is not waited for any more.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    loads: &'a Loads,
    pub(super) ticket: Ticket,
    link: oneshot::Receiver<LinkReceiver>,
}

/// What follows an answer, to be read.
#[derive(Debug)]
pub(super) enum Load {
    /// On the stream.
    OnStream(RecvStream),
    /// Through memory.
    InMemory(InMemory),
}

/// A load that comes through memory.
#[derive(Debug)]
pub(super) struct InMemory {
    /// Says that the load is still wanted; and when the connection is lost, that the donor is.
    stream: RecvStream,
    /// The donor has sent all, and has ended the stream.
    ended: bool,
    link: LinkReceiver,
    /// Parts that have come.
    parts: usize,
}

impl InMemory {
    pub(super) const fn new(stream: RecvStream, link: LinkReceiver) -> Self {
        Self {
            stream,
            ended: false,
            link,
            parts: 0,
        }
    }
}

impl Loads {
    /// Waits for a load from `donor`.
    pub(super) fn expect(&self, donor: WorkerId) -> Expected<'_> {
        let ticket = self.last.fetch_add(1, Ordering::Relaxed);
        let (sender, link) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(ticket, (donor, sender));
        drop(waiting);
        Expected {
            loads: self,
            ticket,
            link,
        }
    }

    /// `from` has made a link for the load with this ticket. Nothing becomes of one that is not waited for, or not from there.
    pub(super) fn arrive(&self, ticket: Ticket, from: WorkerId, link: LinkReceiver) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.get(&ticket).is_some_and(|(donor, _)| *donor == from)
            && let Some((_, expected)) = waiting.remove(&ticket)
        {
            // It may have been given up since.
            let _ = expected.send(link);
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().unwrap().len()
    }
}

impl Expected<'_> {
    /// The link, of which the donor has said that it is made.
    pub(super) async fn link(mut self) -> Option<LinkReceiver> {
        (&mut self.link).await.ok()
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        let mut waiting = self.loads.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&self.ticket);
    }
}

/// The frame that carries part `index` of a load.
fn header(index: usize, bytes: usize) -> FrameHeader {
    FrameHeader {
        generation: Generation::NONE,
        step: Step::ZERO,
        plan: PlanSlot::First,
        hop: 0,
        kind: FrameKind::Load,
        chunk: u32::try_from(index).unwrap_or(u32::MAX),
        payload_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
    }
}

/// Why a transfer broke off. Its frames are of no generation and no step, of which a link's own words speak.
pub(super) fn said(error: &LinkError) -> String {
    match error {
        LinkError::Ended(_) | LinkError::Reset | LinkError::Refused => "the other end gave the transfer up".to_owned(),
        LinkError::Unexpected { field, expected, found } => format!("its {field} is {found:#x}, expected {expected:#x}"),
        LinkError::NotSeen(error) => format!("the other end has it where it cannot be read: {error}"),
        LinkError::Counts => "the other end has counted frames in shared memory that cannot be".to_owned(),
        LinkError::Lost(error) => error.to_string(),
        LinkError::Trailer(_) | LinkError::Closed => error.to_string(),
    }
}

/// Sends a load through memory.
pub(super) async fn send(mut link: LinkSender, bytes: &Bytes) -> Result<(), LinkError> {
    for (index, part) in bytes.chunks(CHUNK_BYTES).enumerate() {
        let header = header(index, part.len());
        link.send(&header, |room| room.copy_from_slice(part)).await?;
    }
    link.finish();
    Ok(())
}

impl InMemory {
    /// Receives the next part, or says why it does not come.
    async fn receive(&mut self, part: &mut [u8], stores: Stores) -> Result<(), String> {
        let Self {
            stream,
            ended,
            link,
            parts,
        } = self;
        let header = header(*parts, part.len());
        let coming = link.receive(&header);
        tokio::pin!(coming);
        let mut nothing = [0];
        let came = loop {
            tokio::select! {
                biased;
                came = &mut coming => break came,
                told = stream.read(&mut nothing), if !*ended => match told {
                    Ok(None) => *ended = true,
                    Ok(Some(_)) => return Err("something follows on the stream too".to_owned()),
                    Err(error) => return Err(error.to_string()),
                },
            }
        };
        let mut came = came.map_err(|error| format!("part {parts} did not come: {}", said(&error)))?;
        stores.copy_next(part, &mut came);
        *parts += 1;
        Ok(())
    }
}

impl Load {
    /// All that follows, if it is at most `most` bytes.
    pub(super) async fn read_to_end(self, most: usize) -> Option<Vec<u8>> {
        match self {
            Self::OnStream(mut stream) => stream.read_to_end(most).await.ok(),
            // So little never comes through memory.
            Self::InMemory(..) => None,
        }
    }

    /// Receives as many bytes as `into` has; `moved` is told of them as they come. Through memory they come in chunks: unless they are the last, `into` is whole
    /// chunks long.
    pub(super) async fn receive(
        &mut self,
        donor: WorkerId,
        into: &mut [u8],
        mut moved: impl FnMut(usize),
    ) -> Result<(), FetchError> {
        let broken = |reason| FetchError::Broken { donor, reason };
        let (mut come, expected) = (0, into.len());
        match self {
            Self::OnStream(stream) => {
                while come < expected {
                    match stream.read(&mut into[come..]).await {
                        Ok(Some(more)) => {
                            come += more;
                            moved(more);
                        }
                        Ok(None) => return Err(broken(format!("expected {expected} bytes, {come} came"))),
                        Err(error) => return Err(broken(error.to_string())),
                    }
                }
            }
            Self::InMemory(load) => {
                let stores = Stores::of(expected);
                for part in into.chunks_mut(CHUNK_BYTES) {
                    load.receive(part, stores).await.map_err(broken)?;
                    moved(part.len());
                }
            }
        }
        Ok(())
    }
}
