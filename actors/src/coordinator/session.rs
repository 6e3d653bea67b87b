//! One control connection at the coordinator: hello, greeting, then messages until it breaks.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use ractor::ActorRef;
use sardana_net::control::{Item, Turn, carry};
use sardana_net::enrol::EnrolService;
use sardana_net::log::refused;
use sardana_net::quic::limits::{CONTROL_WINDOW_BYTES, HANDSHAKE_DEADLINE, SILENT};
use sardana_net::quic::{AcceptError, Door, Knock, Place, Places, REFUSED, Visitor, receive};
use sardana_net::trust::{Kind, PeerIdentity, Role, may_send};
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::messages::{
    AgentHello, AgentMessage, AgentOrder, CoordinatorMessage, DepotHello, DepotMessage, Greeting, Hello, WorkerMessage,
};
use sardana_protocol::words::WorkerId;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tracing::Instrument;

use super::actor::Message;
use super::limits::{DEPOT_QUEUE, QUEUE};
use super::outlet::Outlet;
use crate::operator::limits::MAX_OPERATORS;

/// Tells a session from the one before, which may say its goodbye late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionId(usize);

impl SessionId {
    pub(super) fn of(connection: &Connection) -> Self {
        Self(connection.stable_id())
    }
}

/// Where all processes that come to the coordinator are met.
struct Reception {
    door: Door,
    own: PeerIdentity,
    coordinator: ActorRef<Message>,
    enrolling: EnrolService,
    operators: Semaphore,
    /// Peers that have shown a certificate and are not greeted yet.
    silent: Places<PeerIdentity>,
}

/// Takes in connections until the endpoint is closed.
pub(super) async fn accept_all(
    endpoint: Endpoint,
    own: PeerIdentity,
    coordinator: ActorRef<Message>,
    enrolling: EnrolService,
) {
    let reception = Arc::new(Reception {
        door: Door::new(endpoint),
        own,
        coordinator,
        enrolling,
        operators: Semaphore::new(MAX_OPERATORS),
        silent: Places::new(SILENT),
    });
    while let Some(knock) = reception.door.next().await {
        tokio::spawn(Arc::clone(&reception).meet(knock).in_current_span());
    }
}

impl Reception {
    async fn meet(self: Arc<Self>, knock: Knock) {
        match receive(knock, self.own, HANDSHAKE_DEADLINE).await {
            Ok(Visitor::Peer(connection, peer)) => {
                let Some(place) = self.silent.take(peer) else {
                    // As for a peer that is too slow: it may try again.
                    return connection.close(0_u32.into(), b"too many are to be greeted; try again");
                };
                // A process of the job runs there: whatever comes from there later need not wait behind strangers.
                self.door.know([SocketAddr::new(connection.remote_address().ip(), 0)]);
                greet((connection, place), peer, self.coordinator.clone(), &self.operators).await;
            }
            Ok(Visitor::Stranger(connection)) => self.enrolling.clone().serve(connection).await,
            Err(error @ AcceptError::MadeWay { .. }) => tracing::debug!(%error, "a handshake was given up"),
            Err(error) => refused!(%error, "a connection was refused"),
        }
    }
}

/// The first message of a connection, with its stream.
async fn hear(connection: &Connection, peer: PeerIdentity) -> Option<(SendStream, RecvStream, Hello)> {
    let (send, mut receive) = connection.accept_bi().await.ok()?;
    match read_frame::<Hello>(&mut receive, HELLO_FRAME_BYTES).await {
        Ok(hello) => Some((send, receive, hello?)),
        Err(error) => {
            refused!(%peer, %error, "a hello could not be read");
            connection.close(REFUSED, error.to_string().as_bytes());
            None
        }
    }
}

/// A peer that has shown its certificate says what it is; it has little time and few bytes for that (SEC-2).
async fn greet(
    (connection, place): (Connection, Place<PeerIdentity>),
    peer: PeerIdentity,
    coordinator: ActorRef<Message>,
    operators: &Semaphore,
) {
    let hello = tokio::select! {
        biased;
        hello = timeout(HANDSHAKE_DEADLINE, hear(&connection, peer)) => hello.unwrap_or_else(|_| {
            refused!(%peer, "no hello came within {HANDSHAKE_DEADLINE:?}");
            None
        }),
        () = place.wanted() => return connection.close(0_u32.into(), b"others are to be greeted; try again"),
    };
    let Some((send, receive, hello)) = hello else {
        // Closed already if it said something else. A slow peer may try again.
        return connection.close(0_u32.into(), b"expected a hello");
    };
    let streams = Streams {
        connection,
        send,
        receive,
        place: Some(place),
    };
    let allowed = may_send(peer.role, Kind::from(&hello), Role::Coordinator);
    match hello {
        Hello::Worker(hello) if allowed && hello.worker.get() == peer.id => {
            let (outlet, outgoing) = Outlet::new(streams.connection.clone(), QUEUE);
            let (reply, greeting) = oneshot::channel();
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
        Hello::Agent(hello) if allowed && hello.job == peer.job => {
            streams.greet_agent(peer.id, hello, &coordinator).await;
        }
        Hello::Depot(hello) if allowed && hello.job == peer.job => {
            streams.greet_depot(peer.id, hello, &coordinator).await;
        }
        Hello::Operator { job } if allowed && job == peer.job => {
            streams.serve_operator(peer, &coordinator, operators).await;
        }
        Hello::Coordinator { job, newest } if allowed && job == peer.job => {
            streams.greet_rival(newest, &coordinator).await;
        }
        Hello::Worker(_) | Hello::Agent(_) | Hello::Depot(_) | Hello::Operator { .. } | Hello::Coordinator { .. } => {
            let reason =
                format!("the hello is not one of {peer}: start the process with credentials of its own role and job");
            refused!(%peer, %reason, "a hello under a false name");
            let refused = async { Greeting::Refused { reason } };
            streams.refuse(refused.await).await;
        }
    }
}

pub(super) struct Streams {
    pub(super) connection: Connection,
    pub(super) send: SendStream,
    pub(super) receive: RecvStream,
    /// Until it is greeted.
    place: Option<Place<PeerIdentity>>,
}

impl Streams {
    /// It is welcome: it may say more than strangers may.
    pub(super) fn welcome(&mut self) {
        self.place = None;
        self.connection.set_receive_window(CONTROL_WINDOW_BYTES.into());
    }

    /// Sends the greeting. None if it is the last word.
    pub(super) async fn answer(mut self, asked: bool, greeting: oneshot::Receiver<Greeting>) -> Option<Self> {
        // A coordinator that does not answer is ending, which says nothing of the job: another one may lead it.
        let greeting = if asked { greeting.await.ok() } else { None };
        let Some(greeting) = greeting else {
            self.connection.close(0_u32.into(), b"this coordinator ends");
            return None;
        };
        match greeting {
            accepted @ (Greeting::Welcome | Greeting::Joined { .. }) => {
                self.welcome();
                let written = write_frame(&mut self.send, &accepted, HELLO_FRAME_BYTES).await;
                written.ok().map(|()| self)
            }
            refusal @ (Greeting::Refused { .. } | Greeting::Over | Greeting::Fenced | Greeting::Leads { .. }) => {
                self.refuse(refusal).await;
                None
            }
        }
    }

    pub(super) async fn refuse(mut self, refusal: Greeting) {
        if write_frame(&mut self.send, &refusal, HELLO_FRAME_BYTES).await.is_ok() {
            let _ = self.send.finish();
            // The peer closes once it has read the reason.
            let _ = timeout(HANDSHAKE_DEADLINE, self.connection.closed()).await;
        }
        self.connection.close(REFUSED, b"refused");
    }

    async fn greet_agent(self, agent: u64, hello: AgentHello, coordinator: &ActorRef<Message>) {
        let (outlet, outgoing) = Outlet::new(self.connection.clone(), QUEUE);
        let (reply, greeting) = oneshot::channel();
        let session = outlet.session();
        let asked = coordinator.cast(Message::AgentHello {
            agent,
            hello,
            outlet,
            reply,
        });
        if let Some(streams) = self.answer(asked.is_ok(), greeting).await {
            streams.serve_agent(agent, coordinator, outgoing).await;
        }
        // The coordinator is gone only when the job is over.
        let _ = coordinator.cast(Message::AgentLost { agent, session });
    }

    async fn greet_depot(self, certified: u64, hello: DepotHello, coordinator: &ActorRef<Message>) {
        let (outlet, outgoing) = Outlet::new(self.connection.clone(), DEPOT_QUEUE);
        let (reply, greeting) = oneshot::channel();
        let (depot, session) = (hello.depot, outlet.session());
        let asked = coordinator.cast(Message::DepotHello {
            certified,
            hello,
            outlet,
            reply,
        });
        let Some(streams) = self.answer(asked.is_ok(), greeting).await else {
            return;
        };
        let said = |message: DepotMessage, turn: Turn| {
            may_send(Role::Checkpoint, Kind::from(&message), Role::Coordinator)
                && coordinator.cast(Message::DepotSaid { depot, message, turn }).is_ok()
        };
        let why = carry(&streams.connection, (streams.send, streams.receive), outgoing, said, |_| {}).await;
        streams.connection.close(0_u32.into(), why.as_bytes());
        // The coordinator is gone only when the job is over.
        let _ = coordinator.cast(Message::DepotLost { depot, session, why });
    }

    async fn serve_worker(self, mut goodbye: Goodbye, outgoing: mpsc::Receiver<Item<CoordinatorMessage>>) {
        goodbye.why = "its session failed".to_owned();
        let worker = goodbye.worker;
        let said = |message: WorkerMessage, turn: Turn| {
            may_send(Role::Worker, Kind::from(&message), Role::Coordinator)
                && goodbye.coordinator.cast(Message::Said { worker, message, turn }).is_ok()
        };
        let why = carry(&self.connection, (self.send, self.receive), outgoing, said, |_| {}).await;
        self.connection.close(0_u32.into(), why.as_bytes());
        goodbye.why = why;
    }

    async fn serve_agent(self, agent: u64, coordinator: &ActorRef<Message>, outgoing: mpsc::Receiver<Item<AgentOrder>>) {
        let said = |message: AgentMessage, turn: Turn| {
            may_send(Role::Agent, Kind::from(&message), Role::Coordinator)
                && coordinator.cast(Message::AgentSaid { agent, message, turn }).is_ok()
        };
        let why = carry(&self.connection, (self.send, self.receive), outgoing, said, |_| {}).await;
        tracing::debug!(%why, "an agent's session is over");
        self.connection.close(0_u32.into(), why.as_bytes());
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
