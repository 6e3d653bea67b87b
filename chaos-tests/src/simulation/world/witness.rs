//! What the coordinator tells people is compared with what is true: which workers are there, which of them train, and which state each has.

use std::time::Duration;

use sardana_protocol::membership::{CheckpointEvent, GenerationEvent, JobEvent, Loss, Need, Phases, Summary, WorkerEvent};
use sardana_protocol::status::Stage;
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::World;
use crate::simulation::invariants::{Heirs, Held, Violation};

impl World {
    /// The coordinator tells people something. `before`: where it stood when it began to think.
    pub(super) fn told(&mut self, event: JobEvent, before: Phases) {
        self.coverage.told(&event);
        self.story.tell(self.calendar.now(), || format!("people are told: {event:?}"));
        let clock = self.coordinator.clock(self.now());
        let held = match event {
            JobEvent::Worker(event) => self.told_of_worker(&event, clock),
            JobEvent::Generation(event) => self.told_of_generation(event, clock, before),
            JobEvent::Checkpoint(event) => self.told_of_checkpoint(&event),
            JobEvent::Done(summary) => self.ends(summary),
            JobEvent::Failed { reason } => self.fails(reason),
            JobEvent::StateLost { from, .. } => {
                self.counts.states_lost += 1;
                let holder = self.holder_beyond(from, clock);
                self.law.gives_up_state(from, holder)
            }
            JobEvent::Waiting { need: Need::Depots, .. } => {
                self.in_want.get_or_insert(self.calendar.now());
                Ok(())
            }
            JobEvent::Waiting { .. }
            | JobEvent::Steps(_)
            | JobEvent::Snapshot { .. }
            | JobEvent::Fenced { .. }
            | JobEvent::NotRecorded { .. }
            | JobEvent::RecordedAgain { .. } => Ok(()),
        };
        self.require(held);
    }

    fn told_of_worker(&mut self, event: &WorkerEvent, clock: Duration) -> Held {
        if let WorkerEvent::Lost {
            worker, cause, stage, ..
        } = event
        {
            self.law.loses(cause);
            if self.liars.is_none() {
                self.law.honest_is_lost(*worker, cause)?;
            }
            if matches!((cause, stage), (Loss::Silent { .. }, Stage::Running)) {
                self.law.silent(*worker, clock)?;
            }
        } else if let WorkerEvent::Leaving { worker, .. } = event {
            self.law.leaves(*worker, clock);
        } else if let WorkerEvent::Left { worker, step } = event {
            let heirs = self.heirs_of(*worker);
            self.law.let_go(*worker, *step, heirs, clock)?;
        }
        Ok(())
    }

    fn told_of_generation(&mut self, event: GenerationEvent, clock: Duration, before: Phases) -> Held {
        match event {
            GenerationEvent::Forming {
                generation,
                step,
                members,
                dropping,
                ..
            } => {
                self.law.drops(dropping)?;
                self.formed(generation, &members, clock, before)?;
                self.begins_at(step)?;
                self.begun(generation, step)
            }
            GenerationEvent::Switched {
                generation,
                step,
                members,
                ..
            } => {
                self.law.seats_by_trailer(&members);
                self.begun(generation, step)
            }
            GenerationEvent::Adopted { generation, members, .. } => {
                self.law.seats(&members);
                self.law.adopted(generation, self.coordinator.forgetful)?;
                self.law.adopts_whole(generation, &members)
            }
            GenerationEvent::Resumed { .. } => {
                self.in_want = None;
                Ok(())
            }
            GenerationEvent::Halting { .. } | GenerationEvent::Formed { .. } => Ok(()),
        }
    }

    fn told_of_checkpoint(&mut self, event: &CheckpointEvent) -> Held {
        if let CheckpointEvent::Saved { key, hosts, wanted, .. } = event {
            self.counts.checkpoints += u64::from(self.law.is_new(*key));
            self.law.saved(*key, *hosts, *wanted)?;
            self.pieces_are_kept(*key)?;
        } else if let CheckpointEvent::NotSaved { step, .. } = event {
            self.counts.checkpoints_given_up += 1;
            self.law.not_saved(*step);
        } else if let CheckpointEvent::Resumes { key, .. } = event {
            self.counts.resumed_from_checkpoints += 1;
            self.law.resumes(*key)?;
        } else if let CheckpointEvent::NotRestored { key, .. } = event {
            self.law.not_restored(*key);
        }
        Ok(())
    }

    /// The job fails: that is right only where all its checkpoints are gone; or, for a coordinator that has nothing written down of the
    /// job, those that it was told of. It cannot tell another job's store from a person's mistake, which is to be told at once.
    fn fails(&mut self, reason: String) -> Held {
        if let Some(liars) = &mut self.liars {
            liars.failed = Some(reason);
            self.given_up = true;
            return Ok(());
        }
        let unknown = !self.coordinator.remembers && !self.knows_what_to_resume_from();
        if unknown || self.nothing_to_resume_from() {
            self.gives_up();
            return Ok(());
        }
        Err(Violation::new("the job must not fail", reason))
    }

    /// The run is over before its time, and that is no violation.
    pub(crate) fn gives_up(&mut self) {
        self.given_up = true;
        self.law.excuse("a run is over since no checkpoint can be resumed from");
    }

    fn begins_at(&mut self, step: Step) -> Held {
        let lost = step.next() < self.high;
        self.law.begins_at(step, lost)
    }

    fn ends(&mut self, summary: Summary) -> Held {
        let step = summary.step;
        let held = self.law.ended(&summary, self.counts.gradients);
        self.done = Some(summary);
        held?;
        self.all_ended(step)?;
        self.law.last_is_saved(step)
    }

    /// A generation is formed, not switched to.
    fn formed(&mut self, generation: Generation, members: &[WorkerId], clock: Duration, before: Phases) -> Held {
        self.law.seats(members);
        let training = self.one_that_trains(members.iter().copied());
        self.law.all_have_halted(generation, training)?;
        if before.past == "possible" {
            let anybody = self.one_that_trains(self.processes.keys().copied());
            self.law.begins_anew(clock, anybody)?;
        }
        Ok(())
    }

    /// A generation begins at this step, sooner or later.
    fn begun(&mut self, generation: Generation, step: Step) -> Held {
        self.counts.generations += 1;
        // The newest state is lost, whether the coordinator knows it or not.
        if step.next() < self.high {
            self.high = step;
            let newer = self.processes.iter().filter(|(_, process)| process.member.step() > step);
            self.law.goes_on_without(newer.map(|(&worker, _)| worker));
        }
        self.law.newer(generation)
    }

    /// One of these workers that still has a seat in some generation.
    fn one_that_trains(&self, workers: impl IntoIterator<Item = WorkerId>) -> Option<WorkerId> {
        let seated = |worker: &WorkerId| {
            let process = self.processes.get(worker);
            process.is_some_and(|process| !matches!(process.member.phases().seat, "none" | "halting"))
        };
        workers.into_iter().find(seated)
    }

    /// What the workers that stay have when `worker` goes.
    fn heirs_of(&self, worker: WorkerId) -> Heirs {
        let Some(machine) = &self.coordinator.machine else {
            return Heirs::Unknown;
        };
        let mut connected = self.coordinator.sessions().into_iter();
        if connected.any(|(other, _)| other != worker && !self.processes.contains_key(&other)) {
            return Heirs::Unknown;
        }
        let others = self
            .processes
            .iter()
            .filter(|(other, _)| **other != worker && machine.knows(**other));
        Heirs::At(others.map(|(_, process)| process.member.step()).max())
    }

    /// A worker with a newer state than that of `step`, which the coordinator knows or has lost only just now.
    fn holder_beyond(&self, step: Step, clock: Duration) -> Option<(WorkerId, Step)> {
        let machine = self.coordinator.machine.as_ref()?;
        let here = |worker: WorkerId| machine.knows(worker) || self.law.is_awaited(worker, clock);
        let steps = self
            .processes
            .iter()
            .map(|(&worker, process)| (worker, process.member.step()));
        let mut newer = steps.filter(|(_, at)| *at > step);
        newer.find(|(worker, _)| here(*worker))
    }

    /// Every worker that takes part, as far as the coordinator knows, is at the last step.
    fn all_ended(&mut self, last: Step) -> Held {
        let Some(machine) = &self.coordinator.machine else {
            return Ok(());
        };
        let newest = self.law.newest;
        let behind = self.processes.iter().find(|(worker, process)| {
            let seated = process.ring_members().is_some_and(|(generation, _)| generation == newest);
            seated && machine.knows(**worker) && process.member.step() < last
        });
        let behind = behind.map(|(&worker, process)| (worker, process.member.step()));
        self.law.all_at_the_end(last, behind)
    }
}
