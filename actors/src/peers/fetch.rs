//! What one worker fetches from another: a share of a snapshot, the sum of a step, or a whole state.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sardana_net::quic::ConnectError;
use sardana_net::wire::{FrameError, read_frame, write_frame};
use sardana_protocol::limits::LINK_DEADLINE;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::member::Followed;
use sardana_protocol::messages::{MemberAddress, Trailer};
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Step, WorkerId};
use sardana_storage::manifest::MANIFEST_BYTES;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Peers;
use super::incoming::IncomingShare;
use super::limits::STREAM_HELLO_BYTES;
use super::load::{InMemory, Load, Ticket};
use crate::fault::{self, Point};

/// What is asked for. [`Answer`] comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// A share of the snapshot at this step. All of it may also be the state itself, if the donor stands there.
    Share { step: Step, share: Share },
    /// This sum.
    Sum { sum: WantedSum, when: When },
    /// The share of a checkpoint at this step that the receiver reads for this generation.
    Lent {
        generation: Generation,
        step: Step,
        share: Share,
    },
    /// The manifest of that checkpoint.
    LentManifest { generation: Generation, step: Step },
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share { step, share } => write!(f, "{share} of the snapshot at {step}"),
            Self::Sum { sum, .. } => sum.fmt(f),
            Self::Lent { generation, step, share } => write!(f, "{share} of the checkpoint at {step}, for {generation}"),
            Self::LentManifest { generation, step } => {
                write!(f, "the manifest of the checkpoint at {step}, for {generation}")
            }
        }
    }
}

/// A request as it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asking {
    pub(super) request: Request,
    /// What follows the answer may come through memory, if both are on one host.
    pub(super) ticket: Option<Ticket>,
}

/// An answer as it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) answer: Answer,
    /// What follows comes through memory, and the link for it is made.
    pub(super) in_memory: bool,
}

/// How long an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum When {
    /// It is there or it is not.
    Now,
    /// It may be yet to come.
    Soon,
}

/// The donor's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// So many bytes of a share follow.
    Share { bytes: u64, hash: StateHash },
    /// So many bytes of a sum follow, which is this generation's. The donor had applied `keeper_at` updates.
    Sum {
        bytes: u64,
        hash: StateHash,
        generation: Generation,
        trailer: Trailer,
        keeper_at: Step,
    },
    /// The donor does not have it.
    NotHere { stands_at: Step },
    /// So many bytes of a manifest follow.
    Manifest { bytes: u64 },
    /// The donor was not told to serve the worker that asks.
    NotNamed,
}

/// A sum as a keeper gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedSum {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What is said of it.
    pub told: Followed,
}

/// Why a transfer failed. A joiner asks another holder; for a member that is behind, the coordinator is told which worker
/// it concerns, and forms anew.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection to the donor.
    #[error("worker {donor}: {source}")]
    Connect {
        /// The donor.
        donor: WorkerId,
        /// Why.
        #[source]
        source: ConnectError,
    },
    /// The request or its answer was lost or senseless.
    #[error("worker {donor}: {source}")]
    Frame {
        /// The donor.
        donor: WorkerId,
        /// Why.
        #[source]
        source: FrameError,
    },
    /// The donor does not have it any more; or, of a sum, has one that is added to another state.
    #[error("worker {donor} was asked for something of {asked}, and does not have it: it stands at {stands_at}")]
    NotHere {
        /// The donor.
        donor: WorkerId,
        /// The step of what was asked for.
        asked: Step,
        /// The donor's step.
        stands_at: Step,
    },
    /// The donor was not told to serve this worker: the coordinator has not named it, or no longer.
    #[error("worker {donor} refused: this worker is not named to it")]
    NotNamed {
        /// The donor.
        donor: WorkerId,
    },
    /// Another number of bytes than this worker's own model has.
    #[error("worker {donor} offers {found} bytes where this model has {expected}: it trains another model")]
    Length {
        /// The donor.
        donor: WorkerId,
        /// This model's.
        expected: usize,
        /// The donor's.
        found: u64,
    },
    /// The transfer broke off.
    #[error("worker {donor}: the transfer broke off: {reason}")]
    Broken {
        /// The donor.
        donor: WorkerId,
        /// Why.
        reason: String,
    },
    /// What came is not what was sent.
    #[error("worker {donor}: what arrived has the hash {found:?}, expected {expected:?}")]
    Damaged {
        /// The donor.
        donor: WorkerId,
        /// By the donor's words.
        expected: StateHash,
        /// Of what arrived.
        found: StateHash,
    },
}

impl Peers {
    /// Fetches a sum from `donor`, which must have it; `expected` bytes.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn fetch_sum(
        self: &Arc<Self>,
        donor: MemberAddress,
        wanted: WantedSum,
        expected: usize,
    ) -> Result<Vec<u8>, FetchError> {
        let sum = self.receive_sum(donor, wanted, When::Now, expected).await?;
        Ok(sum.bytes)
    }

    /// Gets a sum from a keeper, which may have to wait for it; `expected` bytes.
    pub(super) async fn follow_sum(
        self: &Arc<Self>,
        keeper: MemberAddress,
        wanted: WantedSum,
        expected: usize,
    ) -> Result<FollowedSum, FetchError> {
        self.receive_sum(keeper, wanted, When::Soon, expected).await
    }

    async fn receive_sum(
        self: &Arc<Self>,
        member: MemberAddress,
        wanted: WantedSum,
        when: When,
        expected: usize,
    ) -> Result<FollowedSum, FetchError> {
        let donor = member.worker;
        let request = Request::Sum { sum: wanted, when };
        let (answer, mut load) = self.ask(member, request).await?;
        let Answer::Sum {
            bytes,
            hash,
            generation,
            trailer,
            keeper_at,
        } = answer
        else {
            return Err(no_load(donor, request, answer));
        };
        check_length(donor, expected, bytes)?;
        // Large memory comes as zeros from the system: nothing writes them.
        let mut data = vec![0; expected];
        self.receive(donor, &mut load, &mut data).await?;
        let hashed = self.environment.blocking(move || (StateHash::of(&data), data)).await;
        let (found, bytes) = hashed.ok_or_else(|| ending(donor))?;
        check_hash(donor, hash, found)?;
        let told = Followed {
            step: wanted.step,
            generation,
            trailer,
            keeper_at,
        };
        Ok(FollowedSum { bytes, told })
    }

    /// Fetches the whole state at `step` from `donor`.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn fetch_state(self: &Arc<Self>, donor: MemberAddress, step: Step) -> Result<Bytes, FetchError> {
        let mut state = IncomingShare::new(self, Share::WHOLE, self.state_room());
        self.fetch_share(donor, step, None, &mut state).await?;
        Ok(self.state_in(state.into_bytes()))
    }

    /// Receives as many bytes as `into` has.
    pub(super) async fn receive(&self, donor: WorkerId, load: &mut Load, into: &mut [u8]) -> Result<(), FetchError> {
        load.receive(donor, into, |bytes| self.keeper.moved(bytes)).await
    }

    /// Receives a share of the snapshot at `step`, and compares its hash with the one that is expected, or else with the one that the donor says it has.
    pub(super) async fn fetch_share(
        self: &Arc<Self>,
        member: MemberAddress,
        step: Step,
        expected: Option<StateHash>,
        incoming: &mut IncomingShare,
    ) -> Result<(), FetchError> {
        let (donor, share) = (member.worker, incoming.share());
        let request = Request::Share { step, share };
        let (told, mut load) = self.open_share(member, request, incoming.length()).await?;
        let found = incoming.receive(donor, &mut load).await?;
        check_hash(donor, expected.unwrap_or(told), found)
    }

    /// Asks for a share of `expected` bytes, which follow. With the hash that the donor says it has.
    pub(super) async fn open_share(
        self: &Arc<Self>,
        member: MemberAddress,
        request: Request,
        expected: usize,
    ) -> Result<(StateHash, Load), FetchError> {
        let donor = member.worker;
        let (answer, load) = self.ask(member, request).await?;
        let Answer::Share { bytes, hash } = answer else {
            return Err(no_load(donor, request, answer));
        };
        check_length(donor, expected, bytes)?;
        Ok((hash, load))
    }

    /// The bytes of a manifest.
    pub(super) async fn fetch_manifest(
        self: &Arc<Self>,
        member: MemberAddress,
        request: Request,
    ) -> Result<Vec<u8>, FetchError> {
        let donor = member.worker;
        let (answer, load) = self.ask(member, request).await?;
        let Answer::Manifest { bytes } = answer else {
            return Err(no_load(donor, request, answer));
        };
        let length = usize::try_from(bytes).ok().filter(|&length| length <= MANIFEST_BYTES);
        let length = length.ok_or_else(|| FetchError::Broken {
            donor,
            reason: format!("it offers a manifest of {bytes} bytes, and one has at most {MANIFEST_BYTES}"),
        })?;
        // Memory only for what comes.
        let whole = load.read_to_end(length).await;
        let whole = whole.filter(|whole| whole.len() == length);
        whole.ok_or_else(|| FetchError::Broken {
            donor,
            reason: format!("not all {length} bytes of a manifest came"),
        })
    }

    /// Asks, and waits for the answer, and for what it speaks of. Dropped, the donor is told to stop.
    async fn ask(self: &Arc<Self>, member: MemberAddress, request: Request) -> Result<(Answer, Load), FetchError> {
        let donor = member.worker;
        let expected = self.near.then(|| self.loads.expect(donor));
        let ticket = expected.as_ref().map(|expected| expected.ticket);
        let frame = |source| FetchError::Frame { donor, source };
        let connection = self
            .dial(member)
            .await
            .map_err(|source| FetchError::Connect { donor, source })?;
        let (mut send, mut receive) = connection
            .open_bi()
            .await
            .map_err(|error| frame(FrameError::Connection(error)))?;
        match write_frame(&mut send, &Asking { request, ticket }, STREAM_HELLO_BYTES).await {
            // A donor that stops the stream has answered, which reading tells.
            Ok(()) | Err(FrameError::Stream { .. }) => {}
            Err(error) => return Err(frame(error)),
        }
        // It fails only for such a stream.
        let _ = send.finish();
        match request {
            Request::Share { step, .. } => fault::reached(Point::Copying, step),
            Request::Sum { sum, when: When::Soon } => fault::reached(Point::Following, sum.step),
            Request::Sum { when: When::Now, .. } | Request::Lent { .. } | Request::LentManifest { .. } => {}
        }
        let answered = read_frame::<Answered>(&mut receive, STREAM_HELLO_BYTES)
            .await
            .map_err(frame)?;
        let broken = |reason: &str| FetchError::Broken {
            donor,
            reason: reason.to_owned(),
        };
        let Answered { answer, in_memory } = answered.ok_or_else(|| broken("it gave no answer"))?;
        if !in_memory {
            return Ok((answer, Load::OnStream(receive)));
        }
        let expected = expected.ok_or_else(|| broken("it answers through memory, which it was not offered"))?;
        let link = timeout(LINK_DEADLINE, expected.link()).await.ok().flatten();
        let link = link.ok_or_else(|| broken("it answers through memory, and made no link for that"))?;
        Ok((answer, Load::InMemory(InMemory::new(receive, link))))
    }
}

fn no_load(donor: WorkerId, request: Request, answer: Answer) -> FetchError {
    let asked = match request {
        Request::Share { step, .. } | Request::Lent { step, .. } | Request::LentManifest { step, .. } => step,
        Request::Sum { sum, .. } => sum.step,
    };
    match answer {
        Answer::NotHere { stands_at } => FetchError::NotHere { donor, asked, stands_at },
        Answer::NotNamed => FetchError::NotNamed { donor },
        Answer::Share { .. } | Answer::Sum { .. } | Answer::Manifest { .. } => FetchError::Broken {
            donor,
            reason: "it answered something else than it was asked".to_owned(),
        },
    }
}

fn check_length(donor: WorkerId, expected: usize, found: u64) -> Result<(), FetchError> {
    if usize::try_from(found) == Ok(expected) {
        Ok(())
    } else {
        Err(FetchError::Length { donor, expected, found })
    }
}

fn check_hash(donor: WorkerId, expected: StateHash, found: StateHash) -> Result<(), FetchError> {
    if expected == found {
        Ok(())
    } else {
        Err(FetchError::Damaged { donor, expected, found })
    }
}

pub(super) fn ending(donor: WorkerId) -> FetchError {
    FetchError::Broken {
        donor,
        reason: "this worker is ending".to_owned(),
    }
}
