//! How many gradients were computed, by the product's word and by the journal of what was really computed.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use sardana::{GenerationEvent, JobEvent, Loss, Step, Summary, WorkerEvent, WorkerId};

use crate::journal::Journal;
use crate::setup::Setup;
use crate::trial::{Ended, Trial, members_of};

/// Faults that come so, too, where a gradient has several chunks: all but the last are passed on before it is counted.
const IN_CHUNKS: [&str; 3] = ["before-pass", "while-passing", "after-pass"];

/// A gradient of so many bytes is one chunk.
const CHUNK_BYTES: usize = 128 << 10;

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

/// So many counts may be in doubt for each return of a worker that was lost: what it had in vain meanwhile, whether it was further than
/// was known, and what of it is in vain when it ends.
const DOUBTS_OF_A_RETURN: u32 = 3;

/// What may leave the coordinator in doubt how many gradients were computed, or how many of them in vain.
#[derive(Debug, Default)]
struct Doubts {
    /// Workers that were lost without the number of gradients that they had computed, and how often.
    uncounted: BTreeSet<WorkerId>,
    losses: u32,
    /// How often one of these workers came back.
    returns: u32,
    /// How often training began again from an older state, which may hold gradients of the lost.
    states_lost: u32,
    /// How often a generation had none of the members of the one before: what a joiner's state holds of the lost is not known.
    heirs: u32,
    /// How often members computed anew, for want of memory, what they had.
    dropped: u32,
}

impl Doubts {
    fn of(ended: &Ended) -> Self {
        let mut doubts = Self::default();
        let mut before: &[WorkerId] = &[];
        for event in ended.job_events() {
            if let JobEvent::Generation(GenerationEvent::Forming { dropping, .. }) = event {
                doubts.dropped += u32::from(*dropping);
            }
            if let JobEvent::Worker(WorkerEvent::Lost { worker, cause, .. }) = event {
                doubts.lost(*worker, cause);
            } else if let JobEvent::Worker(WorkerEvent::Joined { worker, .. }) = event {
                doubts.returns += u32::from(doubts.uncounted.contains(worker));
            } else if let JobEvent::StateLost { .. } = event {
                doubts.states_lost += 1;
            } else if let Some(members) = members_of(event) {
                let others = members.iter().all(|member| !before.contains(member));
                doubts.heirs += u32::from(others && !before.is_empty());
                before = members;
            }
        }
        doubts
    }

    fn lost(&mut self, worker: WorkerId, cause: &Loss) {
        if !matches!(cause, Loss::Exited { tally: Some(_), .. }) {
            self.uncounted.insert(worker);
            self.losses += 1;
        }
    }

    /// How many counts may be called unknown: none where each lost worker's count was told and memory held what was there.
    fn most(&self) -> u32 {
        self.losses + DOUBTS_OF_A_RETURN * self.returns + self.states_lost + self.heirs + self.dropped
    }

    /// How many gradients the journal has of workers whose count may not be known.
    fn may_be_missing(&self, ended: &Ended, journal: &Journal) -> u64 {
        let workers = self.uncounted.iter();
        let processes: BTreeSet<u32> = workers.filter_map(|worker| ended.processes.get(worker).copied()).collect();
        journal.gradients_of(|process| processes.contains(&process)) as u64
    }
}

impl Trial {
    /// The product's counts agree with each other and with what was really computed. Where some are unknown, it has counted none that was
    /// not computed, and has missed none but of workers that were lost uncounted.
    pub(crate) fn counts(&self, ended: &Ended, summary: &Summary, journal: &Journal) -> Result<()> {
        let Setup { shards, steps, .. } = self.setup;
        let (all, different) = journal.gradients();
        let (all, different) = (all as u64, different as u64);
        let whole = u64::from(shards) * steps;
        let empty = self.empty_shards()?;
        ensure!(
            different == whole - empty,
            "{different} different gradients were computed, the job has {whole} less {empty} empty ones"
        );
        let Summary {
            computed,
            recomputed,
            unknown,
            ..
        } = *summary;
        let doubts = Doubts::of(ended);
        ensure!(
            unknown <= doubts.most(),
            "{unknown} counts are said to be unknown, at most {} may be: {doubts:?}",
            doubts.most()
        );
        ensure!(
            unknown > 0 || computed == whole + recomputed,
            "{computed} gradients were counted, {whole} and {recomputed} again were needed; really computed were {all}"
        );
        let missing = if unknown > 0 {
            doubts.may_be_missing(ended, journal)
        } else {
            0
        };
        ensure!(
            computed + missing >= whole - empty,
            "{computed} gradients were counted, and {missing} of workers whose count is unknown; the job has {whole}"
        );
        if empty > 0 {
            return Ok(());
        }
        let cut_off = self.may_be_cut_off(ended);
        ensure!(
            computed <= all && all <= computed + missing + cut_off,
            "{computed} gradients were counted, {all} were really computed: {cut_off} may have been cut off, and {missing} are of workers \
             whose count is unknown"
        );
        Ok(())
    }

    /// Of so many gradients the process may have ended between the line in the journal and the count.
    fn may_be_cut_off(&self, ended: &Ended) -> u64 {
        let name = |fault: &str| fault.split(['#', '@']).next().map(str::to_owned).unwrap_or_default();
        let in_chunks = self.setup.elements * size_of::<f32>() > CHUNK_BYTES;
        let beside = |fault: &&String| {
            let point = name(fault);
            BESIDE_TRAINING.contains(&point.as_str()) || (in_chunks && IN_CHUNKS.contains(&point.as_str()))
        };
        u64::from(ended.kills + ended.stops) + self.armed().iter().filter(beside).count() as u64
    }

    fn empty_shards(&self) -> Result<u64> {
        let job = self.setup.job()?;
        let sampler = sardana::data::Sampler::new(job.spec())?;
        let steps = (0..self.setup.steps).map(Step::new);
        let shards = steps.flat_map(|step| (0..self.setup.shards).map(move |shard| (step, shard)));
        Ok(shards.filter(|&(step, shard)| sampler.shard(step, shard).is_empty()).count() as u64)
    }
}
