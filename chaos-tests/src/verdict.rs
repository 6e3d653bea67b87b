//! What must hold after every trial, whatever the adversary did.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use sardana::launch::Event;
use sardana::reference::{self, Reference};
use sardana::{
    AgentEvent, Generation, GenerationEvent, JobEvent, Loss, Order, Step, StepReport, Summary, WorkerEvent, WorkerId,
};

use crate::journal::Journal;
use crate::model::Touchy;
use crate::setup::Setup;
use crate::trial::{Ended, Told, Trial};

/// So many steps may never be told of for each worker that ended, where several did.
const FORGOTTEN_EACH: usize = 2;

/// A trial that ended as it must.
#[derive(Debug)]
pub struct Verdict {
    /// The product's own words.
    pub summary: Summary,
    /// What was really computed.
    pub journal: Journal,
    /// Whether training had to start again from an older state.
    pub state_lost: bool,
}

impl Setup {
    /// What a plain loop ends with.
    ///
    /// # Errors
    /// When the setup makes no job.
    pub fn reference(&self) -> Result<Reference> {
        let job = self.job()?;
        Ok(reference::train(job.spec(), &mut Touchy::plain(self))?)
    }
}

impl Trial {
    /// Checks all that must hold after any trial that ends with its job done.
    ///
    /// # Errors
    /// Says what does not hold, and what happened.
    pub fn judge(&self, ended: &Ended) -> Result<Verdict> {
        self.explain(ended, self.judged(ended))
    }

    fn judged(&self, ended: &Ended) -> Result<Verdict> {
        let summary = match &ended.outcome {
            Ok(summary) => summary.clone(),
            Err(error) => anyhow::bail!("the job did not end: {error}"),
        };
        let not_fired = self.not_fired();
        ensure!(not_fired.is_empty(), "these faults did not fire: {not_fired:?}");
        let journal = Journal::read(self.folder())?;
        let events: Vec<&JobEvent> = ended.job_events().collect();
        let state_lost = events.iter().any(|event| matches!(event, JobEvent::StateLost { .. }));
        ensure!(
            summary.step == Step::new(self.setup.steps),
            "the job ended at {}, not at its last step",
            summary.step
        );
        if self.setup.order == Order::Exact {
            let reference = self.setup.reference()?;
            ensure!(
                summary.hash == reference.hash,
                "BITS-1: expected {}, found {}",
                reference.hash,
                summary.hash
            );
            ensure!(summary.results == reference.results, "the results differ: {summary:?}");
            reports(&events, &reference.reports, self.may_forget(ended))?;
            updates(&journal, state_lost)?;
        }
        generations(&events)?;
        self.counts(ended, &summary, &journal)?;
        Ok(Verdict {
            summary,
            journal,
            state_lost,
        })
    }

    /// How many steps may never be told of: where several workers end, none that is left may know the sums of a step that was not told.
    fn may_forget(&self, ended: &Ended) -> usize {
        match (ended.kills + ended.stops) as usize + self.armed().len() {
            0 | 1 => 0,
            ends => ends * FORGOTTEN_EACH,
        }
    }
}

impl Ended {
    /// What happened to the job.
    pub fn job_events(&self) -> impl Iterator<Item = &JobEvent> {
        self.events().filter_map(|event| match event {
            Event::Job(event) => Some(event),
            Event::Agent(_) => None,
        })
    }

    /// What happened to the job and its processes.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.told.iter().filter_map(|(_, told)| match told {
            Told::Event(event) => Some(event),
            Told::Signal(..) | Told::Request(_) => None,
        })
    }

    /// How many such things happened to the job.
    pub fn count(&self, such: impl Fn(&JobEvent) -> bool) -> usize {
        self.job_events().filter(|event| such(event)).count()
    }

    /// How often all members were told to halt.
    #[must_use]
    pub fn halts(&self) -> usize {
        self.count(|event| matches!(event, JobEvent::Generation(GenerationEvent::Halting { .. })))
    }

    /// The workers that were left out, and why.
    pub fn losses(&self) -> impl Iterator<Item = (WorkerId, &Loss)> {
        self.job_events().filter_map(|event| {
            let JobEvent::Worker(WorkerEvent::Lost { worker, cause, .. }) = event else {
                return None;
            };
            Some((*worker, cause))
        })
    }

    /// Whether a worker's agent has seen it end by SIGKILL.
    #[must_use]
    pub fn was_killed(&self, worker: WorkerId) -> bool {
        let by_signal = |event: &Event| matches!(event, Event::Agent(AgentEvent::Ended { worker: one, how }) if *one == worker && how.contains("signal 9"));
        self.events().any(by_signal)
    }
}

/// Sums are told in step order, once, and they are the right ones. Only several deaths may leave gaps, of so many steps in all.
fn reports(events: &[&JobEvent], expected: &[StepReport], may_forget: usize) -> Result<()> {
    let (mut next, mut forgotten) = (0, 0);
    for event in events {
        if let JobEvent::StateLost { from, .. } = event {
            next = from.get();
        }
        let JobEvent::Steps(reports) = event else { continue };
        for report in reports {
            let step = report.step.get();
            ensure!(step >= next, "step {next} was to be told, found {step}");
            forgotten += step - next;
            let expected = &expected[usize::try_from(step)?];
            ensure!(report == expected, "expected {expected:?}, found {report:?}");
            next = step + 1;
        }
    }
    forgotten += expected.len() as u64 - next;
    ensure!(
        forgotten <= may_forget as u64,
        "{forgotten} of {} steps were never told of, at most {may_forget} may be; the last one is {next}",
        expected.len()
    );
    Ok(())
}

/// STEP-1 and STEP-2: no two different updates for one step, and each process's steps only grow.
fn updates(journal: &Journal, state_lost: bool) -> Result<()> {
    let mut digests = BTreeMap::new();
    let mut last = BTreeMap::new();
    for (life, step, digest) in journal.updates() {
        let first = *digests.entry(step).or_insert(digest);
        ensure!(first == digest, "STEP-1: two different updates were applied for step {step}");
        let before = last.insert(life, step);
        ensure!(
            state_lost || before.is_none_or(|before| before < step),
            "STEP-1: a process applied step {before:?}, then step {step}"
        );
    }
    Ok(())
}

/// GEN-1 and GEN-2, as far as they show.
fn generations(events: &[&JobEvent]) -> Result<()> {
    let mut newest = Generation::NONE;
    for event in events {
        if let JobEvent::Generation(
            GenerationEvent::Forming { generation, members, .. } | GenerationEvent::Switched { generation, members, .. },
        ) = event
        {
            ensure!(*generation > newest, "GEN-1: {generation} after {newest}");
            newest = *generation;
            let unique: BTreeSet<_> = members.iter().collect();
            ensure!(unique.len() == members.len(), "GEN-2: a member twice in {generation}");
        }
    }
    ensure!(newest > Generation::NONE, "no generation was formed");
    Ok(())
}
