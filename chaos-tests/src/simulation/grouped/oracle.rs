//! What must hold of a group, by what its workers were told alone: nothing of it is asked of a machine.

use std::collections::{BTreeMap, BTreeSet};

use sardana_protocol::messages::{Form, MembersDigest};
use sardana_protocol::words::{Generation, Rank, WorkerId};

use crate::simulation::invariants::Violation;

type Held = Result<(), Violation>;

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    generations: BTreeMap<Generation, Told>,
    /// The newest generation that each worker has taken a seat in, or promised to.
    newest: BTreeMap<WorkerId, Generation>,
    /// The newest generation that the coordinator has ordered, whether any worker has heard of it or not.
    ordered: Generation,
    /// Workers that the coordinator was told have ended, and the newest generation that it had ordered then.
    ended: BTreeMap<WorkerId, Generation>,
}

/// What was told of one generation.
#[derive(Debug)]
struct Told {
    world_size: u32,
    digest: MembersDigest,
    /// As each rank was told of itself, or of its neighbours.
    ranks: BTreeMap<Rank, WorkerId>,
}

fn holds(is_so: bool, invariant: &'static str, text: impl FnOnce() -> String) -> Held {
    if is_so {
        Ok(())
    } else {
        Err(Violation::new(invariant, text()))
    }
}

impl Oracle {
    pub(super) fn generations(&self) -> u64 {
        self.generations.len() as u64
    }

    pub(super) fn newest(&self) -> Generation {
        self.generations.keys().next_back().copied().unwrap_or(Generation::NONE)
    }

    /// The coordinator orders a worker to take a seat in this generation.
    pub(super) fn orders(&mut self, generation: Generation) {
        self.ordered = self.ordered.max(generation);
    }

    /// The coordinator hears that this worker's process has ended.
    pub(super) fn ends(&mut self, worker: WorkerId) {
        let newest = self.ordered;
        self.ended.entry(worker).or_insert(newest);
    }

    /// The coordinator hears a hello. Was it under way when the worker's end was heard of, it takes the worker for alive until it falls silent.
    pub(super) fn arrives(&mut self, worker: WorkerId) {
        self.ended.remove(&worker);
    }

    /// `worker` has promised to take no seat before `generation`.
    pub(super) fn promises(&mut self, worker: WorkerId, generation: Generation) -> Held {
        let before = self.newest.insert(worker, generation).unwrap_or(Generation::NONE);
        holds(before <= generation, "GEN-3", || {
            format!("{worker} promises {generation} after {before}")
        })
    }

    /// `worker` says that it has halted for `generation`: it has no group of an older one any more.
    pub(super) fn halted(worker: WorkerId, generation: Generation, seated: Option<Generation>) -> Held {
        holds(seated.is_none(), "GEN-3", || {
            format!("{worker} says that it has halted for {generation}, and its group of {seated:?} goes on")
        })
    }

    /// `worker` takes this seat, of `most` that there may be.
    pub(super) fn sits(&mut self, worker: WorkerId, form: &Form, most: usize) -> Held {
        let generation = form.generation;
        self.promises(worker, generation)?;
        holds(form.world_size as usize <= most, "GEN-2", || {
            format!("{worker} is told of more members than the {most} that there may be: {form:?}")
        })?;
        let told = self.generations.entry(generation).or_insert_with(|| Told {
            world_size: form.world_size,
            digest: form.digest,
            ranks: BTreeMap::new(),
        });
        holds(
            (told.world_size, told.digest) == (form.world_size, form.digest),
            "GEN-1",
            || format!("{worker} is told of another {generation} than others: {form:?}, {told:?}"),
        )?;
        holds(form.rank.get() < form.world_size, "GEN-2", || format!("{worker}: {form:?}"))?;
        let others = form.peers.iter().map(|peer| (peer.rank, peer.member.worker));
        for (rank, member) in others.chain([(form.rank, worker)]) {
            let known = *told.ranks.entry(rank).or_insert(member);
            holds(known == member, "GEN-2", || {
                format!("{rank} of {generation} is {known}, and {worker} is told that it is {member}")
            })?;
        }
        let members: BTreeSet<WorkerId> = told.ranks.values().copied().collect();
        holds(members.len() == told.ranks.len(), "GEN-2", || {
            format!("one worker has two ranks in {generation}: {told:?}")
        })?;
        let neighbours: BTreeSet<Rank> = [form.world_size - 1, 1]
            .map(|places| Rank::new((form.rank.get() + places) % form.world_size))
            .into_iter()
            .filter(|rank| *rank != form.rank)
            .collect();
        let linked: BTreeSet<Rank> = form.first.peers();
        holds(linked == neighbours && form.steady.peers() == neighbours, "GEN-2", || {
            format!("{worker} is linked with {linked:?}, expected {neighbours:?} in {form:?}")
        })?;
        let is_dead = |member: &&WorkerId| self.ended.get(member).is_some_and(|newest| *newest < generation);
        let dead = told.ranks.values().find(is_dead);
        holds(dead.is_none(), "GEN-2", || {
            format!("{dead:?} has ended, and has a place in {generation}: {told:?}")
        })
    }

    /// The members of a generation, as far as was told.
    pub(super) fn members(&self, generation: Generation) -> BTreeSet<WorkerId> {
        let all = self.generations.get(&generation);
        all.iter().flat_map(|told| told.ranks.values().copied()).collect()
    }

    /// An operation has ended well at all these ranks of a generation: they are all that there are.
    pub(super) fn operates(&self, generation: Generation, workers: &BTreeSet<WorkerId>) -> Held {
        let (all, members) = (self.generations.get(&generation), self.members(generation));
        let complete = all.is_some_and(|told| told.ranks.len() == told.world_size as usize);
        holds(complete && members == *workers, "GEN-1", || {
            format!("an operation of {generation} ends with {workers:?}, its members are {members:?}")
        })
    }
}
