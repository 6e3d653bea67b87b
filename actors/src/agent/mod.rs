//! An agent: one per host. Starts workers, sees them end, and reports it at once, so that no worker waits for a timeout.
//!
//! A child gets its credentials through its standard input, which stays open: when the agent is gone, the child reads the end of
//! it and ends as well, with all that it has started. So does a child whose agent ends it, or sees its end: each has a process group of
//! its own. Nothing ends what moves to another group or session, nor what is left of a child that was killed at the same moment as its
//! agent. Must not know what the children compute.

mod actor;
mod away;
mod berths;
mod bundle;
mod certificates;
mod child;
mod children;
mod counts;
mod depot;
mod ends;
mod group;
pub mod limits;
mod motion;
pub mod notices;
mod orders;
mod output;
mod reporting;
mod start_error;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use ractor::{Actor, ActorRef};
use sardana_net::trust::RotatingCredentials;
use sardana_net::whereabouts::Whereabouts;
use sardana_protocol::notices::Said;
use sardana_protocol::words::WorkerId;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};

pub use berths::GPUS_VARIABLE;
pub use bundle::{BUNDLE_VARIABLE, Bundle, BundleError, receive_bundle};
pub use child::{EXIT_GIVE_UP, EXIT_RETRY};
pub use output::{Colour, LogBounds, Output, OutputError};

use actor::{Arguments, Message, Shell};
use limits::OUTPUT_GRACE;
use notices::{NoticesConfig, Watch};
use output::{Printer, Ranks, Writers};

/// What an agent needs.
#[derive(Debug)]
pub struct AgentConfig {
    /// Its own certificate and key.
    pub credentials: RotatingCredentials,
    /// Where the coordinator listens, and may listen some day.
    pub coordinator: Whereabouts,
    /// Where children listen for each other; port 0 takes any.
    pub listen: SocketAddr,
    /// Where others reach them, if that is another address than the one they listen at.
    pub advertise: Option<IpAddr>,
    /// What people call this host: [`host_name`], if they have no better name for it.
    pub host: String,
    /// Where the output of children goes.
    pub output: Output,
    /// What to start.
    pub program: PathBuf,
    /// With which arguments.
    pub arguments: Vec<OsString>,
    /// With which additional environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What those of each berth find there besides, in turn where there are fewer of these than berths: a device of their own, as a rule. A
    /// child has the lowest berth that no other has, so that one that replaces another gets what that had.
    pub berths: Vec<Vec<(OsString, OsString)>>,
    /// Where to keep checkpoints of the job on this host, if it does.
    pub checkpoint_dir: Option<PathBuf>,
    /// How many workers to keep running.
    pub workers: u32,
    /// How many times in all a worker that ended badly is replaced. A worker that gave up ([`EXIT_GIVE_UP`]) is not.
    pub restarts: u32,
}

/// What an agent tells the program that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEvent {
    /// Checkpoints cannot be kept on this host.
    NoDepot {
        /// Why, and what to do.
        reason: String,
    },
    /// A worker process was started.
    Started {
        /// Its id.
        worker: WorkerId,
        /// Its process id.
        pid: u32,
    },
    /// A worker process ended.
    Ended {
        /// Its id.
        worker: WorkerId,
        /// How, in words.
        how: String,
    },
    /// A worker process could not be started.
    NotStarted {
        /// Why, and what to do.
        reason: String,
    },
    /// A worker process ended, or could not be started, and none is started in its place: it gave up, or no restarts are left.
    Short {
        /// How many run or will be started.
        left: u32,
    },
    /// The coordinator wants more workers than before: they are started now.
    Grown {
        /// How many run or will be started.
        left: u32,
    },
    /// No worker process is left, and none will be started: some failed, and no restarts are left.
    Exhausted,
    /// No worker process is left, and none will be started: all have ended well, as workers do that are asked to leave.
    Drained,
    /// Of the machine's notices; see [`Agent::watch`].
    Notice(Said),
    /// The workers have left because of a notice. The agent stays, in case it is withdrawn.
    Away,
    /// The notice is withdrawn or over: workers are started again.
    Back {
        /// How many run or will be started.
        left: u32,
        /// What is withdrawn.
        reason: String,
    },
    /// The coordinator says that the job is over: children end, none is started.
    JobOver,
}

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No folder for its children's counts, or the actor did not start.
    #[error("the agent could not start: {0}")]
    Start(String),
    /// The output of its children cannot go where it should.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// The processes of an agent by worker.
type Processes = Arc<Mutex<BTreeMap<WorkerId, u32>>>;

/// A running agent. Dropping it ends its children.
#[derive(Debug)]
pub struct Agent {
    actor: ActorRef<Message>,
    running: Option<JoinHandle<()>>,
    processes: Processes,
    ranks: Ranks,
    /// None if children print for themselves.
    writers: Option<Writers>,
    /// Passes on what a watch for notices wants.
    watching: Option<AbortHandle>,
}

/// An agent, and what happens to its workers.
pub type Started = (Agent, mpsc::UnboundedReceiver<AgentEvent>);

/// Starts an agent and its workers. What happens to them comes through the receiver.
///
/// # Errors
/// See [`AgentError`].
pub fn start(config: AgentConfig) -> BoxFuture<'static, Result<Started, AgentError>> {
    Box::pin(begin(config))
}

async fn begin(config: AgentConfig) -> Result<Started, AgentError> {
    let (events, receiver) = mpsc::unbounded_channel();
    let processes = Processes::default();
    let ranks = Ranks::default();
    let (printer, writers) = Printer::start(&config.output, &ranks)?.unzip();
    let arguments = Arguments {
        config,
        events,
        processes: Arc::clone(&processes),
        printer,
    };
    let (actor, running) = Actor::spawn(None, Shell, arguments)
        .await
        .map_err(|error| AgentError::Start(error.to_string()))?;
    Ok((
        Agent {
            actor,
            running: Some(running),
            processes,
            ranks,
            writers,
            watching: None,
        },
        receiver,
    ))
}

impl Agent {
    /// The process of `worker`, if it runs.
    #[must_use]
    pub fn pid(&self, worker: WorkerId) -> Option<u32> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&worker)
            .copied()
    }

    /// These are the members of the newest generation, in rank order: lines that children print show their ranks.
    pub fn rank(&self, members: &[WorkerId]) {
        output::rank(&self.ranks, members);
    }

    /// Heeds the notices of the machine's cloud from now on, as long as the agent lives: when the machine is about to go away its
    /// children leave at a boundary; when it stays after all, as many are started again. What happens is told as
    /// [`AgentEvent::Notice`], [`AgentEvent::Away`] and [`AgentEvent::Back`]. Called again, it heeds only what the last call says.
    pub fn watch(&mut self, config: NoticesConfig) {
        let (watch, mut orders) = Watch::start(config);
        let actor = self.actor.clone();
        let passing = tokio::spawn(async move {
            // Ends with this task.
            let _watch = watch;
            while let Some(order) = orders.recv().await {
                if actor.cast(Message::Notice(order)).is_err() {
                    return;
                }
            }
        });
        self.end_watch();
        self.watching = Some(passing.abort_handle());
    }

    fn end_watch(&mut self) {
        if let Some(watching) = self.watching.take() {
            watching.abort();
        }
    }

    /// Lets the children end by themselves for a while, then ends them, and the agent.
    pub async fn end(self) {
        self.finish(Message::End).await;
    }

    /// The agent was asked to end, and the job goes on without its host: the children leave at a boundary, and the agent ends with
    /// the last of them, after [`limits::LEAVE_PATIENCE`] at the latest. Without a coordinator they get SIGTERM. Dropped half-way,
    /// it ends them at once.
    pub async fn leave(self, reason: &str) {
        let reason = reason.to_owned();
        self.finish(Message::Leave { reason }).await;
    }

    async fn finish(mut self, how: Message) {
        // It may have ended already.
        let _ = self.actor.cast(how);
        if let Some(running) = &mut self.running {
            let _ = running.await;
        }
        self.running = None;
        if let Some(writers) = self.writers.take() {
            writers.finish(OUTPUT_GRACE).await;
        }
    }
}

/// What the system calls this host.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
impl Agent {
    /// All that its actor holds, as text.
    pub(crate) async fn shown(&self) -> String {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.actor.cast(Message::Show { reply }).unwrap();
        answer.await.unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end_watch();
        self.actor.kill();
    }
}
