//! An operator's end of a control connection: asks the coordinator, and changes nothing by itself. Must not know what people see.

pub mod limits;

use std::net::SocketAddr;

use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{
    BindError, ConnectError, Purpose, Whose, bind_client, close, connect, explain, is_refusal, is_run_out,
};
use sardana_net::trust::{Credentials, PeerIdentity};
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_net::wire::{FrameError, exchange};
use sardana_protocol::messages::{Greeting, Hello};
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};
use tokio::time::timeout;

use limits::{ANSWER_BYTES, ANSWER_DEADLINE, REQUEST_BYTES};

/// Why an operator got no answer.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// This host gives no port, or the credentials cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No process is there, or another one. Fix the address; or the job is over.
    #[error("{0}; or the job is over")]
    Connect(#[from] ConnectError),
    /// It does not want this operator. Use credentials of an operator of this job.
    #[error("the coordinator at {address} refused: {reason}")]
    Refused {
        /// The coordinator's address.
        address: SocketAddr,
        /// What it said.
        reason: String,
    },
    /// Its certificate has run out. Use the join file again.
    #[error("the coordinator at {address} refused: {reason}; an operator's join file gives a new one until it expires")]
    RunOut {
        /// The coordinator's address.
        address: SocketAddr,
        /// Which times, and what to do.
        reason: String,
    },
    /// The connection broke, or something unreadable came. Ask again; if it persists, both must run the same release.
    #[error("the coordinator at {address}: {source}")]
    Broken {
        /// The coordinator's address.
        address: SocketAddr,
        /// What went wrong.
        source: FrameError,
    },
    /// It closed without an answer: the job is over, or the coordinator ended.
    #[error("the coordinator at {address} ended: the job is over")]
    Ended {
        /// The coordinator's address.
        address: SocketAddr,
    },
    /// It does not answer. See whether its process is stopped.
    #[error("the coordinator at {address} did not answer within {ANSWER_DEADLINE:?}; see whether its process is stopped")]
    Silent {
        /// The coordinator's address.
        address: SocketAddr,
    },
}

/// A connection to a job's coordinator, for an operator's requests, one after the other.
#[derive(Debug)]
pub struct Operator {
    address: SocketAddr,
    endpoint: Endpoint,
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

impl Operator {
    /// Connects to the coordinator at `address` with an operator's `credentials`.
    ///
    /// # Errors
    /// See [`OperatorError`].
    pub async fn connect(credentials: &Credentials, address: SocketAddr) -> Result<Self, OperatorError> {
        let endpoint = bind_client(credentials, Purpose::Control, address)?;
        let coordinator = PeerIdentity::coordinator(credentials.job());
        let connection = connect(&endpoint, address, coordinator, CONNECT_DEADLINE)
            .await
            .map_err(not_connected)?;
        let opened = connection.open_bi().await;
        let (send, receive) = opened.map_err(|error| broken(address, FrameError::Connection(error)))?;
        let mut operator = Self {
            address,
            endpoint,
            connection,
            send,
            receive,
        };
        let hello = Hello::Operator { job: credentials.job() };
        match operator.exchange(&hello, HELLO_FRAME_BYTES, HELLO_FRAME_BYTES).await? {
            Greeting::Welcome => Ok(operator),
            Greeting::Refused { reason } => Err(OperatorError::Refused { address, reason }),
            Greeting::Over | Greeting::Fenced | Greeting::Leads { .. } | Greeting::Joined { .. } => {
                Err(OperatorError::Ended { address })
            }
        }
    }

    /// Asks, and waits for the answer. After an error the connection is of no more use.
    ///
    /// # Errors
    /// When the connection breaks or no answer comes. A refusal is an answer.
    pub async fn ask(&mut self, request: &OperatorRequest) -> Result<OperatorAnswer, OperatorError> {
        self.exchange(request, REQUEST_BYTES, ANSWER_BYTES).await
    }

    /// Round trip to the coordinator, as measured so far.
    #[must_use]
    pub fn round_trip(&self) -> std::time::Duration {
        self.connection.rtt()
    }

    /// Says goodbye.
    pub async fn close(self) {
        close(&self.endpoint, "the operator leaves").await;
    }

    async fn exchange<Out: serde::Serialize, In: serde::de::DeserializeOwned>(
        &mut self,
        message: &Out,
        out_bytes: usize,
        in_bytes: usize,
    ) -> Result<In, OperatorError> {
        let address = self.address;
        let streams = (&mut self.send, &mut self.receive);
        let talking = exchange::<_, In>(&self.connection, streams, (message, out_bytes), in_bytes);
        match timeout(ANSWER_DEADLINE, talking).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(OperatorError::Ended { address }),
            Ok(Err(error)) => Err(broken(address, error)),
            Err(_) => Err(OperatorError::Silent { address }),
        }
    }
}

fn not_connected(error: ConnectError) -> OperatorError {
    if let ConnectError::NotValidNow {
        address,
        whose: Whose::Ours,
        reason,
    } = error
    {
        return OperatorError::RunOut { address, reason };
    }
    error.into()
}

fn broken(address: SocketAddr, source: FrameError) -> OperatorError {
    match &source {
        // It closes its endpoint when the job is over.
        FrameError::Connection(ConnectionError::ApplicationClosed(close)) if close.error_code.into_inner() == 0 => {
            OperatorError::Ended { address }
        }
        // A certificate that it refuses shows at the first answer.
        FrameError::Connection(error) if is_run_out(error) => OperatorError::RunOut {
            address,
            reason: explain(error),
        },
        FrameError::Connection(error) if is_refusal(error) => OperatorError::Refused {
            address,
            reason: explain(error),
        },
        FrameError::Connection(_)
        | FrameError::Version { .. }
        | FrameError::Header { .. }
        | FrameError::Payload(_)
        | FrameError::Truncated { .. }
        | FrameError::Stream { .. }
        | FrameError::Io(_) => OperatorError::Broken { address, source },
    }
}
