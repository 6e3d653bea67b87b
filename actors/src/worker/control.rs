//! The control connection of a worker: a task that dials, says hello, and carries messages until it breaks.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use quinn::{Connection, Endpoint};
use ractor::{ActorProcessingErr, ActorRef};
use sardana_net::control::{Next, carry as carry_messages};
use sardana_net::enrol::{RenewError, renew_run_out};
use sardana_net::ground::Ground;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{
    BindError, ConnectError, Purpose, Whose, bind_client_on, close, connect, explain, is_refusal, is_run_out, towards,
};
use sardana_net::trust::{PeerIdentity, Wallet};
use sardana_net::whereabouts::Search;
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_net::wire::{FrameError, exchange};
use sardana_protocol::limits::{GREETING_DEADLINE, RETRY_EVERY};
use sardana_protocol::member::{Event, Member};
use sardana_protocol::messages::{Call, CoordinatorMessage, Greeting, Hello, WorkerHello, WorkerMessage};
use sardana_protocol::words::{Incarnation, Step, WorkerId};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::WorkerConfig;
use super::actor::Message;
use super::desk::Desk;
use super::limits::{COORDINATOR_ABSENCE, COORDINATOR_PATIENCE, LAST_WORDS};
use crate::fault::{self, Point};

/// Why a worker could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No local socket. Fix the machine's limits.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The coordinator was not there for the whole patience. Start it, or fix its address.
    #[error("no coordinator at {address} for {patience:?}: {last}; start it, or give the address where it listens")]
    NotThere {
        /// Where it should be.
        address: SocketAddr,
        /// For how long it was looked for.
        patience: Duration,
        /// What the last attempt said.
        last: String,
    },
    /// The coordinator's certificate or ours is not of this job. Use credentials of this job.
    #[error("the coordinator at {address} cannot be trusted, or does not trust us: {source}")]
    NotTrusted {
        /// Where it is.
        address: SocketAddr,
        /// What was wrong.
        #[source]
        source: ConnectError,
    },
    /// The job is over. There is nothing to do.
    #[error("the job is over: there is nothing left to do")]
    Over,
    /// The coordinator refused this worker and said why.
    #[error("the coordinator at {address} refused this worker: {reason}")]
    Refused {
        /// Where it is.
        address: SocketAddr,
        /// Expected, found, and what to do.
        reason: String,
    },
}

/// One attempt's end: try again, or not.
enum Attempt {
    Again(String),
    /// The coordinator does not take this worker's certificate any more.
    RunOut(String),
    Never(JoinError),
}

/// For which time the coordinator is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looking {
    /// The first time: what is wrong now is a mistake of the person who started this worker.
    First,
    /// Once more. The worker may have a state that others need: it ends only if the coordinator does not want it.
    Again,
}

impl Looking {
    /// How long it is looked for.
    const fn patience(self) -> Duration {
        match self {
            Self::First => COORDINATOR_PATIENCE,
            Self::Again => COORDINATOR_ABSENCE,
        }
    }

    /// How long to wait first: a connection that breaks each time must not be made without end.
    const fn pause(self) -> Duration {
        match self {
            Self::First => Duration::ZERO,
            Self::Again => RETRY_EVERY,
        }
    }
}

/// What a control connection is made from.
#[derive(Debug, Clone)]
pub(super) struct Link {
    ground: Ground,
    pub(super) credentials: Wallet,
    pub(super) coordinator: Search,
    /// One for each kind of address, by where it is bound.
    endpoints: Vec<(IpAddr, Endpoint)>,
    /// Tells this process from any other that has its credentials.
    process: [u8; 16],
    calls: Arc<AtomicU64>,
}

impl Link {
    pub(super) fn new(ground: &Ground, config: &WorkerConfig) -> Result<Self, ActorProcessingErr> {
        let mut process = [0; 16];
        getrandom::fill(&mut process).map_err(|error| format!("the system gives no random numbers: {error}"))?;
        let endpoint = |address| bind_client_on(ground, &config.credentials, Purpose::Control, address);
        let found = config.coordinator.found();
        let mut endpoints = vec![(towards(found), endpoint(found)?)];
        for address in config.coordinator.all() {
            let local = towards(address);
            if endpoints.iter().all(|(bound, _)| *bound != local) {
                // A host without such addresses cannot go there anyway.
                endpoints.extend(endpoint(address).ok().map(|endpoint| (local, endpoint)));
            }
        }
        Ok(Self {
            ground: ground.clone(),
            process,
            calls: Arc::default(),
            credentials: config.credentials.clone(),
            coordinator: Search::new(&config.coordinator),
            endpoints,
        })
    }

    /// The next call of this process: what it says of itself in a hello.
    pub(super) fn next_call(&self) -> Call {
        Call {
            process: self.process,
            count: self.calls.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(super) async fn close(&self) {
        for (_, endpoint) in &self.endpoints {
            close(endpoint, "the worker ends").await;
        }
    }

    /// Dials and says hello until the coordinator welcomes this worker, or refuses it, or patience ends.
    async fn join(&self, hello: impl Fn() -> WorkerHello, looking: Looking) -> Result<Carrier, JoinError> {
        let patience = looking.patience();
        let give_up = Instant::now() + patience;
        loop {
            let address = self.coordinator.here();
            let mut attempt = self.attempt(address, &hello, looking).await;
            if let Err(Attempt::RunOut(why)) = &attempt {
                tracing::debug!(coordinator = %address, %why, "the certificate has run out");
                attempt = match renew_run_out(&self.ground, &self.credentials, address).await {
                    Ok(()) => self.attempt(address, &hello, looking).await,
                    Err(error @ RenewError::Again { .. }) => Err(Attempt::Again(error.to_string())),
                    Err(RenewError::Refused { address, reason }) => Err(refused(address, reason)),
                };
            }
            let last = match attempt {
                Ok(carrier) => return Ok(carrier),
                Err(Attempt::Never(error)) if self.ends_the_search(&error) => return Err(error),
                Err(Attempt::Never(error)) => error.to_string(),
                Err(Attempt::Again(last) | Attempt::RunOut(last)) => last,
            };
            if Instant::now() + RETRY_EVERY > give_up {
                return Err(JoinError::NotThere { address, patience, last });
            }
            tracing::debug!(coordinator = %address, %last, "the coordinator is not there yet");
            self.coordinator.look_elsewhere();
            sleep(RETRY_EVERY).await;
        }
    }

    /// What somebody else says at another address says nothing of the coordinator.
    fn ends_the_search(&self, error: &JoinError) -> bool {
        match error {
            JoinError::NotTrusted { .. } => !self.coordinator.is_somewhere_else_maybe(),
            JoinError::Bind(_) | JoinError::NotThere { .. } | JoinError::Refused { .. } | JoinError::Over => true,
        }
    }

    async fn attempt(
        &self,
        address: SocketAddr,
        hello: impl Fn() -> WorkerHello,
        looking: Looking,
    ) -> Result<Carrier, Attempt> {
        let local = towards(address);
        let Some((_, endpoint)) = self.endpoints.iter().find(|(bound, _)| *bound == local) else {
            return Err(Attempt::Again(format!("this host has no way to {address}")));
        };
        let expected = PeerIdentity::coordinator(self.credentials.job());
        let connection = connect(endpoint, address, expected, CONNECT_DEADLINE)
            .await
            .map_err(|source| not_connected(address, source, looking))?;
        let again = |error: FrameError| Attempt::Again(error.to_string());
        let refused = |reason: String| refused(address, reason);
        let (mut send, mut receive) = connection.open_bi().await.map_err(|error| {
            if is_run_out(&error) {
                Attempt::RunOut(explain(&error))
            } else {
                again(FrameError::Connection(error))
            }
        })?;
        // Not before the coordinator is there: a hello binds who says it, and dialling may have taken seconds.
        let hello = Hello::Worker(Box::new(hello()));
        let streams = (&mut send, &mut receive);
        let greeting = exchange::<_, Greeting>(&connection, streams, (&hello, HELLO_FRAME_BYTES), HELLO_FRAME_BYTES);
        match timeout(GREETING_DEADLINE, greeting).await {
            Ok(Ok(Some(Greeting::Joined {
                incarnation,
                report_from,
            }))) => Ok(Carrier {
                connection,
                send,
                receive,
                incarnation,
                report_from,
            }),
            Ok(Ok(Some(Greeting::Fenced))) => Err(Attempt::Again("another coordinator leads the job".to_owned())),
            Ok(Ok(Some(Greeting::Welcome | Greeting::Leads { .. }))) => {
                Err(Attempt::Again("it took this worker for something else".to_owned()))
            }
            Ok(Ok(Some(Greeting::Refused { reason }))) => Err(refused(reason)),
            Ok(Ok(Some(Greeting::Over))) => Err(Attempt::Never(JoinError::Over)),
            Ok(Ok(None)) => Err(Attempt::Again("it closed without an answer".to_owned())),
            // A certificate that it refuses, a hello that it cannot read, or another version shows only now.
            Ok(Err(error @ FrameError::Version { .. })) => Err(refused(error.to_string())),
            Ok(Err(FrameError::Connection(error))) if is_run_out(&error) => Err(Attempt::RunOut(explain(&error))),
            Ok(Err(FrameError::Connection(error))) if is_refusal(&error) => Err(refused(explain(&error))),
            Ok(Err(error)) => Err(again(error)),
            Err(_) => Err(Attempt::Again(format!(
                "it did not answer a hello within {GREETING_DEADLINE:?}"
            ))),
        }
    }
}

fn refused(address: SocketAddr, reason: String) -> Attempt {
    Attempt::Never(JoinError::Refused { address, reason })
}

/// What it means that there is no connection.
fn not_connected(address: SocketAddr, source: ConnectError, looking: Looking) -> Attempt {
    match (&source, looking) {
        (ConnectError::Unreachable { .. } | ConnectError::Busy { .. } | ConnectError::Lost { .. }, _)
        // It makes itself a new one.
        | (ConnectError::NotValidNow { whose: Whose::Theirs, .. }, Looking::Again) => Attempt::Again(source.to_string()),
        (ConnectError::NotValidNow { whose: Whose::Ours, .. }, _) => Attempt::RunOut(source.to_string()),
        (
            ConnectError::Refused { .. }
            | ConnectError::NotValidNow { .. }
            | ConnectError::WrongPeer { .. }
            | ConnectError::OtherProtocol { .. }
            | ConnectError::Local { .. },
            _,
        ) => Attempt::Never(JoinError::NotTrusted { address, source }),
    }
}

/// A connection that the coordinator has welcomed.
struct Carrier {
    connection: Connection,
    send: quinn::SendStream,
    receive: quinn::RecvStream,
    incarnation: Incarnation,
    report_from: Step,
}

/// The task. What the desk says goes to the coordinator; what comes back goes to the worker.
pub(super) struct Control(JoinHandle<()>);

/// What it starts from.
pub(super) struct ControlArguments {
    pub(super) link: Link,
    pub(super) worker: ActorRef<Message>,
    pub(super) desk: Arc<Desk>,
    /// The hello without what changes from one connection to the next.
    pub(super) hello: WorkerHello,
    pub(super) looking: Looking,
    /// What is said to the coordinator on this connection: first of all what was said since the one before it was lost.
    pub(super) queue: mpsc::UnboundedReceiver<WorkerMessage>,
}

impl Control {
    pub(super) fn start(arguments: ControlArguments) -> Self {
        Self(tokio::spawn(carry(arguments)))
    }

    /// Waits until what was said last, such as a model's failure, has arrived. Its queue is closed before.
    pub(super) async fn finish(&mut self) {
        let _ = timeout(LAST_WORDS, &mut self.0).await;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells the worker that its control connection is lost where the task itself cannot: it has panicked.
struct TellsOfPanic {
    worker: ActorRef<Message>,
    desk: Arc<Desk>,
}

impl Drop for TellsOfPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let (why, queue) = ("its task panicked".to_owned(), self.desk.hang_up());
            let _ = self.worker.cast(Message::ControlLost { why, queue });
        }
    }
}

/// Joins, then carries messages both ways until the connection breaks.
async fn carry(arguments: ControlArguments) {
    let ControlArguments {
        link,
        worker,
        desk,
        hello,
        looking,
        queue,
    } = arguments;
    let _tells = TellsOfPanic {
        worker: worker.clone(),
        desk: Arc::clone(&desk),
    };
    sleep(looking.pause()).await;
    let current = || WorkerHello {
        introduction: desk.introduce(),
        call: link.next_call(),
        ..hello.clone()
    };
    let Carrier {
        connection,
        send,
        receive,
        incarnation,
        report_from,
    } = match link.join(current, looking).await {
        Ok(carrier) => carrier,
        Err(error) => {
            let _ = worker.cast(Message::NotJoined(error));
            return;
        }
    };
    tracing::info!(target: "sardana::event::joined", worker = %WorkerId::new(link.credentials.id()), coordinator = %link.coordinator.here());
    // Before anything that the coordinator says.
    let welcomed = Event::Welcomed {
        incarnation,
        report_from,
    };
    desk.handle(welcomed);
    if worker.cast(Message::Joined).is_err() {
        return;
    }
    let told = |message: CoordinatorMessage, _| match worker.cast(Message::Told(message)) {
        Ok(()) => Next::Message,
        Err(_) => Next::Stop,
    };
    let why = carry_messages(&connection, (send, receive), queue, told, |message| {
        at_fault_point(message, &desk)
    })
    .await;
    let queue = desk.hang_up();
    connection.close(0_u32.into(), b"the worker leaves this connection");
    let _ = worker.cast(Message::ControlLost { why, queue });
}

fn at_fault_point(message: &WorkerMessage, desk: &Desk) {
    let point = match message {
        WorkerMessage::Halted { .. } => Point::Halted,
        WorkerMessage::Finished { .. } => Point::Finished,
        WorkerMessage::Ready { .. }
        | WorkerMessage::Switched { .. }
        | WorkerMessage::RoomMade { .. }
        | WorkerMessage::Hashing { .. }
        | WorkerMessage::Snapshotted { .. }
        | WorkerMessage::Dropped { .. }
        | WorkerMessage::Saved { .. }
        | WorkerMessage::Saving { .. }
        | WorkerMessage::NotSaved { .. }
        | WorkerMessage::NotRestored { .. }
        | WorkerMessage::CaughtUp { .. }
        | WorkerMessage::Copying { .. }
        | WorkerMessage::CopyFailed { .. }
        | WorkerMessage::Leave { .. }
        | WorkerMessage::Renew { .. }
        | WorkerMessage::Progress { .. }
        | WorkerMessage::LinkBroken { .. }
        | WorkerMessage::Failed { .. } => return,
    };
    fault::reached(point, desk.read(Member::step));
}
