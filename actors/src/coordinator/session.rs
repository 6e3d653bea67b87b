//! One control connection at the coordinator: hello, greeting, then messages until it breaks.

use std::sync::Arc;

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use ractor::ActorRef;
use sardana_protocol::messages::{AgentMessage, AgentOrder, CoordinatorMessage, Greeting, Hello, WorkerMessage};
use sardana_protocol::status::OperatorRequest;
use sardana_protocol::words::WorkerId;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::actor::Message;
use crate::control::{Next, carry};
use crate::operator::limits::{ANSWER_BYTES, ANSWER_EVERY, MAX_OPERATORS, REQUEST_BYTES};
use crate::quic::limits::{HANDSHAKE_DEADLINE, MAX_HANDSHAKES};
use crate::quic::{REFUSED, accept, next_incoming};
use crate::trust::{Credentials, PeerIdentity, Role};
use crate::wire::limits::HELLO_FRAME_BYTES;
use crate::wire::{FrameError, read_frame, write_frame};

/// What the coordinator keeps of a session.
#[derive(Debug)]
pub(super) struct Outlet<Out> {
    pub(super) queue: mpsc::UnboundedSender<Out>,
    pub(super) connection: Connection,
}

/// Tells a session from the one before, which may say its goodbye late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionId(usize);

impl<Out> Outlet<Out> {
    pub(super) fn session(&self) -> SessionId {
        SessionId(self.connection.stable_id())
    }
}

/// Takes in connections until the endpoint is closed.
pub(super) async fn accept_all(endpoint: Endpoint, credentials: Credentials, coordinator: ActorRef<Message>) {
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let operators = Arc::new(Semaphore::new(MAX_OPERATORS));
    while let Ok(room) = Arc::clone(&handshakes).acquire_owned().await {
        let Some(incoming) = next_incoming(&endpoint).await else {
            return;
        };
        let (credentials, coordinator) = (credentials.clone(), coordinator.clone());
        let operators = Arc::clone(&operators);
        tokio::spawn(async move {
            let accepted = accept(incoming, &credentials, HANDSHAKE_DEADLINE).await;
            drop(room);
            match accepted {
                Ok((connection, peer)) => greet(connection, peer, coordinator, &operators).await,
                Err(error) => tracing::warn!(target: "sardana::event::refused", %error, "a connection was refused"),
            }
        });
    }
}

/// A peer that has shown its certificate says who it is; it has little time and few bytes for that (SEC-2).
async fn greet(connection: Connection, peer: PeerIdentity, coordinator: ActorRef<Message>, operators: &Semaphore) {
    let hello = async {
        let (send, mut receive) = connection.accept_bi().await.ok()?;
        match read_frame::<Hello>(&mut receive, HELLO_FRAME_BYTES).await {
            Ok(hello) => Some((send, receive, hello?)),
            Err(error) => {
                tracing::warn!(target: "sardana::event::refused", %peer, %error, "a hello could not be read");
                connection.close(REFUSED, error.to_string().as_bytes());
                None
            }
        }
    };
    let Ok(Some((send, receive, hello))) = timeout(HANDSHAKE_DEADLINE, hello).await else {
        // Closed already if it said something else. A slow peer may try again.
        return connection.close(0_u32.into(), b"expected a hello");
    };
    let streams = Streams {
        connection,
        send,
        receive,
    };
    match (peer.role, hello) {
        (Role::Worker, Hello::Worker(hello)) if hello.worker.get() == peer.id => {
            let (queue, outgoing) = mpsc::unbounded_channel();
            let (reply, greeting) = oneshot::channel();
            let outlet = Outlet {
                queue,
                connection: streams.connection.clone(),
            };
            let goodbye = Goodbye {
                worker: hello.worker,
                session: outlet.session(),
                coordinator: coordinator.clone(),
                why: "its connection broke before it was welcomed".to_owned(),
            };
            let asked = coordinator.cast(Message::Hello { hello, outlet, reply });
            let session = streams.answer(asked.is_ok(), greeting).await;
            if let Some(session) = session {
                session.serve_worker(goodbye, outgoing).await;
            }
        }
        (Role::Agent, Hello::Agent(hello)) if hello.job == peer.job => {
            let (queue, outgoing) = mpsc::unbounded_channel();
            let (reply, greeting) = oneshot::channel();
            let outlet = Outlet {
                queue,
                connection: streams.connection.clone(),
            };
            let (agent, session_id) = (peer.id, outlet.session());
            let asked = coordinator.cast(Message::AgentHello {
                agent,
                hello,
                outlet,
                reply,
            });
            let session = streams.answer(asked.is_ok(), greeting).await;
            if let Some(session) = session {
                session.serve_agent(agent, &coordinator, outgoing).await;
            }
            // The coordinator is gone only when the job is over.
            let _ = coordinator.cast(Message::AgentLost {
                agent,
                session: session_id,
            });
        }
        (Role::Operator, Hello::Operator { job }) if job == peer.job => {
            let Ok(_place) = operators.try_acquire() else {
                let reason = format!("{MAX_OPERATORS} operators are connected already: end one of them");
                return streams.refuse(Greeting::Refused { reason }).await;
            };
            streams.serve_operator(peer, &coordinator).await;
        }
        (Role::Worker | Role::Agent | Role::Operator | Role::Coordinator, Hello::Worker(_) | Hello::Agent(_) | Hello::Operator { .. }) => {
            let reason =
                format!("the hello is not one of {peer}: start the process with credentials of its own role and job");
            tracing::warn!(target: "sardana::event::refused", %peer, "a hello under a false name");
            let refused = async { Greeting::Refused { reason } };
            streams.refuse(refused.await).await;
        }
    }
}

struct Streams {
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

impl Streams {
    /// Sends the greeting. None if it is a refusal.
    async fn answer(mut self, asked: bool, greeting: oneshot::Receiver<Greeting>) -> Option<Self> {
        // A coordinator that does not answer is ending.
        let greeting = if asked {
            greeting.await.unwrap_or(Greeting::Over)
        } else {
            Greeting::Over
        };
        match greeting {
            Greeting::Welcome => write_frame(&mut self.send, &Greeting::Welcome, HELLO_FRAME_BYTES)
                .await
                .ok()
                .map(|()| self),
            refusal @ (Greeting::Refused { .. } | Greeting::Over) => {
                self.refuse(refusal).await;
                None
            }
        }
    }

    async fn refuse(mut self, refusal: Greeting) {
        if write_frame(&mut self.send, &refusal, HELLO_FRAME_BYTES).await.is_ok() {
            let _ = self.send.finish();
            // The peer closes once it has read the reason.
            let _ = timeout(HANDSHAKE_DEADLINE, self.connection.closed()).await;
        }
        self.connection.close(REFUSED, b"refused");
    }

    async fn serve_worker(self, mut goodbye: Goodbye, outgoing: mpsc::UnboundedReceiver<CoordinatorMessage>) {
        goodbye.why = "its session failed".to_owned();
        let worker = goodbye.worker;
        let said = |message: WorkerMessage| match goodbye.coordinator.cast(Message::Said { worker, message }) {
            Ok(()) => Next::Message,
            Err(_) => Next::Stop,
        };
        let why = carry(self.send, self.receive, outgoing, said, |_| {}).await;
        self.connection.close(0_u32.into(), why.as_bytes());
        goodbye.why = why;
    }

    async fn serve_agent(
        self,
        agent: u64,
        coordinator: &ActorRef<Message>,
        outgoing: mpsc::UnboundedReceiver<AgentOrder>,
    ) {
        let said = |message: AgentMessage| match coordinator.cast(Message::AgentSaid { agent, message }) {
            Ok(()) => Next::Message,
            Err(_) => Next::Stop,
        };
        let why = carry(self.send, self.receive, outgoing, said, |_| {}).await;
        tracing::debug!(%why, "an agent's session is over");
        self.connection.close(0_u32.into(), why.as_bytes());
    }

    /// Answers an operator's requests one after the other, and not faster than a person can read.
    async fn serve_operator(mut self, peer: PeerIdentity, coordinator: &ActorRef<Message>) {
        let why = match self.answer_operator(coordinator).await {
            Ok(()) => "the operator left".to_owned(),
            // It may just close its connection.
            Err(error @ FrameError::Connection(_)) => error.to_string(),
            Err(error) => {
                tracing::warn!(target: "sardana::event::refused", %peer, %error, "an operator's session is over");
                error.to_string()
            }
        };
        self.connection.close(REFUSED, why.as_bytes());
    }

    async fn answer_operator(&mut self, coordinator: &ActorRef<Message>) -> Result<(), FrameError> {
        write_frame(&mut self.send, &Greeting::Welcome, HELLO_FRAME_BYTES).await?;
        while let Some(request) = read_frame::<OperatorRequest>(&mut self.receive, REQUEST_BYTES).await? {
            let (reply, answer) = oneshot::channel();
            // Nobody answers once the coordinator ends; its endpoint closes with it.
            if coordinator.cast(Message::Asked { request, reply }).is_err() {
                return Ok(());
            }
            let Ok(answer) = answer.await else { return Ok(()) };
            write_frame(&mut self.send, &answer, ANSWER_BYTES).await?;
            sleep(ANSWER_EVERY).await;
        }
        Ok(())
    }
}

/// Tells the coordinator that a session is over, however it ends.
struct Goodbye {
    worker: WorkerId,
    session: SessionId,
    coordinator: ActorRef<Message>,
    why: String,
}

impl Drop for Goodbye {
    fn drop(&mut self) {
        let why = std::mem::take(&mut self.why);
        // The coordinator is gone only when the job is over.
        let _ = self.coordinator.cast(Message::SessionLost {
            worker: self.worker,
            session: self.session,
            why,
        });
    }
}
