//! What a member that is behind fetches from one that is not: the sum of a step, or a whole state.

use std::sync::Arc;

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream};
use sardana_protocol::messages::MemberAddress;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Step, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Peers;
use super::limits::{STREAM_HELLO_BYTES, STREAM_HELLO_DEADLINE};
use crate::quic::ConnectError;
use crate::wire::{FrameError, read_frame, write_frame};

/// What is asked for. Sent by the member that is behind; [`Answer`] comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// The sum of this step.
    Sum(Step),
    /// The state at this step.
    State(Step),
}

/// The donor's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    /// So many bytes follow.
    Here { bytes: u64, hash: StateHash },
    /// The donor does not have it.
    NotHere { stands_at: Step },
}

/// Why a transfer failed. The coordinator is told whom it concerns, and forms anew.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection to the donor.
    #[error("worker {donor}: {source}")]
    Connect {
        /// Whom.
        donor: WorkerId,
        /// Why.
        #[source]
        source: ConnectError,
    },
    /// The request or its answer was lost or senseless.
    #[error("worker {donor}: {source}")]
    Frame {
        /// Whom.
        donor: WorkerId,
        /// Why.
        #[source]
        source: FrameError,
    },
    /// The donor does not have it any more.
    #[error("worker {donor} was asked for something of {asked}, but stands at {stands_at}")]
    NotHere {
        /// Whom.
        donor: WorkerId,
        /// What for.
        asked: Step,
        /// Where it is.
        stands_at: Step,
    },
    /// Another number of bytes than this worker's own model has.
    #[error("worker {donor} offers {found} bytes where this model has {expected}: it trains another model")]
    Length {
        /// Whom.
        donor: WorkerId,
        /// This model's.
        expected: usize,
        /// The donor's.
        found: u64,
    },
    /// The transfer broke off.
    #[error("worker {donor}: the transfer broke off: {reason}")]
    Broken {
        /// Whom.
        donor: WorkerId,
        /// Why.
        reason: String,
    },
    /// What came is not what was sent.
    #[error("worker {donor}: what arrived has the hash {found:?}, expected {expected:?}")]
    Damaged {
        /// Whom.
        donor: WorkerId,
        /// By the donor's words.
        expected: StateHash,
        /// Of what arrived.
        found: StateHash,
    },
}

impl Peers {
    /// Fetches the sum of `step` from `donor`; it must have `expected` bytes.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn fetch_sum(
        self: &Arc<Self>,
        donor: MemberAddress,
        step: Step,
        expected: usize,
    ) -> Result<Vec<u8>, FetchError> {
        self.fetch(donor, Request::Sum(step), step, expected).await
    }

    /// Fetches the state at `step` from `donor`; it must have `expected` bytes.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn fetch_state(
        self: &Arc<Self>,
        donor: MemberAddress,
        step: Step,
        expected: usize,
    ) -> Result<Vec<u8>, FetchError> {
        self.fetch(donor, Request::State(step), step, expected).await
    }

    async fn fetch(
        self: &Arc<Self>,
        member: MemberAddress,
        request: Request,
        asked: Step,
        expected: usize,
    ) -> Result<Vec<u8>, FetchError> {
        let donor = member.worker;
        let frame = |source| FetchError::Frame { donor, source };
        let connection = self
            .dial(member)
            .await
            .map_err(|source| FetchError::Connect { donor, source })?;
        let (mut send, mut receive) = connection
            .open_bi()
            .await
            .map_err(|error| frame(FrameError::Connection(error)))?;
        write_frame(&mut send, &request, STREAM_HELLO_BYTES).await.map_err(frame)?;
        let broken = |reason: String| FetchError::Broken { donor, reason };
        let answer = read_frame::<Answer>(&mut receive, STREAM_HELLO_BYTES).await.map_err(frame)?;
        match answer.ok_or_else(|| broken("it gave no answer".to_owned()))? {
            Answer::NotHere { stands_at } => Err(FetchError::NotHere { donor, asked, stands_at }),
            Answer::Here { bytes, .. } if usize::try_from(bytes) != Ok(expected) => Err(FetchError::Length {
                donor,
                expected,
                found: bytes,
            }),
            Answer::Here { hash, .. } => {
                let mut data = vec![0; expected];
                receive
                    .read_exact(&mut data)
                    .await
                    .map_err(|error| broken(error.to_string()))?;
                let found = StateHash::of(&data);
                if found == hash {
                    Ok(data)
                } else {
                    Err(FetchError::Damaged {
                        donor,
                        expected: hash,
                        found,
                    })
                }
            }
        }
    }

    /// Serves what `peer` asks for, until its connection breaks.
    pub(super) async fn serve_fetches(self: Arc<Self>, peer: WorkerId, connection: Connection) {
        while let Ok((send, receive)) = connection.accept_bi().await {
            let peers = Arc::clone(&self);
            tokio::spawn(async move {
                if let Err(error) = peers.serve_fetch(send, receive).await {
                    tracing::warn!(%peer, %error, "a transfer to a member that is behind failed");
                }
            });
        }
    }

    async fn serve_fetch(&self, mut send: SendStream, mut receive: RecvStream) -> Result<(), FrameError> {
        let request = timeout(STREAM_HELLO_DEADLINE, read_frame::<Request>(&mut receive, STREAM_HELLO_BYTES));
        let Ok(Some(request)) = request.await.unwrap_or(Ok(None)) else {
            return Ok(());
        };
        let data = match request {
            Request::Sum(step) => self.desk.sum_of(step).map(|sum| Bytes::copy_from_slice(sum.bytes())),
            Request::State(step) => self.desk.state_at(step).await,
        };
        let answer = match &data {
            Some(data) => Answer::Here {
                bytes: data.len() as u64,
                hash: StateHash::of(data),
            },
            None => Answer::NotHere {
                stands_at: self.desk.read(sardana_protocol::member::Member::step),
            },
        };
        write_frame(&mut send, &answer, STREAM_HELLO_BYTES).await?;
        if let Some(data) = data {
            send.write_chunk(data).await?;
        }
        // Finishing fails only if the other end has given up.
        let _ = send.finish();
        let _ = send.stopped().await;
        Ok(())
    }
}
