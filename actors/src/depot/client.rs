//! What workers, and other depots, ask of depots.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use quinn::{Connection, ConnectionError, Endpoint, ReadExactError, RecvStream, SendStream, WriteError};
use sardana_protocol::checkpoint::{DepotAddress, DepotId, Manifest, ManifestKey, PieceHash};
use sardana_protocol::limits::PIECE_BYTES;
use sardana_protocol::snapshot::SnapshotId;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::error::DepotError;
use super::limits::{BATCH_BYTES, LIST_BYTES, PROGRESS_EVERY, REQUEST_BYTES, REQUEST_DEADLINE, ROUND_PIECES};
use super::talk::{Answer, Offer, Request};
use crate::ground::Ground;
use crate::manifest::{self, MANIFEST_BYTES};
use crate::quic::limits::CONNECT_DEADLINE;
use crate::quic::{connect, explain, is_refusal};
use crate::trust::{PeerIdentity, Role, Wallet};
use crate::wire::{FrameError, read_frame, write_frame};

/// The depots as somebody sees them who puts pieces there or reads them. Keeps a connection to each that was asked.
#[derive(Debug)]
pub struct Depots {
    pub(super) ground: Ground,
    endpoint: Endpoint,
    credentials: Wallet,
    slots: Mutex<BTreeMap<DepotId, Arc<Slot>>>,
}

/// The connection to one depot, and to which address it was made.
type Slot = tokio::sync::Mutex<Option<(DepotAddress, Connection)>>;

impl Depots {
    /// Those that can be reached from `endpoint`, which shows `credentials`.
    #[must_use]
    pub fn new(ground: Ground, endpoint: Endpoint, credentials: Wallet) -> Arc<Self> {
        Arc::new(Self {
            ground,
            endpoint,
            credentials,
            slots: Mutex::default(),
        })
    }

    /// All of `pieces` are durable at `depot` when this returns. Calls `progress` now and then while that goes on.
    ///
    /// # Errors
    /// See [`DepotError`]. What was written is there when it is tried again.
    pub async fn put(
        &self,
        depot: DepotAddress,
        snapshot: SnapshotId,
        pieces: &[(PieceHash, Bytes)],
        progress: impl Fn() + Send + Sync,
    ) -> Result<(), DepotError> {
        let mut talk = self.open(depot).await?;
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let request = Request::Put { snapshot, pieces: count };
        talk.say(&request, REQUEST_BYTES).await?;
        let mut now_and_then = NowAndThen::new(progress);
        for round in pieces.chunks(ROUND_PIECES) {
            let sent = talk.offer(round, &mut now_and_then).await;
            if let Err(error) = sent {
                return Err(talk.last_word().await.unwrap_or(error));
            }
        }
        let answer = talk.answer(&mut now_and_then).await?;
        if answer == Answer::Durable {
            Ok(())
        } else {
            Err(talk.senseless("that all is durable", &answer))
        }
    }

    /// Calls `each` with the index and the bytes of every one of `pieces` that the depot has, compared with its hash. The indices of those
    /// that it did not give, and why.
    ///
    /// # Errors
    /// See [`DepotError`]: those that `each` was not called for were not given.
    pub async fn get(
        &self,
        depot: DepotAddress,
        pieces: &[PieceHash],
        mut each: impl FnMut(usize, &[u8]) + Send,
    ) -> Result<Vec<(usize, String)>, DepotError> {
        let mut lacking = Vec::new();
        for (round, start) in pieces.chunks(ROUND_PIECES).zip((0..).step_by(ROUND_PIECES)) {
            let mut talk = self.open(depot).await?;
            let count = u32::try_from(round.len()).unwrap_or(u32::MAX);
            talk.say(&Request::Get { pieces: count }, REQUEST_BYTES).await?;
            talk.say(round, LIST_BYTES).await?;
            let mut left = round.iter().copied().zip(start..);
            let mut batch = talk.batch(&mut left).await?;
            while !batch.is_empty() {
                // While one batch is compared the next one comes.
                let (compared, next) = tokio::join!(self.ground.beside(|| compare(batch)), talk.batch(&mut left));
                let depot = depot.depot;
                for Given { index, bytes, .. } in compared.ok_or(DepotError::Ending { depot })? {
                    match bytes {
                        Ok(bytes) => each(index, &bytes),
                        Err(reason) => lacking.push((index, reason)),
                    }
                }
                batch = next?;
            }
        }
        Ok(lacking)
    }

    /// The manifest `key`.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub async fn manifest(&self, depot: DepotAddress, key: ManifestKey) -> Result<Manifest, DepotError> {
        let mut talk = self.open(depot).await?;
        talk.say(&Request::Manifest { key }, REQUEST_BYTES).await?;
        let depot = depot.depot;
        let not_here = |reason| DepotError::NotHere { depot, key, reason };
        let answer = talk.answer(&mut NowAndThen::new(|| {})).await?;
        let bytes = match answer {
            Answer::Bytes { bytes } => talk.bytes(bytes, MANIFEST_BYTES).await?,
            Answer::NotHere => return Err(not_here("it does not have it".to_owned())),
            Answer::Damaged { reason } => return Err(not_here(reason)),
            other @ (Answer::Wait | Answer::Wanted { .. } | Answer::Durable | Answer::Refused { .. }) => {
                return Err(talk.senseless("a manifest", &other));
            }
        };
        let decoded = self.ground.beside(move || manifest::decode_as(&bytes, key)).await;
        let decoded = decoded.ok_or(DepotError::Ending { depot })?;
        decoded.map_err(|source| DepotError::Manifest { depot, source })
    }

    async fn open(&self, depot: DepotAddress) -> Result<Talk, DepotError> {
        let connection = self.connection(depot).await?;
        let depot = depot.depot;
        let opened = connection.open_bi().await;
        let (send, receive) = opened.map_err(|error| lost(depot, &error))?;
        Ok(Talk { depot, send, receive })
    }

    /// The connection there is, or a new one.
    async fn connection(&self, wanted: DepotAddress) -> Result<Connection, DepotError> {
        let DepotAddress {
            depot,
            certified,
            address,
        } = wanted;
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(depot).or_default())
        };
        let mut slot = slot.lock().await;
        if let Some((at, live)) = &*slot
            && *at == wanted
            && live.close_reason().is_none()
        {
            return Ok(live.clone());
        }
        let expected = PeerIdentity {
            job: self.credentials.job(),
            role: Role::Checkpoint,
            id: certified,
        };
        let connected = connect(&self.endpoint, address, expected, CONNECT_DEADLINE).await;
        let connection = connected.map_err(|source| DepotError::Connect { depot, source })?;
        *slot = Some((wanted, connection.clone()));
        Ok(connection)
    }
}

/// A piece that was asked for.
struct Given {
    index: usize,
    piece: PieceHash,
    /// Its bytes, or why there are none.
    bytes: Result<Vec<u8>, String>,
}

fn compare(mut batch: Vec<Given>) -> Vec<Given> {
    for given in &mut batch {
        let found = given.bytes.as_ref().ok().map(|bytes| PieceHash::of(bytes));
        if let Some(found) = found.filter(|found| *found != given.piece) {
            given.bytes = Err(format!("expected the bytes of piece {}, found those of {found}", given.piece));
        }
    }
    batch
}

/// A stream to a depot.
struct Talk {
    depot: DepotId,
    send: SendStream,
    receive: RecvStream,
}

impl Talk {
    async fn say<T: Serialize + ?Sized + Sync>(&mut self, what: &T, limit: usize) -> Result<(), DepotError> {
        let said = write_frame(&mut self.send, &what, limit).await;
        said.map_err(|error| broken(self.depot, error))
    }

    /// The next answer but `Wait`.
    async fn answer<P: Fn()>(&mut self, progress: &mut NowAndThen<P>) -> Result<Answer, DepotError> {
        let depot = self.depot;
        loop {
            let frame = read_frame::<Answer>(&mut self.receive, LIST_BYTES).await;
            let ended = || DepotError::Broken {
                depot,
                reason: "it ended the stream".to_owned(),
            };
            match frame.map_err(|error| broken(depot, error))?.ok_or_else(ended)? {
                Answer::Wait => progress.now(),
                Answer::Refused { reason } => return Err(DepotError::Refused { depot, reason }),
                answer @ (Answer::Wanted { .. }
                | Answer::Durable
                | Answer::Bytes { .. }
                | Answer::NotHere
                | Answer::Damaged { .. }) => return Ok(answer),
            }
        }
    }

    fn senseless(&self, expected: &'static str, found: &Answer) -> DepotError {
        DepotError::Senseless {
            depot: self.depot,
            expected,
            found: format!("{found:?}"),
        }
    }

    /// What the depot said before it stopped reading, if it said why.
    async fn last_word(&mut self) -> Option<DepotError> {
        let said = timeout(REQUEST_DEADLINE, self.answer(&mut NowAndThen::new(|| {}))).await;
        match said {
            Ok(Err(refused @ DepotError::Refused { .. })) => Some(refused),
            Ok(Err(_) | Ok(_)) | Err(_) => None,
        }
    }

    /// Offers some pieces, and sends what is wanted of them.
    async fn offer<P: Fn()>(
        &mut self,
        round: &[(PieceHash, Bytes)],
        progress: &mut NowAndThen<P>,
    ) -> Result<(), DepotError> {
        let offer = |(piece, bytes): &(PieceHash, Bytes)| Offer {
            piece: *piece,
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        let offers: Vec<Offer> = round.iter().map(offer).collect();
        self.say(&offers, LIST_BYTES).await?;
        let answer = self.answer(progress).await?;
        let Answer::Wanted { offers } = answer else {
            return Err(self.senseless("which pieces are wanted", &answer));
        };
        for index in offers {
            let Some((_, bytes)) = round.get(index as usize) else {
                let found = format!("piece {index} of {}", round.len());
                let (depot, expected) = (self.depot, "pieces that were offered");
                return Err(DepotError::Senseless { depot, expected, found });
            };
            let sent = self.send.write_chunk(bytes.clone()).await;
            sent.map_err(|error| match error {
                WriteError::ConnectionLost(error) => lost(self.depot, &error),
                WriteError::Stopped(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected => DepotError::Broken {
                    depot: self.depot,
                    reason: error.to_string(),
                },
            })?;
            progress.now();
        }
        Ok(())
    }

    /// The next few pieces; none once all have come.
    async fn batch(&mut self, left: &mut impl Iterator<Item = (PieceHash, usize)>) -> Result<Vec<Given>, DepotError> {
        let mut batch = Vec::new();
        let mut filled = 0;
        while filled + PIECE_BYTES <= BATCH_BYTES
            && let Some((piece, index)) = left.next()
        {
            let bytes = match self.answer(&mut NowAndThen::new(|| {})).await? {
                Answer::Bytes { bytes } => Ok(self.bytes(bytes, PIECE_BYTES).await?),
                Answer::NotHere => Err("it does not have it".to_owned()),
                Answer::Damaged { reason } => Err(reason),
                other @ (Answer::Wait | Answer::Wanted { .. } | Answer::Durable | Answer::Refused { .. }) => {
                    return Err(self.senseless("a piece", &other));
                }
            };
            // Also what is not there fills a little, so that a batch ends.
            filled += bytes.as_ref().map_or(0, Vec::len).max(BATCH_BYTES / ROUND_PIECES);
            batch.push(Given { index, piece, bytes });
        }
        Ok(batch)
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
        let mut bytes = Vec::new();
        while bytes.len() < length {
            // Memory only for what comes.
            let start = bytes.len();
            bytes.resize(length.min(start + PIECE_BYTES), 0);
            let read = self.receive.read_exact(&mut bytes[start..]).await;
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
        FrameError::Version { .. }
        | FrameError::Header { .. }
        | FrameError::TooLong { .. }
        | FrameError::Malformed { .. }
        | FrameError::Trailing { .. }
        | FrameError::Unencodable { .. } => DepotError::Senseless {
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

/// Calls somebody back, but not all the time.
struct NowAndThen<P> {
    call: P,
    last: Instant,
}

impl<P: Fn()> NowAndThen<P> {
    fn new(call: P) -> Self {
        let last = Instant::now();
        Self { call, last }
    }

    fn now(&mut self) {
        if self.last.elapsed() >= PROGRESS_EVERY {
            self.last = Instant::now();
            (self.call)();
        }
    }
}
