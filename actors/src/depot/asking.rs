//! The asking end of a stream to a depot. Nothing of it is waited for without bound: a depot that hangs is an error that names it.

use std::pin::{Pin, pin};

use bytes::Bytes;
use quinn::{Connection, ConnectionError, ReadExactError, RecvStream, SendStream, WriteError};
use sardana_net::quic::{explain, is_refusal};
use sardana_net::wire::{FrameError, read_frame, write_frame};
use sardana_protocol::checkpoint::{DepotId, PieceHash};
use sardana_protocol::limits::PIECE_BYTES;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::error::DepotError;
use super::limits::{BATCH_BYTES, LIST_BYTES, MOST_WAITS_HEARD, PROGRESS_EVERY, REQUEST_DEADLINE, ROUND_PIECES};
use super::patience::Patience;
use super::talk::{Answer, Offer};
use super::window::PANES;

/// Answers that may not have been heard when a depot refuses: which pieces it wants, that it has seen each pane, and the refusal.
const UNHEARD: usize = PANES + 2;

/// A stream to a depot.
pub(super) struct Asking {
    pub(super) depot: DepotId,
    send: SendStream,
    ear: Ear,
    patience: Patience,
}

/// A piece that was asked for.
pub(super) struct Given {
    pub(super) index: usize,
    pub(super) piece: PieceHash,
    /// Its bytes, or why there are none.
    pub(super) bytes: Result<Vec<u8>, String>,
}

impl Asking {
    pub(super) async fn open(depot: DepotId, connection: &Connection, patience: Patience) -> Result<Self, DepotError> {
        // It has a bound of streams, which streams that hang may hold.
        let opened = patience.with(depot, connection.open_bi()).await?;
        let (send, receive) = opened.map_err(|error| lost(depot, &error))?;
        Ok(Self {
            depot,
            send,
            ear: Ear::new(receive),
            patience,
        })
    }

    pub(super) async fn say<T: Serialize + ?Sized + Sync>(&mut self, what: &T, limit: usize) -> Result<(), DepotError> {
        let saying = write_frame(&mut self.send, &what, limit);
        match self.patience.with(self.depot, saying).await? {
            Ok(()) => Ok(()),
            Err(error) => Err(self.last_word(broken(self.depot, error)).await),
        }
    }

    /// The next answer but `Wait`.
    pub(super) async fn answer<P: Fn()>(&mut self, progress: &mut NowAndThen<P>) -> Result<Answer, DepotError> {
        for _ in 0..=MOST_WAITS_HEARD {
            let frame = self.patience.with(self.depot, self.ear.frame()).await?;
            if let Some(answer) = heard(self.depot, frame, progress)? {
                return Ok(answer);
            }
        }
        Err(waited(self.depot, self.patience))
    }

    pub(super) fn senseless(&self, expected: &'static str, found: &Answer) -> DepotError {
        senseless(self.depot, expected, found)
    }

    /// Why the depot takes no more: what it has said, if it stopped the stream; else `error`. Before that it may have answered what it took.
    async fn last_word(&mut self, error: DepotError) -> DepotError {
        let DepotError::Broken { .. } = &error else {
            return error;
        };
        let last = async {
            let mut nobody = NowAndThen::new(|| {});
            for _ in 0..UNHEARD {
                self.answer(&mut nobody).await?;
            }
            Ok(())
        };
        match timeout(REQUEST_DEADLINE, last).await {
            Ok(Err(last @ (DepotError::Refused { .. } | DepotError::Window { .. }))) => last,
            Ok(Err(_) | Ok(())) | Err(_) => error,
        }
    }

    /// Offers some pieces: the bytes of those that are wanted, and whether the depot looks for them in the window.
    pub(super) async fn offer<P: Fn()>(
        &mut self,
        round: &[(PieceHash, Bytes)],
        progress: &mut NowAndThen<P>,
    ) -> Result<(Vec<Bytes>, bool), DepotError> {
        let offer = |(piece, bytes): &(PieceHash, Bytes)| Offer {
            piece: *piece,
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        let offers: Vec<Offer> = round.iter().map(offer).collect();
        self.say(&offers, LIST_BYTES).await?;
        let answer = self.answer(progress).await?;
        let Answer::Wanted { offers, looks } = answer else {
            return Err(self.senseless("which pieces are wanted", &answer));
        };
        let wanted = offers.iter().map(|&index| {
            let bytes = round.get(index as usize).map(|(_, bytes)| bytes.clone());
            bytes.ok_or_else(|| DepotError::Senseless {
                depot: self.depot,
                expected: "pieces that were offered",
                found: format!("piece {index} of {}", round.len()),
            })
        });
        Ok((wanted.collect::<Result<_, _>>()?, looks))
    }

    /// Sends what is wanted.
    pub(super) async fn send_all<P: Fn()>(
        &mut self,
        wanted: Vec<Bytes>,
        progress: &mut NowAndThen<P>,
    ) -> Result<(), DepotError> {
        for bytes in wanted {
            if let Err(error) = self.send(bytes, progress).await {
                return Err(self.last_word(error).await);
            }
            progress.now();
        }
        Ok(())
    }

    /// Sends a piece, and hears meanwhile that the depot still waits for its disk, or gives up.
    async fn send<P: Fn()>(&mut self, piece: Bytes, progress: &mut NowAndThen<P>) -> Result<(), DepotError> {
        let depot = self.depot;
        let mut sending = pin!(self.send.write_chunk(piece));
        for _ in 0..=MOST_WAITS_HEARD {
            let moved = async {
                tokio::select! {
                    biased;
                    sent = &mut sending => Ok(sent),
                    frame = self.ear.frame() => Err(frame),
                }
            };
            match self.patience.with(depot, moved).await? {
                Ok(sent) => return sent.map_err(|error| unsent(depot, error)),
                Err(frame) => {
                    if let Some(answer) = heard(depot, frame, progress)? {
                        return Err(senseless(depot, "to be told to wait", &answer));
                    }
                }
            }
        }
        Err(waited(depot, self.patience))
    }

    /// The next few pieces; none once all have come.
    pub(super) async fn batch(
        &mut self,
        left: &mut impl Iterator<Item = (PieceHash, usize)>,
    ) -> Result<Vec<Given>, DepotError> {
        let mut batch = Vec::new();
        let mut filled = 0;
        while filled + PIECE_BYTES <= BATCH_BYTES
            && let Some((piece, index)) = left.next()
        {
            let bytes = self.given("a piece", PIECE_BYTES).await?;
            // Also what is not there fills a little, so that a batch ends.
            filled += bytes.as_ref().map_or(0, Vec::len).max(BATCH_BYTES / ROUND_PIECES);
            batch.push(Given { index, piece, bytes });
        }
        Ok(batch)
    }

    /// What is given, of at most so many bytes, or why it is not.
    pub(super) async fn given(&mut self, what: &'static str, most: usize) -> Result<Result<Vec<u8>, String>, DepotError> {
        match self.answer(&mut NowAndThen::new(|| {})).await? {
            Answer::Bytes { bytes } => Ok(Ok(self.bytes(bytes, most).await?)),
            Answer::NotHere => Ok(Err("it does not have it".to_owned())),
            Answer::Damaged { reason } => Ok(Err(reason)),
            other @ (Answer::Wait
            | Answer::Wanted { .. }
            | Answer::Durable
            | Answer::Refused { .. }
            | Answer::Places { .. }
            | Answer::Seen
            | Answer::Unseen) => Err(self.senseless(what, &other)),
        }
    }

    /// So many bytes, if they are no more than may be.
    async fn bytes(&mut self, announced: u64, most: usize) -> Result<Vec<u8>, DepotError> {
        let depot = self.depot;
        let length = usize::try_from(announced).ok().filter(|&length| length <= most);
        let length = length.ok_or_else(|| DepotError::Senseless {
            depot,
            expected: "no more bytes than a piece or a manifest may have",
            found: announced.to_string(),
        })?;
        let receive = self.ear.stream.as_mut().ok_or_else(|| broken(depot, cut_short()))?;
        let mut bytes = Vec::new();
        while bytes.len() < length {
            // Memory only for what comes.
            let start = bytes.len();
            bytes.resize(length.min(start + PIECE_BYTES), 0);
            let read = self.patience.with(depot, receive.read_exact(&mut bytes[start..])).await?;
            read.map_err(|error| match error {
                ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => lost(depot, &error),
                error @ (ReadExactError::FinishedEarly(_) | ReadExactError::ReadError(_)) => DepotError::Broken {
                    depot,
                    reason: error.to_string(),
                },
            })?;
        }
        Ok(bytes)
    }
}

/// What a depot says. A frame that has begun to come is not lost when something else comes first.
struct Ear {
    /// None while a frame comes.
    stream: Option<RecvStream>,
    frame: Option<Frame>,
}

/// A frame that comes, and gives the stream back.
type Frame = Pin<Box<dyn Future<Output = (RecvStream, Heard)> + Send>>;

/// A frame; none if the depot has ended the stream.
type Heard = Result<Option<Answer>, FrameError>;

impl Ear {
    fn new(stream: RecvStream) -> Self {
        Self {
            stream: Some(stream),
            frame: None,
        }
    }

    /// The next frame. A caller that gives this up asks again, and loses nothing.
    async fn frame(&mut self) -> Heard {
        if let Some(mut stream) = self.stream.take() {
            self.frame = Some(Box::pin(async move {
                let frame = read_frame::<Answer>(&mut stream, LIST_BYTES).await;
                (stream, frame)
            }));
        }
        // There is one of both at any time.
        let frame = self.frame.as_mut().ok_or_else(cut_short)?;
        let (stream, heard) = frame.await;
        (self.stream, self.frame) = (Some(stream), None);
        heard
    }
}

fn cut_short() -> FrameError {
    FrameError::Io(std::io::ErrorKind::UnexpectedEof.into())
}

/// The answer that came; none if it was `Wait`.
fn heard<P: Fn()>(depot: DepotId, frame: Heard, progress: &mut NowAndThen<P>) -> Result<Option<Answer>, DepotError> {
    let ended = || DepotError::Broken {
        depot,
        reason: "it ended the stream".to_owned(),
    };
    match frame.map_err(|error| broken(depot, error))?.ok_or_else(ended)? {
        Answer::Wait => {
            progress.now();
            Ok(None)
        }
        Answer::Refused { reason } => Err(DepotError::Refused { depot, reason }),
        Answer::Unseen => Err(DepotError::Window {
            depot,
            source: std::io::ErrorKind::NotFound.into(),
        }),
        answer @ (Answer::Wanted { .. }
        | Answer::Durable
        | Answer::Bytes { .. }
        | Answer::NotHere
        | Answer::Damaged { .. }
        | Answer::Places { .. }
        | Answer::Seen) => Ok(Some(answer)),
    }
}

fn waited(depot: DepotId, patience: Patience) -> DepotError {
    DepotError::Hangs {
        depot,
        after: patience.wait_every * MOST_WAITS_HEARD,
    }
}

fn senseless(depot: DepotId, expected: &'static str, found: &Answer) -> DepotError {
    DepotError::Senseless {
        depot,
        expected,
        found: format!("{found:?}"),
    }
}

fn unsent(depot: DepotId, error: WriteError) -> DepotError {
    match error {
        WriteError::ConnectionLost(error) => lost(depot, &error),
        WriteError::Stopped(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected => DepotError::Broken {
            depot,
            reason: error.to_string(),
        },
    }
}

fn lost(depot: DepotId, error: &ConnectionError) -> DepotError {
    let reason = explain(error);
    if is_refusal(error) {
        DepotError::Refused { depot, reason }
    } else {
        DepotError::Broken { depot, reason }
    }
}

fn broken(depot: DepotId, error: FrameError) -> DepotError {
    match error {
        FrameError::Connection(error) => lost(depot, &error),
        FrameError::Version { .. } | FrameError::Header { .. } | FrameError::Payload(_) => DepotError::Senseless {
            depot,
            expected: "an answer",
            found: error.to_string(),
        },
        FrameError::Truncated { .. } | FrameError::Stream { .. } | FrameError::Io(_) => DepotError::Broken {
            depot,
            reason: error.to_string(),
        },
    }
}

/// Makes a call, but not all the time.
pub(super) struct NowAndThen<P> {
    call: P,
    last: Instant,
}

impl<P: Fn()> NowAndThen<P> {
    pub(super) fn new(call: P) -> Self {
        let last = Instant::now();
        Self { call, last }
    }

    pub(super) fn now(&mut self) {
        if self.last.elapsed() >= PROGRESS_EVERY {
            self.last = Instant::now();
            (self.call)();
        }
    }
}
