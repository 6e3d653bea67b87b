//! The control connection of a worker: a task that dials, says hello, and carries messages until it breaks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ractor::ActorRef;
use sardana_net::control::carry as carry_messages;
use sardana_net::dialler::{Dialler, NotWelcomed, Welcomed, joined};
use sardana_net::enrol::RenewError;
use sardana_net::environment::Environment;
use sardana_net::quic::{BindError, ConnectError};
use sardana_net::trust::RotatingCredentials;
use sardana_net::whereabouts::Whereabouts;
use sardana_protocol::limits::RETRY_EVERY;
use sardana_protocol::member::{Event, Member};
use sardana_protocol::messages::{Call, CoordinatorMessage, Hello, WorkerHello, WorkerMessage};
use sardana_protocol::words::{Incarnation, Step};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::WorkerError;
use super::actor::Message;
use super::driver::StepDriver;
use super::limits::{COORDINATOR_ABSENCE, COORDINATOR_PATIENCE, LAST_WORDS};
use crate::fault::{self, Point};
use crate::panicked::or_tell;

/// Why a worker could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No local socket. Fix the machine's limits.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The coordinator was not there for the whole patience. Start it, or fix its address.
    #[error("no coordinator at {address} for {patience:?}: {last}; start it, or give the address where it listens")]
    NotThere {
        /// Where the coordinator should be.
        address: SocketAddr,
        /// For how long it was looked for.
        patience: Duration,
        /// What the last attempt said.
        last: String,
    },
    /// The coordinator's certificate or ours is not of this job. Use credentials of this job.
    #[error("the coordinator at {address} cannot be trusted, or does not trust us: {source}")]
    NotTrusted {
        /// The coordinator's address.
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
        /// The coordinator's address.
        address: SocketAddr,
        /// Expected, found, and what to do.
        reason: String,
    },
}

/// For which time the coordinator is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looking {
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
    pub(crate) const fn pause(self) -> Duration {
        match self {
            Self::First => Duration::ZERO,
            Self::Again => RETRY_EVERY,
        }
    }

    /// Whether the search ends where no connection is made for this reason.
    const fn ends_with(self, reason: &ConnectError) -> bool {
        // It makes itself a new certificate.
        let is_renewed = matches!((self, reason), (Self::Again, ConnectError::NotValidNow { .. }));
        !reason.may_pass() && !is_renewed
    }
}

/// What a control connection is made from.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    dialler: Dialler,
    /// Tells this process from any other that has its credentials.
    process: [u8; 16],
    calls: Arc<AtomicU64>,
}

impl Link {
    /// A link of the process with these credentials to a coordinator that may be there.
    pub(crate) fn new(
        environment: &Environment,
        credentials: &RotatingCredentials,
        coordinator: &Whereabouts,
    ) -> Result<Self, WorkerError> {
        let mut process = [0; 16];
        getrandom::fill(&mut process).map_err(|error| WorkerError::Broken {
            reason: format!("the system gives no random numbers: {error}"),
        })?;
        Ok(Self {
            dialler: Dialler::keeping(environment.clone(), credentials.clone(), coordinator)?,
            process,
            calls: Arc::default(),
        })
    }

    /// The next call of this process: what it says of itself in a hello.
    pub(crate) fn next_call(&self) -> Call {
        Call {
            process: self.process,
            count: self.calls.fetch_add(1, Ordering::Relaxed),
        }
    }

    pub(crate) async fn close(&self) {
        self.dialler.close("the worker ends").await;
    }

    /// Dials and says hello until the coordinator welcomes this worker, or refuses it, or patience ends.
    pub(crate) async fn join(
        &self,
        hello: impl Fn() -> WorkerHello,
        looking: Looking,
    ) -> Result<Welcomed<(Incarnation, Step)>, Box<JoinError>> {
        let patience = looking.patience();
        let give_up = Instant::now() + patience;
        let hello = || Hello::Worker(Box::new(hello()));
        loop {
            let address = self.dialler.search().here();
            let last = match self.dialler.dial(hello, joined).await {
                Ok(welcomed) => return Ok(welcomed),
                Err(error) => self.judge(address, error, looking)?,
            };
            if Instant::now() + RETRY_EVERY > give_up {
                return Err(Box::new(JoinError::NotThere { address, patience, last }));
            }
            tracing::debug!(coordinator = %address, %last, "the coordinator is not there yet");
            sleep(RETRY_EVERY).await;
        }
    }

    /// What to tell of an attempt that failed, unless that ends the search.
    fn judge(&self, address: SocketAddr, error: NotWelcomed, looking: Looking) -> Result<String, Box<JoinError>> {
        let end = match error {
            NotWelcomed::NotConnected(source) if looking.ends_with(&source) => {
                let error = JoinError::NotTrusted { address, source };
                // What another process says at another address says nothing of the coordinator.
                if self.dialler.search().is_somewhere_else_maybe() {
                    return Ok(error.to_string());
                }
                error
            }
            NotWelcomed::Refused(reason) | NotWelcomed::NotRenewed(RenewError::Refused { reason, .. }) => {
                JoinError::Refused { address, reason }
            }
            NotWelcomed::Over => JoinError::Over,
            NotWelcomed::Bind(error) => error.into(),
            NotWelcomed::NotConnected(_)
            | NotWelcomed::NotRenewed(RenewError::Again { .. })
            | NotWelcomed::NoWay
            | NotWelcomed::RunOut(_)
            | NotWelcomed::Fenced
            | NotWelcomed::Mistaken
            | NotWelcomed::NoAnswer
            | NotWelcomed::Silent
            | NotWelcomed::Broken(_) => return Ok(error.to_string()),
        };
        Err(Box::new(end))
    }
}

/// The task. What the step driver says goes to the coordinator; what comes back goes to the worker.
pub(super) struct Control(JoinHandle<()>);

/// What it starts from.
pub(super) struct ControlArguments {
    pub(super) link: Link,
    pub(super) worker: ActorRef<Message>,
    pub(super) driver: Arc<StepDriver>,
    /// The hello without what changes from one connection to the next.
    pub(super) hello: WorkerHello,
    pub(super) looking: Looking,
    /// What is said to the coordinator on this connection: first of all what was said since the one before it was lost.
    pub(super) queue: mpsc::UnboundedReceiver<WorkerMessage>,
}

impl Control {
    pub(super) fn start(arguments: ControlArguments) -> Self {
        let (worker, driver) = (arguments.worker.clone(), Arc::clone(&arguments.driver));
        let tell = move || {
            let (why, queue) = ("its task panicked".to_owned(), driver.hang_up());
            let _ = worker.cast(Message::ControlLost { why, queue });
        };
        Self(tokio::spawn(or_tell(carry(arguments), tell)))
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

/// Joins, then carries messages both ways until the connection breaks.
async fn carry(arguments: ControlArguments) {
    let ControlArguments {
        link,
        worker,
        driver,
        hello,
        looking,
        queue,
    } = arguments;
    sleep(looking.pause()).await;
    let current = || WorkerHello {
        introduction: driver.introduce(),
        call: link.next_call(),
        ..hello.clone()
    };
    let Welcomed {
        connection,
        streams,
        greeting: (incarnation, report_from),
        ..
    } = match link.join(current, looking).await {
        Ok(welcomed) => welcomed,
        Err(error) => {
            let _ = worker.cast(Message::NotJoined(error));
            return;
        }
    };
    tracing::info!(target: "sardana::event::joined", worker = %hello.worker, coordinator = %connection.remote_address());
    // Before anything that the coordinator says.
    driver.handle(Event::Welcomed {
        incarnation,
        report_from,
    });
    if worker.cast(Message::Joined).is_err() {
        return;
    }
    let told = |message: CoordinatorMessage, _| worker.cast(Message::Told(message)).is_ok();
    let why = carry_messages(&connection, streams, queue, told, |message| at_fault_point(message, &driver)).await;
    let queue = driver.hang_up();
    connection.close(0_u32.into(), b"the worker leaves this connection");
    let _ = worker.cast(Message::ControlLost { why, queue });
}

fn at_fault_point(message: &WorkerMessage, driver: &StepDriver) {
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
        | WorkerMessage::Links(_)
        | WorkerMessage::DeviceMemory(_)
        | WorkerMessage::Progress { .. }
        | WorkerMessage::LinkBroken { .. }
        | WorkerMessage::GivenUp { .. }
        | WorkerMessage::Failed { .. } => return,
    };
    fault::reached(point, driver.read(Member::step));
}
