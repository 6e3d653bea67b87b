//! Runs a job on this host: a coordinator and an agent in this process, workers as processes of a program.

mod error;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
pub use sardana_actors::agent::limits::{LOG_BYTES, LOG_FILES};
use sardana_actors::agent::{self, Agent, AgentConfig, AgentEvent};
pub use sardana_actors::agent::{Colour, LogBounds, Output, OutputError};
pub use sardana_actors::coordinator::Steering;
use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, Past, Succession};
use sardana_net::enrol::Registrar;
use sardana_net::trust::{Authority, Role};
use sardana_protocol::membership::{GenerationEvent, JobEvent, Need, Summary};
pub use sardana_protocol::status::{OperatorAnswer, OperatorRequest};
use sardana_protocol::words::{Incarnation, JobId, WorkerId};
use sardana_storage::private::PrivateFolder;
use tokio::sync::mpsc;

use crate::checkpointing::{Checkpointing, Keeping, start_depot};
use crate::device::{Dealt, DeviceChoice, NoGpu};
use crate::environment::of_workers;
use crate::hosts::place::{Offered, PlaceError, offer};
use crate::job::Staffing;
pub use error::LaunchError;

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct LaunchConfig {
    /// The program that becomes a worker: it calls [`crate::serve_if_started_by_agent`], [`crate::train()`] or [`crate::group::join`].
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Additional environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What workers of each berth find there besides, in turn: their devices, as [`Self::on`] deals them out. A worker that replaces another
    /// gets its berth.
    pub berths: Vec<Vec<(OsString, OsString)>>,
    /// How many workers run the job.
    pub staffing: Staffing,
    /// Where the coordinator listens. Nothing listens beyond loopback unless told to.
    pub listen: SocketAddr,
    /// Where the output of workers goes.
    pub output: Output,
    /// Its checkpoints, if any are kept.
    pub checkpoints: Option<Checkpointing>,
}

/// What happens while a job runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What happens to the job.
    Job(JobEvent),
    /// What happens to its processes.
    Agent(AgentEvent),
}

/// A job that runs.
#[derive(Debug)]
pub struct Launched {
    coordinator: Coordinator,
    agent: Agent,
    job_events: mpsc::UnboundedReceiver<JobEvent>,
    agent_events: mpsc::UnboundedReceiver<AgentEvent>,
    last_end: LastEnd,
    prospects: Prospects,
    registrar: Arc<Registrar>,
    offered: Option<Offered>,
    /// Ends with this.
    keeping: Option<Keeping>,
}

/// Why there is one worker less than before.
#[derive(Debug)]
enum LastEnd {
    /// It ended, in this way.
    Ended(String),
    /// It could not be started, for this reason.
    NotStarted(String),
}

/// Which workers may still come, and what the job waits for.
#[derive(Debug)]
struct Prospects {
    min: u32,
    /// How many worker processes run or will be started.
    left: u32,
    /// What the coordinator waits for, and with how many workers.
    waiting: Option<(u32, Need)>,
}

impl Prospects {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Agent(AgentEvent::Short { left } | AgentEvent::Grown { left } | AgentEvent::Back { left, .. }) => {
                self.left = *left;
            }
            Event::Agent(AgentEvent::Exhausted | AgentEvent::Drained) => self.left = 0,
            Event::Job(JobEvent::Waiting { have, need }) => self.waiting = Some((*have, *need)),
            Event::Job(JobEvent::Generation(GenerationEvent::Forming { .. })) => self.waiting = None,
            Event::Job(_) | Event::Agent(_) => {}
        }
    }

    /// Why training will never go on, if so.
    fn hopeless(&self, last: &LastEnd) -> Option<LaunchError> {
        match self.waiting {
            _ if self.left == 0 || self.left < self.min => Some(self.too_few(last)),
            // All workers that will ever be there are there.
            Some((have, need @ Need::Room { .. })) if have >= self.left => Some(LaunchError::NoRoom(need)),
            Some((_, Need::Room { .. } | Need::Workers(_) | Need::State | Need::Depots)) | None => None,
        }
    }

    fn too_few(&self, last: &LastEnd) -> LaunchError {
        let (left, need) = (self.left, Need::Workers(self.min));
        match last {
            LastEnd::NotStarted(reason) => LaunchError::NotStarted {
                left,
                need,
                reason: reason.clone(),
            },
            LastEnd::Ended(how) if left == 0 => LaunchError::NoWorkers { last: how.clone() },
            LastEnd::Ended(how) => LaunchError::TooFew {
                left,
                need,
                last: how.clone(),
            },
        }
    }
}

impl LaunchConfig {
    /// Runs this very program, with its own arguments, as workers on loopback.
    ///
    /// # Errors
    /// When the program's own path cannot be found out.
    pub fn this_program(staffing: Staffing) -> Result<Self, LaunchError> {
        let program = std::env::current_exe().map_err(|error| LaunchError::System(error.to_string()))?;
        Ok(Self::program(program, std::env::args_os().skip(1).collect(), staffing))
    }

    /// Runs `program` as workers on loopback.
    #[must_use]
    pub fn program(program: PathBuf, arguments: Vec<OsString>, staffing: Staffing) -> Self {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            program,
            arguments,
            environment: of_workers(staffing.workers),
            berths: Vec::new(),
            staffing,
            listen: loopback,
            output: Output::Inherit,
            checkpoints: None,
        }
    }

    /// The same with this host's GPUs dealt out to the workers, if they are to have any. Logs what they get.
    ///
    /// # Errors
    /// When they are to compute on GPUs, and there are none.
    pub fn on(self, device: DeviceChoice) -> Result<Self, NoGpu> {
        let dealt = Dealt::on_this_host(device, self.staffing.workers)?;
        dealt.log();
        let berths = dealt.into_berths();
        Ok(Self { berths, ..self })
    }
}

/// Starts the coordinator, the agent and its workers.
///
/// # Errors
/// See [`LaunchError`].
pub fn launch(config: LaunchConfig) -> BoxFuture<'static, Result<Launched, LaunchError>> {
    Box::pin(begin(config))
}

async fn begin(config: LaunchConfig) -> Result<Launched, LaunchError> {
    let mirror = match &config.checkpoints {
        Some(checkpoints) => checkpoints.begin().await?,
        None => None,
    };
    let random = |error: getrandom::Error| LaunchError::System(error.to_string());
    let mut job = [0; 16];
    getrandom::fill(&mut job).map_err(random)?;
    let authority = Arc::new(Authority::new(JobId::new(job))?);
    let registrar = Arc::new(Registrar::new(Arc::clone(&authority)));
    let Staffing {
        workers, min, restarts, ..
    } = config.staffing;
    let (coordinator, job_events) = coordinator::start(coordinating(&config, &registrar)).await?;
    let keeping = match config.checkpoints {
        Some(Checkpointing { dir, saves, .. }) => {
            let depot = start_depot(dir, &registrar, coordinator.address(), None).await?;
            Some(Keeping::start(depot, mirror.map(|mirror| (mirror, saves.keep)), &coordinator).await)
        }
        None => None,
    };
    let agent = AgentConfig {
        credentials: authority.issue(Role::Agent, getrandom::u64().map_err(random)?)?.into(),
        coordinator: coordinator.address().into(),
        listen: SocketAddr::new(coordinator.address().ip(), 0),
        advertise: None,
        host: agent::host_name(),
        output: config.output,
        program: config.program,
        arguments: config.arguments,
        environment: config.environment,
        berths: config.berths,
        checkpoint_dir: None,
        workers,
        restarts,
    };
    let (agent, agent_events) = agent::start(agent).await?;
    Ok(Launched {
        coordinator,
        agent,
        job_events,
        agent_events,
        last_end: LastEnd::Ended("it never started".to_owned()),
        prospects: Prospects {
            min,
            left: workers,
            waiting: None,
        },
        registrar,
        offered: None,
        keeping,
    })
}

fn coordinating(config: &LaunchConfig, registrar: &Arc<Registrar>) -> CoordinatorConfig {
    let Staffing {
        workers,
        min,
        max,
        balance,
        ..
    } = config.staffing;
    CoordinatorConfig {
        registrar: Arc::clone(registrar),
        listen: config.listen,
        incarnation: Incarnation::new(1),
        past: Past::None,
        succession: Succession::Resume,
        records: None,
        min,
        expected: workers,
        max,
        balance,
        saves: config.checkpoints.as_ref().map(|checkpoints| checkpoints.saves),
    }
}

impl Launched {
    /// The next event. None when the coordinator has ended, so that nothing can happen any more.
    pub async fn next_event(&mut self) -> Option<Event> {
        let event = tokio::select! {
            biased;
            event = self.job_events.recv() => Event::Job(event?),
            Some(event) = self.agent_events.recv() => Event::Agent(event),
        };
        self.prospects.note(&event);
        if let (Event::Job(event), Some(keeping)) = (&event, &self.keeping) {
            keeping.note(event);
        }
        if let Event::Job(JobEvent::Generation(
            GenerationEvent::Forming { members, .. } | GenerationEvent::Switched { members, .. },
        )) = &event
        {
            self.agent.rank(members);
        }
        if let Event::Agent(AgentEvent::Ended { worker, how }) = &event {
            self.last_end = LastEnd::Ended(format!("{worker}, {how}"));
        }
        if let Event::Agent(AgentEvent::NotStarted { reason }) = &event {
            self.last_end = LastEnd::NotStarted(reason.clone());
        }
        Some(event)
    }

    /// The process of a worker, if it runs here.
    #[must_use]
    pub fn pid(&self, worker: WorkerId) -> Option<u32> {
        self.agent.pid(worker)
    }

    /// Lets another task steer the job: drain, scale, stop.
    #[must_use]
    pub fn steering(&self) -> Steering {
        self.coordinator.steering()
    }

    /// Lets operators of this user find the job: writes a join file for them into `place`, such as
    /// [`crate::hosts::default_place`]. It is removed with this.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn operator_join_file(&mut self, place: &PrivateFolder) -> Result<&Path, PlaceError> {
        let offered = offer(place, &self.registrar, vec![self.coordinator.address()])?;
        Ok(self.offered.insert(offered).path())
    }

    /// The coordinator.
    #[must_use]
    pub const fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Follows the job to its end, shows every event to `observe`, and ends all processes.
    ///
    /// # Errors
    /// When the job fails, or no worker is left.
    pub async fn finish(mut self, mut observe: impl FnMut(&Self, &Event)) -> Result<Summary, LaunchError> {
        let outcome = loop {
            let Some(event) = self.next_event().await else {
                break Err(LaunchError::NoCoordinator);
            };
            observe(&self, &event);
            match event {
                Event::Job(JobEvent::Done(summary)) => break Ok(summary),
                Event::Job(JobEvent::Failed { reason }) => break Err(LaunchError::Failed(reason)),
                Event::Job(_) | Event::Agent(_) => {}
            }
            if let Some(error) = self.prospects.hopeless(&self.last_end) {
                break Err(error);
            }
        };
        if outcome.is_err() {
            // Workers that still wait for others are told not to.
            self.coordinator.steering().request_stop();
        }
        self.agent.end().await;
        if let Some(keeping) = self.keeping {
            keeping.end().await;
        }
        self.coordinator.end().await;
        outcome
    }
}
