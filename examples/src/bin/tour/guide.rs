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
            steps_per_epoch: job.steps_per_epoch(),
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
        let words = match event {
            Event::Job(event) => self.job(event),
            Event::Agent(AgentEvent::NotStarted { reason }) => Some(format!("a worker could not be started: {reason}")),
            Event::Agent(_) => None,
        };
        if let Some(words) = words {
            self.event(&words);
        }
    }

    /// What to say of an event; none if it is no news.
    fn job(&mut self, event: &JobEvent) -> Option<String> {
        Some(match event {
            JobEvent::Worker(event) => self.worker(event),
            JobEvent::Generation(event) => return self.begun(event),
            JobEvent::Checkpoint(event) => return self.checkpoint(event),
            JobEvent::Steps(reports) => {
                self.steps(reports);
                return None;
            }
            JobEvent::Waiting { have, need } => format!("waiting for {need}; here: {}", count(*have, "worker")),
            JobEvent::StateLost { reached, from } => {
                format!("all workers that had the state at {reached} are gone; again from {from}")
            }
            JobEvent::Failed { reason } => format!("the job failed: {reason}"),
            // A snapshot that only becomes a checkpoint is no news.
            JobEvent::Snapshot { step, holders } if self.newcomers => {
                let holders = count(*holders, "worker");
                format!("the state at {step} is copied, in shares, at {holders}; training goes on")
            }
            // The coordinator ends with this process.
            JobEvent::Snapshot { .. }
            | JobEvent::Fenced { .. }
            | JobEvent::NotRecorded { .. }
            | JobEvent::RecordedAgain { .. }
            | JobEvent::Done(_) => return None,
        })
    }

    fn worker(&mut self, event: &WorkerEvent) -> String {
        match event {
            WorkerEvent::Joined { worker, step } => {
                self.newcomers = self.generation.is_some();
                format!("{} joined with the state at {step}", short(*worker))
            }
            WorkerEvent::Lost {
                worker,
                rank,
                cause,
                stage,
            } => {
                let rank = rank.map_or_else(|| "no rank yet".to_owned(), |rank| format!("rank {}", rank.get()));
                let killed = self.kills.remove(worker);
                let after = killed.map_or_else(String::new, |at| format!(", {:.1} ms after its kill", ms(at.elapsed())));
                format!("{} ({rank}) is lost while {stage}: {cause}{after}", short(*worker))
            }
            WorkerEvent::Leaving { worker, .. } => format!("{} is to leave at the next boundary", short(*worker)),
            WorkerEvent::Left { worker, step } => format!("{} has left at {step}, with its work done", short(*worker)),
            WorkerEvent::CaughtUp { worker, step } => {
                format!("{} has copied the state and followed the sums up to {step}", short(*worker))
            }
            WorkerEvent::JoinsAnew { worker, reason } => format!("{} begins its join anew: {reason}", short(*worker)),
            WorkerEvent::CoolsDown { worker, wait } => {
                format!("{} waits {} s: workers at its address fail", short(*worker), wait.as_secs())
            }
            WorkerEvent::SharesNoMemory { worker } => format!("{} shares no memory with the others", short(*worker)),
            WorkerEvent::Held { worker } => format!("all wait for {}", short(*worker)),
        }
    }

    /// What happens to all members together.
    fn begun(&mut self, event: &GenerationEvent) -> Option<String> {
        Some(match event {
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
                if *fetching == 0 || std::mem::take(&mut self.resumes) {
                    return None;
                }
                format!("{} to fetch the state at {step} from the others", count(*fetching, "worker"))
            }
            GenerationEvent::Formed {
                generation,
                world_size,
                took,
            } => format!(
                "generation {generation}: a ring of {world_size}, formed in {:.1} ms",
                ms(*took)
            ),
            GenerationEvent::Resumed { step, after, .. } => {
                let again = count(std::mem::take(&mut self.again), "shard gradient");
                let (step, after) = (step.get(), ms(*after));
                format!("step {step} applied {after:.1} ms later; {again} computed again")
            }
            GenerationEvent::Switched {
                generation,
                members,
                step,
                ..
            } => {
                self.newcomers = false;
                self.generation = Some(*generation);
                self.world_size = members.len();
                let (ring, step) = (members.len(), step.get());
                format!("generation {generation}: a ring of {ring} from step {step} on; no worker waited")
            }
            GenerationEvent::Halting { .. } | GenerationEvent::Adopted { .. } => return None,
        })
    }

    /// What happens to checkpoints. A committed one is no news while all goes well.
    fn checkpoint(&mut self, event: &CheckpointEvent) -> Option<String> {
        match event {
            CheckpointEvent::Saved { key, .. } => {
                self.saved = Some(key.step);
                None
            }
            CheckpointEvent::Resumes { key, .. } => {
                self.resumes = true;
                Some(format!("all load the checkpoint of step {}", key.step.get()))
            }
            CheckpointEvent::NotSaved { step, reason } => {
                Some(format!("the checkpoint of step {} is given up: {reason}", step.get()))
            }
            CheckpointEvent::DepotRefused { reason, .. } | CheckpointEvent::NotRestored { reason, .. } => {
                Some(format!("a checkpoint could not be used: {reason}"))
            }
            CheckpointEvent::DepotCame { .. } | CheckpointEvent::DepotLost { .. } => None,
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

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Enough of a worker's id to tell it from the others.
fn short(worker: WorkerId) -> String {
    let mut id = worker.to_string();
    id.truncate(5);
    id
}
