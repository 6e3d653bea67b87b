//! What must hold after every trial, whatever the adversary did.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use sardana::launch::Event;
use sardana::reference::{self, Reference};
use sardana::{Generation, GenerationEvent, JobEvent, Loss, Order, Step, StepReport, Summary, WorkerEvent};

use crate::journal::Journal;
use crate::model::Touchy;
use crate::setup::Setup;
use crate::trial::{Ended, Told, Trial};

/// Faults at which another thread may be between a gradient's line in the journal and its count: then the journal has one more.
const BESIDE_TRAINING: [&str; 10] = [
    "halt",
    "halted",
    "form",
    "fetch",
    "snapshotted",
    "linked",
    "prepared",
    "switched",
    "serving-share",
    "serving-sum",
];

/// So many steps may never be told of for each worker that ended, where several did.
const FORGOTTEN_EACH: usize = 2;

/// So many counts may be unsure in a trial though each loss told its own.
const UNSURE: u32 = 2;

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

    /// How many steps may never be told of: where several workers end, none may be left that knows the sums of a step that was not told.
    fn may_forget(&self, ended: &Ended) -> usize {
        match (ended.kills + ended.stops) as usize + self.armed().len() {
            0 | 1 => 0,
            ends => ends * FORGOTTEN_EACH,
        }
    }

    /// The product's counts agree with each other and with what was really computed.
    fn counts(&self, ended: &Ended, summary: &Summary, journal: &Journal) -> Result<()> {
        let Setup { shards, steps, .. } = self.setup;
        let (all, different) = journal.gradients();
        let (all, different) = (all as u64, different as u64);
        let whole = u64::from(shards) * steps;
        let empty = self.empty_shards()?;
        ensure!(
            different == whole - empty,
            "{different} different gradients were computed, the job has {whole} less {empty} empty ones"
        );
        let (unknown, uncounted) = (summary.unknown, ended.lost_uncounted());
        // A worker that comes back may leave it unsure what it had computed in vain, and so may a joiner with the state of those who are lost.
        ensure!(
            unknown <= 2 * uncounted + UNSURE,
            "{unknown} counts are said to be unknown, and {uncounted} workers were lost without theirs"
        );
        if unknown > 0 {
            return Ok(());
        }
        let Summary {
            computed, recomputed, ..
        } = *summary;
        ensure!(
            computed == whole + recomputed,
            "{computed} gradients were counted, {whole} and {recomputed} again were needed; really computed were {all}"
        );
        if empty > 0 {
            return Ok(());
        }
        let name = |fault: &str| fault.split(['#', '@']).next().map(str::to_owned).unwrap_or_default();
        let beside = |fault: &&String| BESIDE_TRAINING.contains(&name(fault).as_str());
        let tolerance = u64::from(ended.kills) + self.armed().iter().filter(beside).count() as u64;
        ensure!(
            (computed..=computed + tolerance).contains(&all),
            "{computed} gradients were counted, {all} were really computed (with {tolerance} that may have been cut off)"
        );
        Ok(())
    }

    fn empty_shards(&self) -> Result<u64> {
        let job = self.setup.job()?;
        let sampler = sardana::data::Sampler::new(job.spec())?;
        let steps = (0..self.setup.steps).map(Step::new);
        let shards = steps.flat_map(|step| (0..self.setup.shards).map(move |shard| (step, shard)));
        Ok(shards.filter(|&(step, shard)| sampler.shard(step, shard).is_empty()).count() as u64)
    }
}

impl Ended {
    /// How many workers were lost, as far as was told, without the number of gradients that they had computed.
    fn lost_uncounted(&self) -> u32 {
        let counted = |cause: &Loss| matches!(cause, Loss::Exited { tally: Some(_), .. });
        let uncounted = self
            .job_events()
            .filter(|event| matches!(event, JobEvent::Worker(WorkerEvent::Lost { cause, .. }) if !counted(cause)));
        u32::try_from(uncounted.count()).unwrap_or(u32::MAX)
    }

    /// What happened to the job.
    pub fn job_events(&self) -> impl Iterator<Item = &JobEvent> {
        self.told.iter().filter_map(|(_, told)| match told {
            Told::Event(Event::Job(event)) => Some(event),
            Told::Event(Event::Agent(_)) | Told::Signal(..) | Told::Request(_) => None,
        })
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
        if let JobEvent::Generation(GenerationEvent::Forming { generation, members, .. })
        | JobEvent::Generation(GenerationEvent::Switched { generation, members, .. }) = event
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
