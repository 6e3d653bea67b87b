//! An end that refuses its client in the middle of the first message, each time in the same order: it stops the stream, and
//! only then says its word. For tests of processes that are refused.

use std::net::{Ipv4Addr, SocketAddr};

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_protocol::words::JobId;
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::quic::{Purpose, REFUSED, bind_narrow};
use crate::trust::{Authority, Credentials, Role};
use crate::wire::limits::CONTROL_FRAME_BYTES;
use crate::wire::write_frame;

/// The job of all of them.
pub const JOB: JobId = JobId::new([5; 16]);

/// Why a client is refused that learns it from the connection's end.
pub const WHY: &str = "there is no room for any process";

/// The shortest first message is longer.
const WINDOW: u32 = 16;

/// How an end refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It stops the stream, and answers.
    Answers,
    /// It neither reads nor stops, and answers.
    OnlyAnswers,
    /// It gives up both directions of the stream without a word, and then closes the connection with the reason.
    Closes,
}

/// An end that refuses its clients.
#[derive(Debug)]
pub struct Refuser {
    /// Its job's authority: it makes the certificates of the clients that are refused.
    pub authority: Authority,
    endpoint: Endpoint,
}

impl Refuser {
    /// Listens on loopback, as the process `id` of `role`.
    ///
    /// # Panics
    /// When the system gives no port or no keys.
    #[must_use]
    pub fn new(role: Role, id: u64, purpose: Purpose) -> Self {
        let authority = Authority::new(JOB).expect("the system gives keys");
        let own = authority.issue(role, id).expect("the system gives keys");
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let endpoint = bind_narrow(own, purpose, (address, WINDOW)).expect("the system gives a port");
        Self { authority, endpoint }
    }

    /// An end in the coordinator's place.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    pub fn coordinator() -> Self {
        Self::new(Role::Coordinator, 0, Purpose::Control)
    }

    /// Where it listens.
    ///
    /// # Panics
    /// When the system does not tell.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().expect("the system tells")
    }

    /// The credentials of a client that is to be refused.
    ///
    /// # Panics
    /// When the system gives no keys.
    #[must_use]
    pub fn credentials(&self, role: Role) -> Credentials {
        self.authority.issue(role, 1).expect("the system gives keys")
    }

    /// Takes in the next client, and the stream that it opens.
    ///
    /// # Panics
    /// When it does not come that far.
    pub async fn taken(&self) -> (Connection, SendStream, RecvStream) {
        taken(&self.endpoint).await
    }

    /// Refuses the next client, of whose stream no more than 16 bytes have come.
    ///
    /// # Panics
    /// The task does, where the other end does not come that far or does not take the answer.
    pub fn refuse<T: Serialize + Send + Sync + 'static>(&self, manner: Manner, answer: T) -> JoinHandle<()> {
        let endpoint = self.endpoint.clone();
        tokio::spawn(async move {
            let (connection, mut send, mut receive) = taken(&endpoint).await;
            match manner {
                Manner::Answers => {
                    receive.stop(1_u32.into()).expect("it was not stopped");
                    said(&mut send, &answer).await;
                    delivered(send).await;
                }
                Manner::OnlyAnswers => {
                    said(&mut send, &answer).await;
                    delivered(send).await;
                }
                Manner::Closes => {
                    receive.stop(1_u32.into()).expect("it was not stopped");
                    // An end that has all of this direction has seen that the other direction was stopped.
                    delivered(send).await;
                    connection.close(REFUSED, WHY.as_bytes());
                }
            }
            connection.closed().await;
        })
    }
}

async fn taken(endpoint: &Endpoint) -> (Connection, SendStream, RecvStream) {
    let incoming = endpoint.accept().await.expect("it listens");
    let connection = incoming.accept().expect("it comes").await.expect("it is of this job");
    let (send, receive) = connection.accept_bi().await.expect("it opens a stream");
    (connection, send, receive)
}

async fn said<T: Serialize>(send: &mut SendStream, answer: &T) {
    let written = write_frame(send, answer, CONTROL_FRAME_BYTES).await;
    written.expect("the other end takes the answer");
}

/// Ends the stream, and waits until the other end has all of it.
///
/// # Panics
/// When it is not there any more.
pub async fn delivered(mut send: SendStream) {
    send.finish().expect("it is not finished yet");
    send.stopped().await.expect("the other end is there");
}
