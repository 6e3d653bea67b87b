//! Says what happens to the job, one line per event.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sardana::launch::Event;
use sardana::operator::count;
use sardana::{
    AgentEvent, CheckpointEvent, Generation, GenerationEvent, Job, JobEvent, Rate, Step, StepReport, Summary, WorkerEvent,
    WorkerId,
};

use crate::adversary::Deed;
use crate::screen::{Progress, Screen};

/// Shows one run of a job.
#[derive(Debug)]
pub(crate) struct Guide<'a> {
    screen: &'a Screen,
    steps_per_epoch: u64,
    shards: u64,
    started: Instant,
    samples: Rate,
    generation: Option<Generation>,
    world_size: usize,
    /// Shard gradients computed again since the last line about it.
    again: u64,
    kills: BTreeMap<WorkerId, Instant>,
    /// The newest checkpoint.
    saved: Option<Step>,
    /// The next generation begins with a checkpoint.
    resumes: bool,
    /// A worker joins.
    newcomers: bool,
}

impl<'a> Guide<'a> {
    pub(crate) fn new(job: &Job, screen: &'a Screen) -> Self {
        Self {
            screen,
            steps_per_epoch: job.spec().samples.div_ceil(job.spec().batch),
            shards: u64::from(job.spec().shards),
            started: Instant::now(),
            samples: Rate::default(),
            generation: None,
            world_size: 0,
            again: 0,
            kills: BTreeMap::new(),
            saved: None,
            resumes: false,
            newcomers: false,
        }
    }

    pub(crate) fn done(&mut self, deed: &Deed) {
        match deed {
            Deed::Kill { worker, whose, when, at } => {
                self.kills.insert(*worker, *at);
                self.event(&format!("SIGKILL for {whose} ({}), {when}", short(*worker)));
            }
            Deed::Drain { worker } => self.event(&format!("{} is drained", short(*worker))),
            Deed::Grow { by } => self.event(&format!("{} started", count(*by, "more worker"))),
        }
    }

    /// The newest checkpoint.
    pub(crate) fn saved(&self) -> Option<Step> {
        self.saved
    }

    /// Nothing is left of the job but its folder of checkpoints.
    pub(crate) fn lost(&self) {
        let newest = self.saved.map_or(0, Step::get);
        self.event(&format!(
            "all workers, the coordinator and the agent are gone at once; left is a folder, with a checkpoint of step {newest}"
        ));
    }

    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Job(event) => self.job(event),
            Event::Agent(event) => {
                if let AgentEvent::NotStarted { reason } = event {
                    self.event(&format!("a worker could not be started: {reason}"));
                }
            }
        }
    }

    fn job(&mut self, event: &JobEvent) {
        match event {
            JobEvent::Worker(event) => self.worker(event),
            JobEvent::Generation(event) => self.begun(event),
            JobEvent::Checkpoint(event) => self.checkpoint(event),
            JobEvent::Steps(reports) => self.steps(reports),
            JobEvent::Waiting { have, need } => self.event(&format!("waiting for {need}; here: {}", count(*have, "worker"))),
            JobEvent::StateLost { reached, from } => {
                self.event(&format!(
                    "all workers that had the state at {reached} are gone; again from {from}"
                ));
            }
            JobEvent::Failed { reason } => self.event(&format!("the job failed: {reason}")),
            // A snapshot that only becomes a checkpoint is no news.
            JobEvent::Snapshot { step, holders } if self.newcomers => {
                self.event(&format!(
                    "the state at {step} is copied, in shares, at {}; training goes on",
                    count(*holders, "worker")
                ));
            }
            // The coordinator ends with this process.
            JobEvent::Snapshot { .. }
            | JobEvent::Fenced { .. }
            | JobEvent::NotRecorded { .. }
            | JobEvent::RecordedAgain { .. }
            | JobEvent::Done(_) => {}
        }
    }

    fn worker(&mut self, event: &WorkerEvent) {
        match event {
            WorkerEvent::Joined { worker, step } => self.joined(*worker, *step),
            WorkerEvent::Lost {
                worker,
                rank,
                cause,
                stage,
            } => {
                let rank = rank.map_or_else(|| "no rank yet".to_owned(), |rank| format!("rank {}", rank.get()));
                let killed = self.kills.remove(worker);
                let after = killed.map_or_else(String::new, |at| format!(", {:.1} ms after its kill", ms(at)));
                self.event(&format!("{} ({rank}) is lost while {stage}: {cause}{after}", short(*worker)));
            }
            WorkerEvent::Leaving { worker, .. } => {
                self.event(&format!("{} is to leave at the next boundary", short(*worker)));
            }
            WorkerEvent::Left { worker, step } => {
                self.event(&format!("{} has left at {step}, with its work done", short(*worker)));
            }
            WorkerEvent::CaughtUp { worker, step } => {
                self.event(&format!(
                    "{} has copied the state and followed the sums up to {step}",
                    short(*worker)
                ));
            }
            WorkerEvent::JoinsAnew { worker, reason } => {
                self.event(&format!("{} begins its join anew: {reason}", short(*worker)));
            }
            WorkerEvent::CoolsDown { worker, wait } => {
                self.event(&format!(
                    "{} waits {} s: workers at its address fail",
                    short(*worker),
                    wait.as_secs()
                ));
            }
            WorkerEvent::Held { worker } => self.event(&format!("all wait for {}", short(*worker))),
        }
    }

    /// What happens to all members together.
    fn begun(&mut self, event: &GenerationEvent) {
        match event {
            GenerationEvent::Forming {
                generation,
                members,
                recomputed,
                fetching,
                step,
                ..
            } => {
                self.generation = Some(*generation);
                self.world_size = members.len();
                self.again += recomputed;
                if *fetching > 0 && !std::mem::take(&mut self.resumes) {
                    self.event(&format!(
                        "{} to fetch the state at {step} from the others",
                        count(*fetching, "worker")
                    ));
                }
            }
            GenerationEvent::Formed {
                generation,
                world_size,
                took,
            } => {
                let took = took.as_secs_f64() * 1e3;
                self.event(&format!(
                    "generation {generation}: a ring of {world_size}, formed in {took:.1} ms"
                ));
            }
            GenerationEvent::Resumed { step, after, .. } => self.resumed(*step, *after),
            GenerationEvent::Switched {
                generation,
                members,
                step,
                ..
            } => {
                self.newcomers = false;
                self.generation = Some(*generation);
                self.world_size = members.len();
                self.event(&format!(
                    "generation {generation}: a ring of {} from step {} on; no worker waited",
                    members.len(),
                    step.get()
                ));
            }
            GenerationEvent::Halting { .. } | GenerationEvent::Adopted { .. } => {}
        }
    }

    fn resumed(&mut self, step: Step, after: Duration) {
        let again = count(std::mem::take(&mut self.again), "shard gradient");
        let after = after.as_secs_f64() * 1e3;
        self.event(&format!(
            "step {} applied {after:.1} ms later; {again} computed again",
            step.get()
        ));
    }

    fn joined(&mut self, worker: WorkerId, step: Step) {
        self.newcomers = self.generation.is_some();
        self.event(&format!("{} joined with the state at {step}", short(worker)));
    }

    /// What happens to checkpoints. A committed one is no news while all goes well.
    fn checkpoint(&mut self, event: &CheckpointEvent) {
        match event {
            CheckpointEvent::Saved { key, .. } => self.saved = Some(key.step),
            CheckpointEvent::Resumes { key, .. } => {
                self.resumes = true;
                let step = key.step.get();
                self.event(&format!("all load the checkpoint of step {step}"));
            }
            CheckpointEvent::NotSaved { step, reason } => {
                self.event(&format!("the checkpoint of step {} is given up: {reason}", step.get()));
            }
            CheckpointEvent::DepotRefused { reason, .. } | CheckpointEvent::NotRestored { reason, .. } => {
                self.event(&format!("a checkpoint could not be used: {reason}"));
            }
            CheckpointEvent::DepotCame { .. } | CheckpointEvent::DepotLost { .. } => {}
        }
    }

    fn steps(&mut self, reports: &[StepReport]) {
        let now = self.started.elapsed();
        self.samples.count(now, reports.iter().map(|report| report.samples).sum());
        let Some(last) = reports.last() else { return };
        let step = last.step.get() + 1;
        self.screen.progress(&Progress {
            step,
            epoch: last.step.get() / self.steps_per_epoch + 1,
            loss: last.sums.first().map_or(f64::NAN, |sum| sum / last.samples as f64),
            samples_per_second: self.samples.per_second(now),
            generation: self.generation.map(|generation| generation.to_string()).unwrap_or_default(),
            world_size: self.world_size,
        });
    }

    pub(crate) fn conclude(&self, summary: &Summary) {
        let (steps, shards) = (summary.step.get(), self.shards);
        let Summary {
            computed,
            recomputed,
            unknown,
            ..
        } = summary;
        let sum = format!("{shards} shards x {steps} steps + {recomputed} computed again");
        let holds = if *unknown == 0 && *computed == shards * steps + recomputed {
            ""
        } else {
            " (NOT: some were not counted)"
        };
        self.event(&format!("{computed} shard gradients computed = {sum}{holds}"));
    }

    fn event(&self, words: &str) {
        self.screen
            .line(&format!("{:>7.3} s  {words}", self.started.elapsed().as_secs_f64()));
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Enough of a worker's id to tell it from the others.
fn short(worker: WorkerId) -> String {
    let mut id = worker.to_string();
    id.truncate(5);
    id
}
