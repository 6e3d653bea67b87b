//! An agent on another host than the coordinator's, that came with a join file.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use futures_util::future::BoxFuture;
use sardana_actors::agent::{self, Agent, AgentConfig, AgentError, AgentEvent, Output};
use sardana_net::enrol::Enrolled;
use sardana_net::trust::Role;
use sardana_protocol::words::WorkerId;
use tokio::sync::mpsc;

use super::enrolling::{Arrival, ArrivalError, arrive};
use super::name::HostName;
use crate::device::{Dealt, DeviceChoice, NoGpu};
use crate::environment::of_workers;
use crate::notices::NoticesConfig;

/// What an agent is told.
#[derive(Debug)]
pub struct AgentJoin {
    /// What a join file for an agent was traded for.
    pub enrolled: Enrolled,
    /// At which of this host's addresses workers listen for each other; by default the one from which the coordinator is reached.
    pub listen: Option<IpAddr>,
    /// At which address others reach them, if that is another one: behind NAT, say. Ports stay the same.
    pub advertise: Option<IpAddr>,
    /// What this host is called, if not what the system calls it.
    pub host: Option<HostName>,
    /// Where to keep checkpoints of the job on this host, if it does.
    pub checkpoint_dir: Option<PathBuf>,
    /// How many workers to keep running.
    pub workers: u32,
    /// How many times in all a worker that ended badly is replaced.
    pub restarts: u32,
    /// Where the output of workers goes.
    pub output: Output,
    /// The program that becomes a worker.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Additional environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What the workers compute on: this host's GPUs are dealt out to them, if they are to have any.
    pub device: DeviceChoice,
}

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentHostError {
    /// Its join file is of no use to it here.
    #[error(transparent)]
    Arrival(#[from] ArrivalError),
    /// Its workers are to compute on GPUs, and there are none.
    #[error(transparent)]
    NoGpu(#[from] NoGpu),
    /// It could not start.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// An agent that runs, and what happens to its workers. Dropping it ends them.
#[derive(Debug)]
pub struct AgentHost {
    agent: Agent,
    events: mpsc::UnboundedReceiver<AgentEvent>,
}

/// Starts an agent and its workers. The agent makes the workers' keys and has them certified by the coordinator.
///
/// # Errors
/// See [`AgentHostError`].
pub fn agent(join: AgentJoin) -> BoxFuture<'static, Result<AgentHost, AgentHostError>> {
    Box::pin(begin(join))
}

async fn begin(join: AgentJoin) -> Result<AgentHost, AgentHostError> {
    let Arrival {
        credentials,
        coordinator,
        listen,
    } = arrive(join.enrolled, Role::Agent, join.listen)?;
    let dealt = Dealt::on_this_host(join.device, join.workers)?;
    dealt.log();
    let mut environment = of_workers(join.workers);
    environment.extend(join.environment);
    let config = AgentConfig {
        credentials,
        coordinator,
        listen,
        advertise: join.advertise,
        host: join.host.map_or_else(agent::host_name, String::from),
        output: join.output,
        program: join.program,
        arguments: join.arguments,
        environment,
        berths: dealt.into_berths(),
        checkpoint_dir: join.checkpoint_dir,
        workers: join.workers,
        restarts: join.restarts,
    };
    let (agent, events) = agent::start(config).await?;
    Ok(AgentHost { agent, events })
}

impl AgentHost {
    /// The next event. None when the agent has ended.
    pub async fn next_event(&mut self) -> Option<AgentEvent> {
        self.events.recv().await
    }

    /// The process of a worker, if it runs.
    #[must_use]
    pub fn pid(&self, worker: WorkerId) -> Option<u32> {
        self.agent.pid(worker)
    }

    /// The agent.
    #[must_use]
    pub const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Heeds the notices of the machine's cloud from now on; see [`Agent::watch`].
    pub fn watch(&mut self, config: NoticesConfig) {
        self.agent.watch(config);
    }

    /// Lets the workers leave at a boundary, and the job go on without this host; see [`Agent::leave`].
    pub async fn leave(self, reason: &str) {
        self.agent.leave(reason).await;
    }

    /// Lets the workers end by themselves for a while, then ends them.
    pub async fn end(self) {
        self.agent.end().await;
    }
}
