//! Runs a job of the examples in worker processes, kills members and whole runs, and compares the end with that of the plain loop.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use sardana::job::{JobBuilder, Staffing};
use sardana::launch::{Event, LaunchConfig, LaunchError, Launched, launch};
use sardana::model::{ModelError, Trainable};
use sardana::{AgentEvent, CheckpointEvent, Checkpointing, Every, GenerationEvent, JobEvent, WorkerEvent};
use sardana::{JobSpec, Step, StepReport, Summary, WorkerId, reference};

/// A checkpoint every four steps.
const EVERY: Every = Every::Steps(NonZeroU64::new(4).expect("4 is not 0"));

/// A job, its program, and how far its checkpoints are.
pub(super) struct Job<'a> {
    program: &'static str,
    arguments: Vec<OsString>,
    checkpoints: &'a Path,
    spec: JobSpec,
    /// The checkpoint after which the last run was lost.
    saved: Option<Step>,
}

/// One run of a job: how it begins, and what happens to it.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) workers: u32,
    /// What each worker has for products of matrices.
    pub(super) threads: u32,
    /// A member is killed so many steps after the first step of this run.
    pub(super) kills: &'a [u64],
}

/// What becomes of a run.
enum End {
    Done(Box<Summary>),
    Failed(String),
    /// All members were killed once a checkpoint of this step was committed.
    Lost(Step),
}

/// What is seen of a run.
struct Watch<'a> {
    run: Run<'a>,
    /// All members are killed once a checkpoint of this step or a later one is committed.
    lose: Option<Step>,
    members: Vec<WorkerId>,
    /// The first step that it reported.
    first: Option<Step>,
    killed: Vec<WorkerId>,
    /// Of which the coordinator says that they are gone.
    gone: BTreeSet<WorkerId>,
    /// The checkpoint that it began with.
    resumed: Option<Step>,
}

impl<'a> Job<'a> {
    /// A job as `program` builds it from these arguments.
    pub(super) fn new(program: &'static str, arguments: &[OsString], checkpoints: &'a Path, job: JobBuilder) -> Self {
        Self {
            program,
            arguments: arguments.to_vec(),
            checkpoints,
            spec: job.build().expect("the job is valid").spec().clone(),
            saved: None,
        }
    }

    /// A run that loses its members and, once there is a checkpoint of step `least` or a later one, all processes.
    pub(super) fn is_lost(&mut self, run: Run<'_>, least: u64) {
        if self.is_over() {
            return;
        }
        match self.run(run, Some(Step::new(least))) {
            End::Lost(step) => self.saved = Some(step),
            End::Done(_) => panic!("it was done before a checkpoint was committed"),
            End::Failed(reason) => panic!("{reason}"),
        }
    }

    /// Whether it was lost at its end and not in the middle: on a busy host all steps of a small model may be over before a checkpoint is committed. Then no run can
    /// lose anything any more; how it ends is seen all the same.
    fn is_over(&self) -> bool {
        let is_over = self.saved == Some(self.spec.steps);
        if is_over {
            println!(
                "{} was lost at its end, {}: the host is too busy to lose it in the middle",
                self.program, self.spec.steps
            );
        }
        is_over
    }

    /// A run that fails, and why.
    pub(super) fn fails(&self, run: Run<'_>) -> String {
        match self.run(run, None) {
            End::Failed(reason) => reason,
            End::Done(_) | End::Lost(_) => panic!("it was to fail"),
        }
    }

    /// A run that loses its members and ends in the state in which the plain loop ends.
    pub(super) fn ends_like_the_plain_loop<M: Trainable>(
        &self,
        run: Run<'_>,
        build: impl FnOnce(&JobSpec) -> Result<M, ModelError>,
    ) {
        let kills = if self.is_over() { &[] } else { run.kills };
        let summary = match self.run(Run { kills, ..run }, None) {
            End::Done(summary) => summary,
            End::Failed(reason) => panic!("{reason}"),
            End::Lost(step) => panic!("it was lost at {step}"),
        };
        let mut model = build(&self.spec).expect("the model is built");
        let expected = reference::train(&self.spec, &mut model).expect("the plain loop ends");
        assert_eq!((summary.step, summary.hash), (self.spec.steps, expected.hash), "BITS-1");
        assert_eq!(summary.results, expected.results);
    }

    fn run(&self, run: Run<'_>, lose: Option<Step>) -> End {
        let mut watch = Watch {
            run,
            lose,
            members: Vec::new(),
            first: None,
            killed: Vec::new(),
            gone: BTreeSet::new(),
            resumed: None,
        };
        let config = self.config(run);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let end = runtime.expect("a runtime").block_on(async {
            let mut launched = launch(config).await.expect("it is launched");
            while let Some(event) = launched.next_event().await {
                if let Some(end) = watch.event(&launched, event) {
                    return end;
                }
            }
            End::Failed(LaunchError::NoCoordinator.to_string())
        });
        if !matches!(end, End::Failed(_)) {
            watch.assert_that_kills_were_seen();
            // What is committed while the processes of the run before end is newer.
            assert!(watch.resumed >= self.saved, "{:?} instead of {:?}", watch.resumed, self.saved);
        }
        end
    }

    fn config(&self, run: Run<'_>) -> LaunchConfig {
        let staffing = Staffing {
            workers: run.workers,
            min: 1,
            max: 8,
            restarts: 20,
            shard_capacity: None,
            balance: Default::default(),
        };
        LaunchConfig {
            environment: vec![("RAYON_NUM_THREADS".into(), run.threads.to_string().into())],
            checkpoints: Some(Checkpointing::new(self.checkpoints, EVERY)),
            ..LaunchConfig::program(self.program.into(), self.arguments.clone(), staffing)
        }
    }
}

impl Watch<'_> {
    /// Takes note of an event and kills what is to be killed. The end, if this is it.
    fn event(&mut self, launched: &Launched, event: Event) -> Option<End> {
        match event {
            Event::Job(JobEvent::Generation(
                GenerationEvent::Forming { members, .. } | GenerationEvent::Switched { members, .. },
            )) => self.members = members,
            Event::Job(JobEvent::Steps(reports)) => self.steps(launched, &reports),
            Event::Job(JobEvent::Worker(WorkerEvent::Lost { worker, .. })) => {
                self.gone.insert(worker);
            }
            Event::Job(JobEvent::Checkpoint(CheckpointEvent::Resumes { key, .. })) => {
                self.resumed.get_or_insert(key.step);
            }
            Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. })) if self.is_to_be_lost(key.step) => {
                let killed = self.members.iter().filter(|worker| kill(launched, **worker)).count();
                assert!(killed > 0, "a member was there to be killed");
                return Some(End::Lost(key.step));
            }
            Event::Job(JobEvent::Done(summary)) => return Some(End::Done(Box::new(summary))),
            Event::Job(JobEvent::Failed { reason }) => return Some(End::Failed(reason)),
            Event::Agent(AgentEvent::Exhausted) => return Some(End::Failed("no worker is started any more".to_owned())),
            Event::Job(_) | Event::Agent(_) => {}
        }
        None
    }

    /// Kills a member if it is time. If none is there, it is killed at a later step.
    fn steps(&mut self, launched: &Launched, reports: &[StepReport]) {
        let (Some(first), Some(last)) = (reports.first(), reports.last()) else {
            return;
        };
        let first = self.first.get_or_insert(first.step).get();
        let Some(after) = self.run.kills.get(self.killed.len()) else {
            return;
        };
        let living: Vec<WorkerId> = self
            .members
            .iter()
            .copied()
            .filter(|member| !self.killed.contains(member))
            .collect();
        if first + after <= last.step.get() && !living.is_empty() {
            let worker = living[*after as usize % living.len()];
            if kill(launched, worker) {
                self.killed.push(worker);
            }
        }
    }

    /// Whether all is lost now that a checkpoint of this step is committed: not before each member that is to be killed is gone.
    fn is_to_be_lost(&self, step: Step) -> bool {
        self.killed.len() == self.run.kills.len()
            && self.killed.iter().all(|worker| self.gone.contains(worker))
            && self.lose.is_some_and(|least| step >= least)
    }

    fn assert_that_kills_were_seen(&self) {
        assert_eq!(self.killed.len(), self.run.kills.len(), "each kill had its step");
        for worker in &self.killed {
            assert!(self.gone.contains(worker), "{worker} was killed, and was not missed");
        }
    }
}

/// Kills a worker: whether its process was there.
fn kill(launched: &Launched, worker: WorkerId) -> bool {
    let pid = launched.pid(worker).and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}
