//! One run of a job in worker processes while an adversary watches every event and may kill, stop and wake workers.

mod hands;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use sardana::launch::{Event, LaunchConfig, LaunchError, OperatorRequest, launch};
use sardana::{GenerationEvent, JobEvent, Summary, WorkerId};
use tempfile::TempDir;

pub use hands::Hands;
use hands::Record;

use crate::gate::Place;
use crate::setup::Setup;

/// A run takes well under ten seconds; one that takes this long hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// How long a process that was sent SIGKILL may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// What is run.
#[derive(Debug)]
pub struct Trial {
    /// The job.
    pub setup: Setup,
    program: PathBuf,
    folder: TempDir,
    faults: Vec<String>,
    apart: bool,
    /// Whether each armed fault must fire.
    must_fire: bool,
    /// What a person does to see a failure again.
    replay: String,
}

/// Something that happened, or was done.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// An event of the product.
    Event(Event),
    /// A signal that the adversary sent.
    Signal(WorkerId, Signal),
    /// What the adversary asked for, in the place of an operator.
    Request(OperatorRequest),
}

/// How a trial ended.
#[derive(Debug)]
pub struct Ended {
    /// What the launcher said.
    pub outcome: Result<Summary, LaunchError>,
    /// What happened, and when since the launch.
    pub told: Vec<(Duration, Told)>,
    /// Every worker process that was started.
    pub processes: BTreeMap<WorkerId, u32>,
    /// How many SIGKILLs the adversary sent.
    pub kills: u32,
    /// How many SIGSTOPs.
    pub stops: u32,
}

impl Trial {
    /// A trial of `setup` with `program` as worker.
    ///
    /// # Errors
    /// When there is no temporary folder.
    pub fn new(program: &str, setup: Setup) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("sardana-chaos-").tempdir()?;
        std::fs::create_dir(folder.path().join("marks"))?;
        Ok(Self {
            setup,
            program: program.into(),
            folder,
            faults: Vec::new(),
            apart: false,
            must_fire: true,
            replay: String::new(),
        })
    }

    /// Arms fault points, each as `NAME@STEP`: for each of them one process dies.
    #[must_use]
    pub fn faults<'a>(mut self, faults: impl IntoIterator<Item = &'a str>) -> Self {
        self.faults.extend(faults.into_iter().map(str::to_owned));
        self
    }

    /// No worker sees the files of a checkpoint actor, as between containers: all that it reads passes the network.
    pub fn keep_apart(&mut self) {
        self.apart = true;
    }

    /// A fault that does not fire is no failure: a random one may never be reached.
    #[must_use]
    pub fn may_not_fire(mut self) -> Self {
        self.must_fire = false;
        self
    }

    /// Says with a failure how to see it again.
    #[must_use]
    pub fn replay(mut self, replay: String) -> Self {
        self.replay = replay;
        self
    }

    /// The faults that were armed.
    #[must_use]
    pub fn armed(&self) -> &[String] {
        &self.faults
    }

    /// The faults that a process should have died of, and none has.
    #[must_use]
    pub fn not_fired(&self) -> Vec<&str> {
        let armed = self.faults.iter().enumerate();
        let unmet = armed.filter(|(index, fault)| self.must_fire && !self.has_fired(*index, fault));
        unmet.map(|(_, fault)| fault.as_str()).collect()
    }

    /// How many faults a process has died of.
    #[must_use]
    pub fn fired(&self) -> usize {
        let armed = self.faults.iter().enumerate();
        armed.filter(|(index, fault)| self.has_fired(*index, fault)).count()
    }

    fn has_fired(&self, index: usize, fault: &str) -> bool {
        let name = fault.split_once('@').map_or(fault, |(name, _)| name);
        self.folder().join("marks").join(format!("{index}-{name}")).exists()
    }

    /// Where the journal, the marks and the gates are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What worker processes are told through their environment.
    #[must_use]
    pub fn environment(&self) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        let mut environment = self.setup.environment(self.folder());
        if !self.faults.is_empty() {
            environment.push(("SARDANA_FAULT".into(), self.faults.join(",").into()));
            environment.push(("SARDANA_FAULT_DIR".into(), self.folder().join("marks").into()));
        }
        if self.apart {
            environment.push(("SARDANA_APART".into(), "1".into()));
        }
        environment
    }

    /// How the product is asked to run it.
    ///
    /// # Errors
    /// When the setup makes no job.
    pub fn config(&self) -> Result<LaunchConfig> {
        let job = self.setup.job()?;
        let mut config = LaunchConfig::program(self.program.clone(), Vec::new(), *job.staffing());
        config.environment.extend(self.environment());
        Ok(config)
    }

    /// Runs the job to its end. `adversary` sees each event as it happens. The gates named in `closed` are closed until it opens them.
    ///
    /// # Errors
    /// When the job cannot be launched, hangs, or leaves a process behind; with all that happened.
    pub async fn run(&self, closed: &[Place], mut adversary: impl FnMut(&mut Hands<'_>, &Event)) -> Result<Ended> {
        let mut record = Record::default();
        let mut gates = Vec::new();
        for &place in closed {
            gates.push((place, place.close(self.folder())?));
        }
        let began = Instant::now();
        let launched = launch(self.config()?).await?;
        let finishing = launched.finish(|launched, event| {
            record.note(event);
            let mut hands = Hands {
                launched,
                record: &mut record,
                gates: &mut gates,
            };
            hands.record.told.push((began.elapsed(), Told::Event(event.clone())));
            adversary(&mut hands, event);
        });
        let Ok(outcome) = tokio::time::timeout(LIMIT, finishing).await else {
            bail!("the job hangs\n{}", self.story(&record.told));
        };
        let Record {
            processes,
            told,
            kills,
            stops,
            ..
        } = record;
        let ended = Ended {
            outcome,
            told,
            processes,
            kills,
            stops,
        };
        self.explain(&ended, all_gone(ended.processes.values().copied()).await)?;
        Ok(ended)
    }

    /// Adds what happened to an error.
    ///
    /// # Errors
    /// That of `result`.
    pub fn explain<T>(&self, ended: &Ended, result: Result<T>) -> Result<T> {
        result.with_context(|| format!("after this:\n{}", self.story(&ended.told)))
    }

    /// Demands what a trial is about.
    ///
    /// # Errors
    /// When it does not hold: says `what` should, and what happened.
    pub fn demand(&self, ended: &Ended, holds: bool, what: &str) -> Result<()> {
        let demanded = if holds { Ok(()) } else { Err(anyhow!("expected: {what}")) };
        self.explain(ended, demanded)
    }

    /// The counts of a job that ended early are known, and agree with each other.
    ///
    /// # Errors
    /// When they do not.
    pub fn counts_agree(&self, summary: &Summary) -> Result<()> {
        let whole = u64::from(self.setup.shards) * summary.step.get() + summary.recomputed;
        ensure!(
            summary.unknown == 0 && summary.computed == whole,
            "the counts do not agree: {summary:?}"
        );
        Ok(())
    }

    fn story(&self, told: &[(Duration, Told)]) -> String {
        let mut story = format!("{:?}\nfaults: {:?}\n{}\n", self.setup, self.faults, self.replay);
        for (at, told) in told {
            story += &format!("{:>9.4} s  {told}\n", at.as_secs_f64());
        }
        story
    }
}

/// The step up to which an event reports, if it does.
#[must_use]
pub fn reported(event: &Event) -> Option<u64> {
    match event {
        Event::Job(JobEvent::Steps(reports)) => reports.last().map(|report| report.step.get()),
        Event::Job(_) | Event::Agent(_) => None,
    }
}

/// The members of a generation that has just begun, in rank order, if the event is that.
#[must_use]
pub fn members_of(event: &JobEvent) -> Option<&[WorkerId]> {
    if let JobEvent::Generation(GenerationEvent::Forming { members, .. } | GenerationEvent::Switched { members, .. }) = event
    {
        return Some(members);
    }
    None
}

/// Sends a signal to a process.
///
/// # Errors
/// When there is no such process.
pub fn send(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("no process has the number 0")?;
    Ok(kill_process(pid, signal)?)
}

/// Waits until these processes have ended. The kernel tells, through a descriptor of the process.
///
/// # Errors
/// Names a process that has not ended within a bound.
pub async fn all_gone(pids: impl IntoIterator<Item = u32>) -> Result<()> {
    for pid in pids {
        let raw = Pid::from_raw(i32::try_from(pid)?).context("no process has the number 0")?;
        let process = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => continue,
            Err(error) => return Err(error).with_context(|| format!("process {pid} cannot be watched")),
        };
        let ended = tokio::task::spawn_blocking(move || {
            let limit = Timespec::try_from(GONE_WITHIN)?;
            let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit))?;
            anyhow::Ok(ended > 0)
        });
        ensure!(
            ended.await??,
            "process {pid} was left behind: it has not ended within {GONE_WITHIN:?}"
        );
    }
    Ok(())
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(Event::Job(JobEvent::Steps(reports))) => {
                let step = |report: Option<&sardana::StepReport>| report.map_or(0, |report| report.step.get());
                write!(f, "steps {}..={}", step(reports.first()), step(reports.last()))
            }
            Self::Event(Event::Job(event)) => write!(f, "{event:?}"),
            Self::Event(Event::Agent(event)) => write!(f, "{event:?}"),
            Self::Signal(worker, signal) => write!(f, "{signal:?} for {worker}"),
            Self::Request(request) => write!(f, "{request:?}"),
        }
    }
}
