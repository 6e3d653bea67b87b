//! The coordinator: the rendezvous that forms generations. It sees decisions only; no byte of a gradient or state passes it.

mod actor;
mod agents;
mod certifying;
mod depots;
mod faults;
mod hearsay;
mod journal;
mod lately;
pub mod limits;
mod operating;
mod outlet;
mod records;
#[cfg(test)]
mod records_tests;
mod rivals;
mod session;
mod workers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quinn::Endpoint;
use ractor::{Actor, ActorRef};
use sardana_net::enrol::{EnrolService, Registrar};
use sardana_net::environment::Environment;
use sardana_net::quic::{BindError, ResetKey, bind_coordinator, close};
use sardana_net::trust::{AuthorityError, Role, RotatingCredentials};
use sardana_protocol::checkpoint::DepotAddress;
use sardana_protocol::membership::{Balance, JobEvent, Saves};
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};
use sardana_protocol::words::{Incarnation, JobId};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tracing::Instrument;

use actor::{Arguments, Message, Shell};
pub use records::{KeptJob, Records, RecordsError};

/// How long an ending coordinator waits until its last orders have arrived. Live workers have them within a round trip.
const LAST_ORDERS: Duration = Duration::from_secs(1);

/// What the key is derived for with which a coordinator that was started again resets the connections of its last life.
const RESET_CONTEXT: &str = "sardana 2026-11 coordinator resets";

/// What a coordinator needs.
#[derive(Debug)]
pub struct CoordinatorConfig {
    /// Certifies the coordinator itself, and other processes.
    pub registrar: Arc<Registrar>,
    /// Where to listen; port 0 takes any.
    pub listen: SocketAddr,
    /// Which life of the coordinator of this job it is.
    pub incarnation: Incarnation,
    /// What is known of the lives before.
    pub past: Past,
    /// What it is to the coordinators before it.
    pub succession: Succession,
    /// Where it writes down what its next life should know, if it can have one.
    pub records: Option<Records>,
    /// Fewer workers than this do not train.
    pub min: u32,
    /// How many workers the first generation waits for.
    pub expected: u32,
    /// Workers beyond this are spares.
    pub max: u32,
    /// Whether shards move towards faster workers.
    pub balance: Balance,
    /// When checkpoints are taken, if they are.
    pub saves: Option<Saves>,
}

/// What a coordinator is to the coordinators before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// The next life of the coordinator that has left its state in the directory, or the first life. Until it leads workers it gives way to
    /// any coordinator of its job that does.
    Resume,
    /// It takes the place of a coordinator whose state is lost, but for the job's authority, or that still lives: it waits for the first
    /// worker, to be above all that the workers know.
    TakeOver,
}

/// What is known of a coordinator's lives before this one.
#[derive(Debug, Clone, PartialEq)]
pub enum Past {
    /// There were none: no worker can have trained yet.
    None,
    /// Nothing is left of them. Workers may train; what they say is believed.
    Unknown,
    /// This was written down.
    Known(Box<KeptJob>),
}

/// Why a coordinator could not start.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// It could not listen. Fix the address.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Its own certificate could not be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The system does not say where it listens, or the actor did not start.
    #[error("the coordinator could not start: {0}")]
    Start(String),
}

/// A running coordinator. Dropping it ends it.
#[derive(Debug)]
pub struct Coordinator {
    job: JobId,
    address: SocketAddr,
    actor: ActorRef<Message>,
    running: Option<JoinHandle<()>>,
    writing: Option<JoinHandle<()>>,
    endpoint: Endpoint,
    environment: Environment,
    rotating: RotatingCredentials,
    /// Ends with this.
    watching: JoinSet<()>,
}

/// Steers a coordinator's job from the process that it runs in, as operators do from elsewhere.
#[derive(Debug, Clone)]
pub struct Steering(ActorRef<Message>);

impl Steering {
    /// Asks as an operator does.
    ///
    /// # Errors
    /// When the coordinator has ended.
    pub async fn ask(&self, request: OperatorRequest) -> Result<OperatorAnswer, CoordinatorError> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let asked = self.0.cast(Message::Asked { request, reply });
        asked.map_err(|error| CoordinatorError::Start(error.to_string()))?;
        answer.await.map_err(|error| CoordinatorError::Start(error.to_string()))
    }

    /// Where the job's connected depots are reached. None once the coordinator has ended.
    pub async fn depots(&self) -> Vec<DepotAddress> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        // The coordinator is gone only if the job is over.
        let _ = self.0.cast(Message::Depots { reply });
        answer.await.unwrap_or_default()
    }

    /// Asks as an operator does, and leaves the answer to the log.
    pub fn request(&self, request: OperatorRequest) {
        let (reply, _) = tokio::sync::oneshot::channel();
        // The coordinator is gone only if the job is over.
        let _ = self.0.cast(Message::Asked { request, reply });
    }

    /// The job ends at the next boundary.
    pub fn request_stop(&self) {
        // The coordinator is gone only if the job is over.
        let _ = self.0.cast(Message::StopRequested);
    }
}

/// A coordinator, and what happens to its job.
pub type Started = (Coordinator, mpsc::UnboundedReceiver<JobEvent>);

/// Starts a coordinator. What happens to the job comes through the receiver.
///
/// # Errors
/// See [`CoordinatorError`].
pub fn start(config: CoordinatorConfig) -> BoxFuture<'static, Result<Started, CoordinatorError>> {
    start_on(Environment::Host, config)
}

/// Likewise, on another environment than the host.
///
/// # Errors
/// As [`start`].
pub fn start_on(
    environment: Environment,
    config: CoordinatorConfig,
) -> BoxFuture<'static, Result<Started, CoordinatorError>> {
    Box::pin(begin(environment, config))
}

async fn begin(environment: Environment, config: CoordinatorConfig) -> Result<Started, CoordinatorError> {
    let rotating = RotatingCredentials::new(config.registrar.authority().issue(Role::Coordinator, 0)?, environment.now());
    let enrolling = EnrolService::on(environment.clone(), Arc::clone(&config.registrar));
    let resets = ResetKey(config.registrar.authority().derived_key(RESET_CONTEXT));
    let endpoint = bind_coordinator(&environment, &rotating, config.listen, resets)?;
    let address = endpoint
        .local_addr()
        .map_err(|error| CoordinatorError::Start(error.to_string()))?;
    let job = rotating.job();
    let (events, receiver) = mpsc::unbounded_channel();
    let own = rotating.identity();
    let mut config = config;
    let (records, writing) = config
        .records
        .take()
        .map(|records| records::keep_writing(environment.clone(), records))
        .unzip();
    let span = tracing::error_span!("coordinator", %job, incarnation = %config.incarnation);
    let arguments = Arguments {
        span: span.clone(),
        config,
        rotating: rotating.clone(),
        environment: environment.clone(),
        clock: environment.clock(),
        records,
        events,
    };
    let (actor, running) = Actor::spawn(None, Shell, arguments)
        .await
        .map_err(|error| CoordinatorError::Start(error.to_string()))?;
    tokio::spawn(session::accept_all(endpoint.clone(), own, actor.clone(), enrolling).instrument(span));
    Ok((
        Coordinator {
            job,
            address,
            actor,
            running: Some(running),
            writing,
            endpoint,
            environment,
            rotating,
            watching: JoinSet::new(),
        },
        receiver,
    ))
}

impl Coordinator {
    /// The job that it coordinates.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on looks whether a coordinator has taken over at one of these addresses: then this one is fenced, and says so by an
    /// event. A coordinator that takes over there while this one lives learns of it, too, and follows it.
    pub fn watch(&mut self, standbys: &[SocketAddr]) {
        for &standby in standbys {
            let (environment, rotating, actor) = (self.environment.clone(), self.rotating.clone(), self.actor.clone());
            self.watching.spawn(rivals::watch(environment, rotating, standby, actor));
        }
    }

    /// A handle that steers the job.
    #[must_use]
    pub fn steering(&self) -> Steering {
        Steering(self.actor.clone())
    }

    /// Bytes that have arrived here over QUIC, in datagrams' payloads, from all connections there ever were.
    ///
    /// # Errors
    /// When the coordinator has ended.
    pub async fn bytes_received(&self) -> Result<u64, CoordinatorError> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let asked = self.actor.cast(Message::BytesReceived { reply });
        asked.map_err(|error| CoordinatorError::Start(error.to_string()))?;
        answer.await.map_err(|error| CoordinatorError::Start(error.to_string()))
    }

    /// From now on depots stay when the job is over, until [`Coordinator::end`]: a process still reads from them.
    pub async fn hold_depots(&self) {
        self.depots_stay(true).await;
    }

    async fn depots_stay(&self, held: bool) {
        let (reply, answer) = tokio::sync::oneshot::channel();
        // It has ended only if it broke.
        let _ = self.actor.cast(Message::HoldDepots { held, reply });
        let _ = answer.await;
    }

    /// Ends the coordinator: closes all connections, and waits until the others have been told.
    pub async fn end(mut self) {
        self.depots_stay(false).await;
        self.actor.stop(None);
        if let Some(running) = self.running.take() {
            // A panic in the actor has been logged by its runtime.
            let _ = running.await;
        }
        if let Some(writing) = self.writing.take() {
            // What it failed at is in the log.
            let _ = writing.await;
        }
        // What the sessions were given last is on its way; they close their connections once it has arrived.
        let _ = timeout(LAST_ORDERS, self.endpoint.wait_idle()).await;
        close(&self.endpoint, "the coordinator ends").await;
    }
}

#[cfg(test)]
impl Coordinator {
    /// All that its actor holds, as text.
    pub(crate) async fn shown(&self) -> String {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.actor.cast(Message::Show { reply }).unwrap();
        answer.await.unwrap()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.actor.stop(None);
        self.endpoint.close(0_u32.into(), b"the coordinator ends");
    }
}
