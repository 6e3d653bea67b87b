//! A job whose coordinator and workers are each on a host of their own, with an agent on each worker's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use sardana::hosts::agent::AgentJoin;
use sardana::hosts::coordinate::Succession;
use sardana::hosts::{CoordinateConfig, InviteConfig, Role, agent, coordinate, enrol, invite};
use sardana::launch::{Event, LaunchError, Output};
use sardana::{AgentEvent, JobEvent, ROUND_TRIP_VARIABLE, Summary, WorkerId};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Ended, Told, Trial, all_gone, members_of, reported};
use sardana_chaos_tests::verdict::Verdict;
use sardana_protocol::membership::Saves;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use crate::network::{Host, Network, address};
use crate::{WORKER, trial};

/// The coordinator's host.
pub(crate) const COORDINATOR: Host = 0;

/// What has not happened by then never will.
const LIMIT: Duration = Duration::from_secs(60);

/// What the hosts say.
enum Said {
    Job(JobEvent),
    Agent(Host, AgentEvent),
    Over(Result<Summary>),
}

/// The job and its hosts. Worker hosts are numbered from 1.
pub(crate) struct Site {
    pub(crate) trial: Trial,
    pub(crate) network: Network,
    /// Whether workers are told that they are far from each other.
    pub(crate) far: bool,
    /// When checkpoints are taken, if they are: then each worker's host keeps them.
    saves: Option<Saves>,
    /// What becomes a worker, and its arguments.
    program: (PathBuf, Vec<OsString>),
    /// Counts the lives of the job.
    lives: u32,
    began: Instant,
    say: mpsc::UnboundedSender<Said>,
    said: mpsc::UnboundedReceiver<Said>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Dropped when the hosts are to end. Told, they end at once, as hosts whose power fails.
    ends: Vec<oneshot::Sender<()>>,
    /// Members of the newest generation in rank order.
    pub(crate) members: Vec<WorkerId>,
    /// The worker processes that run, and where.
    pub(crate) running: Vec<(WorkerId, Host)>,
    pub(crate) step: u64,
    /// All that has happened.
    pub(crate) ended: Ended,
    over: Option<Result<Summary>>,
}

impl Site {
    /// A host for each worker of a job, and one for its coordinator. None if there can be no such hosts here; then it says why.
    pub(crate) fn new(setup: Setup) -> Result<Option<Self>> {
        Self::with(setup, None)
    }

    /// The same, with checkpoints on the workers' hosts.
    pub(crate) fn with(setup: Setup, saves: Option<Saves>) -> Result<Option<Self>> {
        let workers = Host::try_from(setup.workers)?;
        let network = match Network::new(workers + 1) {
            Ok(network) => network,
            Err(reason) => {
                println!("skipped: {reason}");
                return Ok(None);
            }
        };
        Self::assembled(setup, network, saves).map(Some)
    }

    /// The same on the hosts of `network`.
    pub(crate) fn over(setup: Setup, network: Network) -> Result<Self> {
        Self::assembled(setup, network, None)
    }

    /// The same, whose workers run another program than the trial's.
    pub(crate) fn running(self, program: &str, arguments: Vec<OsString>) -> Self {
        let program = (program.into(), arguments);
        Self { program, ..self }
    }

    fn assembled(setup: Setup, network: Network, saves: Option<Saves>) -> Result<Self> {
        let trial = trial(setup)?;
        let (say, said) = mpsc::unbounded_channel();
        Ok(Self {
            trial,
            network,
            far: false,
            saves,
            program: (WORKER.into(), Vec::new()),
            lives: 0,
            began: Instant::now(),
            say,
            said,
            threads: Vec::new(),
            ends: Vec::new(),
            members: Vec::new(),
            running: Vec::new(),
            step: 0,
            ended: Ended {
                outcome: Err(LaunchError::NoCoordinator),
                told: Vec::new(),
                processes: BTreeMap::new(),
                kills: 0,
                stops: 0,
            },
            over: None,
        })
    }

    /// Starts the job.
    pub(crate) async fn start(&mut self) -> Result<()> {
        self.coordinate().await?;
        for host in self.network.all().filter(|&host| host != COORDINATOR) {
            self.join(host, None)?;
        }
        Ok(())
    }

    /// Starts the coordinator alone.
    pub(crate) async fn coordinate(&mut self) -> Result<()> {
        self.lives += 1;
        self.coordinator(self.state_dir()).await
    }

    /// Starts an agent on `host`, whose workers others reach at `advertise`, if that is another address than the host's own.
    pub(crate) fn join(&mut self, host: Host, advertise: Option<IpAddr>) -> Result<()> {
        let join = self.trial.folder().join(format!("{host}-{}.join", self.lives));
        invite(&InviteConfig {
            state_dir: self.state_dir(),
            role: Role::Agent,
            expires: Duration::from_secs(600),
            uses: 1,
            out: join.clone(),
        })?;
        self.agent(host, join, advertise)
    }

    fn state_dir(&self) -> PathBuf {
        self.trial.folder().join(format!("state-{}", self.lives))
    }

    async fn coordinator(&mut self, state_dir: PathBuf) -> Result<()> {
        let setup = &self.trial.setup;
        let config = CoordinateConfig {
            saves: self.saves,
            checkpoint_dir: None,
            state_dir,
            listen: SocketAddr::from((address(COORDINATOR), 0)),
            advertise: None,
            standbys: Vec::new(),
            min: setup.min,
            max: setup.max,
            expected: setup.workers,
            balance: setup.balance,
            mirror: None,
            succession: Succession::Resume,
        };
        let (end, ends) = oneshot::channel();
        let (listens, listening) = oneshot::channel();
        self.ends.push(end);
        let say = self.say.clone();
        let work = move || {
            runtime()?.block_on(async {
                let hosting = coordinate(config).await?;
                let _ = listens.send(());
                let finishing = hosting.finish(|_, event| drop(say.send(Said::Job(event.clone()))));
                tokio::select! {
                    outcome = finishing => drop(say.send(Said::Over(outcome.map_err(anyhow::Error::from)))),
                    _ = ends => {}
                }
                Ok(())
            })
        };
        let thread = self.network.on(COORDINATOR, work)?;
        if listening.await.is_err() {
            bail!("the coordinator did not start: {:?}", joined(thread).await);
        }
        self.threads.push(thread);
        Ok(())
    }

    fn agent(&mut self, host: Host, join: PathBuf, advertise: Option<IpAddr>) -> Result<()> {
        let (mut environment, say) = (self.trial.environment(), self.say.clone());
        if self.far {
            environment.push((ROUND_TRIP_VARIABLE.into(), "100".into()));
        }
        let (program, arguments) = self.program.clone();
        let keeps = self.saves.map(|_| self.trial.folder().join(format!("kept-{host}")));
        let (end, mut ends) = oneshot::channel();
        self.ends.push(end);
        let work = move || {
            runtime()?.block_on(async {
                let mut agent = agent(AgentJoin {
                    // All of them are one machine.
                    host: Some(format!("host-{host}").parse()?),
                    checkpoint_dir: keeps,
                    enrolled: enrol(&join, Role::Agent).await?,
                    listen: None,
                    advertise,
                    workers: 1,
                    restarts: 8,
                    output: Output::Inherit,
                    program,
                    arguments,
                    environment,
                    device: Default::default(),
                })
                .await?;
                loop {
                    tokio::select! {
                        Some(event) = agent.next_event() => drop(say.send(Said::Agent(host, event))),
                        end = &mut ends => match end {
                            Ok(()) => return Ok(()),
                            Err(_) => break,
                        },
                        else => break,
                    }
                }
                agent.end().await;
                Ok(())
            })
        };
        self.threads.push(self.network.on(host, work)?);
        Ok(())
    }

    /// The host of a running worker.
    pub(crate) fn host(&self, worker: WorkerId) -> Option<Host> {
        self.running
            .iter()
            .find(|(running, _)| *running == worker)
            .map(|(_, host)| *host)
    }

    /// Waits until `holds`, which is asked after each event.
    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Result<()> {
        let waiting = async {
            while !holds(self) {
                ensure!(self.over.is_none(), "the job is over: {:?}", self.over);
                let said = self.said.recv().await.context("all hosts have ended")?;
                self.note(said);
            }
            Ok(())
        };
        let found = match timeout(LIMIT, waiting).await {
            Ok(found) => found.with_context(|| format!("waited until {what}")),
            Err(_) => Err(anyhow!("waited for {LIMIT:?} until {what}")),
        };
        self.trial.explain(&self.ended, found)
    }

    /// Lets so much time pass.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let over = sleep(time);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return,
                Some(said) = self.said.recv() => self.note(said),
            }
        }
    }

    fn note(&mut self, said: Said) {
        let event = match said {
            Said::Over(outcome) => return self.over = Some(outcome),
            Said::Job(event) => {
                if let Some(members) = members_of(&event) {
                    self.members = members.to_vec();
                }
                Event::Job(event)
            }
            Said::Agent(host, event) => {
                if let AgentEvent::Started { worker, pid } = event {
                    self.running.push((worker, host));
                    self.ended.processes.insert(worker, pid);
                }
                if let AgentEvent::Ended { worker, .. } = event {
                    self.running.retain(|(running, _)| *running != worker);
                }
                Event::Agent(event)
            }
        };
        self.step = self.step.max(reported(&event).unwrap_or(0));
        self.ended.told.push((self.began.elapsed(), Told::Event(event)));
    }

    /// What has happened to the job, but for what is among the first `from` of all that has.
    pub(crate) fn job_events_since(&self, from: usize) -> impl Iterator<Item = &JobEvent> {
        self.ended.told[from..].iter().filter_map(|(_, told)| match told {
            Told::Event(Event::Job(event)) => Some(event),
            Told::Event(Event::Agent(_)) | Told::Signal(..) | Told::Request(_) => None,
        })
    }

    /// Everything that runs on any host is killed. What it has said by then counts no more.
    pub(crate) async fn kill_all(&mut self) -> Result<()> {
        for end in std::mem::take(&mut self.ends) {
            // It may have ended by itself.
            let _ = end.send(());
        }
        for thread in std::mem::take(&mut self.threads) {
            joined(thread).await?;
        }
        all_gone(self.ended.processes.values().copied()).await?;
        while let Ok(said) = self.said.try_recv() {
            self.note(said);
        }
        ensure!(self.over.is_none(), "the job is over: {:?}", self.over);
        self.members.clear();
        self.running.clear();
        self.step = 0;
        Ok(())
    }

    /// Waits until the job has ended. Returns how, unjudged.
    pub(crate) async fn outcome(mut self) -> Result<(Summary, Self)> {
        let over = async {
            loop {
                if let Some(outcome) = self.over.take() {
                    return Ok(outcome);
                }
                let said = self.said.recv().await.context("all hosts have ended")?;
                self.note(said);
            }
        };
        let over = timeout(LIMIT, over)
            .await
            .unwrap_or_else(|_| Err(anyhow!("the job does not end")));
        let outcome = self.trial.explain(&self.ended, over)?;
        self.ends.clear();
        for thread in std::mem::take(&mut self.threads) {
            joined(thread).await?;
        }
        let gone = all_gone(self.ended.processes.values().copied()).await;
        self.trial.explain(&self.ended, gone)?;
        let summary = self.trial.explain(&self.ended, outcome)?;
        Ok((summary, self))
    }

    /// Waits until the job has ended, and judges it.
    pub(crate) async fn end(self) -> Result<(Verdict, Self)> {
        let (summary, mut site) = self.outcome().await?;
        site.ended.outcome = Ok(summary);
        Ok((site.trial.judge(&site.ended)?, site))
    }
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn joined(thread: JoinHandle<Result<()>>) -> Result<()> {
    let joined = tokio::task::spawn_blocking(|| thread.join()).await?;
    joined.unwrap_or_else(|_| bail!("a host's thread panicked"))
}
