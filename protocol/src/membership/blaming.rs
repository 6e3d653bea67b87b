//! Which worker is left out where links cannot be made, or break time and again.
//!
//! A report names two ends, and either may be at fault, or lie: both are charged. A worker that generation after generation breaks with is
//! judged by all that was told of it: it is at fault if it cannot be linked with several others, or with any, while those can be linked
//! with each other. A worker whose port is broken is found so, whether it says so, or its neighbours do, or all of them; and so is one that
//! accuses all others. Between two alone nothing tells which it is: after some tries the one that came last goes, and it is remembered of
//! the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use super::change::Purpose;
use super::formation::Formation;
use super::{Loss, Membership, Phase, Record};
use crate::limits::{FORGIVEN, LINK_GRACE, MAX_LINK_FAILURES};
use crate::words::{Generation, Step, WorkerId};

/// Links that could not be made, or broke, since their ends last trained together with others.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    pairs: BTreeMap<(WorkerId, WorkerId), Break>,
    /// Those that no generation that works has linked since, and when they broke last: nothing is held against them, but others may have to do
    /// without a link between the two.
    doubtful: BTreeMap<(WorkerId, WorkerId), Duration>,
    /// Workers that could not make a link of the generation that was formed last.
    told: BTreeSet<WorkerId>,
    /// The first link that was made for it and broke: perhaps only because the other end could not make another.
    broke: Option<(WorkerId, WorkerId)>,
    /// When the first of them was told.
    since: Option<Duration>,
}

/// A link between two workers.
#[derive(Debug)]
struct Break {
    /// Where they are, in their order.
    hosts: [IpAddr; 2],
    /// In which it was broken.
    generations: BTreeSet<Generation>,
    last: Duration,
}

/// What speaks against a worker, most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Charge {
    /// The others train without it, and with each other.
    joins: bool,
    /// With how many others it could not be linked.
    others: usize,
    /// None of its links is known to work.
    alone: bool,
}

fn pair(one: WorkerId, other: WorkerId) -> (WorkerId, WorkerId) {
    (one.min(other), one.max(other))
}

impl Breaks {
    fn of(&self, worker: WorkerId) -> impl Iterator<Item = (WorkerId, IpAddr, &Break)> {
        self.pairs.iter().filter_map(move |(&(one, other), broken)| {
            if one == worker {
                Some((other, broken.hosts[1], broken))
            } else {
                (other == worker).then_some((one, broken.hosts[0], broken))
            }
        })
    }

    /// In how many generations links between it and some of `others` were broken.
    fn times(&self, worker: WorkerId, others: impl Fn(WorkerId) -> bool) -> usize {
        let with = self.of(worker).filter(|(other, ..)| others(*other));
        let generations = with.flat_map(|(.., broken)| &broken.generations);
        generations.collect::<BTreeSet<_>>().len()
    }

    fn forget(&mut self, whom: impl Fn(WorkerId) -> bool) {
        self.pairs.retain(|&(one, other), _| !whom(one) && !whom(other));
    }

    /// Another generation is formed.
    pub(super) fn begin(&mut self) {
        self.told.clear();
        (self.broke, self.since) = (None, None);
    }

    /// It is to be placed at the other end of the ring this time: with another neighbour it shows which of two is at fault.
    pub(super) fn is_to_change_sides(&self, joiner: WorkerId) -> bool {
        self.times(joiner, |_| true) % 2 == 1
    }
}

impl Membership {
    pub(super) fn link_broken(&mut self, worker: WorkerId, generation: Generation, peer: WorkerId) {
        let links = |formation: &Formation| formation.knows(worker, peer);
        if self.is_planned_with(generation, links) {
            self.note_break(worker, generation, peer);
            // No member has begun it, so none needs to halt. Where only shards were to move, all stay as they are.
            let Some(purpose) = self.unplan(generation) else {
                return self.disturb();
            };
            if purpose == Purpose::Balance {
                return self.faults.breaks.forget(|one| one == worker || one == peer);
            }
            return self.leave_out_the_unreachable();
        }
        // Of the generation before, whose last sum this worker still waits for.
        if generation < self.formed && self.change.switching.contains(&worker) && self.is_formed() {
            return self.disturb();
        }
        if generation != self.formed || !self.formation.as_ref().is_some_and(links) {
            return;
        }
        match self.phase {
            // Both ends notice at about the same time. What the others have noticed tells whose fault it is.
            Phase::Forming { .. } => {
                self.faults.breaks.since.get_or_insert(self.now);
                if !self.members.get(&worker).is_some_and(Record::is_called) {
                    self.faults.breaks.broke.get_or_insert((worker, peer));
                    return;
                }
                self.note_break(worker, generation, peer);
                self.faults.breaks.told.insert(worker);
                let mut called = self.members.iter().filter(|(_, record)| record.is_called());
                if called.all(|(one, _)| self.faults.breaks.told.contains(one)) {
                    self.disturb();
                }
            }
            Phase::Running { .. } => {
                self.note_break(worker, generation, peer);
                self.disturb();
            }
            // It could not make several.
            Phase::Halting { .. } if self.faults.breaks.told.contains(&worker) => self.note_break(worker, generation, peer),
            // A worker that halts closes its links: that they break says nothing any more.
            Phase::Halting { .. } | Phase::Gathering { .. } | Phase::Done | Phase::Failed => {}
        }
    }

    /// A generation whose links cannot all be made is given up once all workers that may know of such a link have had the time to say so.
    pub(super) fn give_up_broken_links(&mut self) {
        let since = self
            .faults
            .breaks
            .since
            .filter(|_| matches!(self.phase, Phase::Forming { .. }));
        if since.is_none_or(|since| self.now.saturating_sub(since) < LINK_GRACE) {
            return;
        }
        if let Some((worker, peer)) = self.faults.breaks.broke.filter(|_| self.faults.breaks.told.is_empty()) {
            self.note_break(worker, self.formed, peer);
        }
        self.disturb();
    }

    fn note_break(&mut self, worker: WorkerId, generation: Generation, peer: WorkerId) {
        let now = self.now;
        let breaks = &mut self.faults.breaks.pairs;
        breaks.retain(|_, broken| now.saturating_sub(broken.last) < FORGIVEN);
        let (one, other) = pair(worker, peer);
        let host = |worker| self.members.get(&worker).map(|record| record.address.ip());
        // A worker that is gone is noticed by other means.
        let (Some(first), Some(second)) = (host(one), host(other)) else {
            return;
        };
        let broken = breaks.entry((one, other)).or_insert(Break {
            hosts: [first, second],
            generations: BTreeSet::new(),
            last: now,
        });
        broken.generations.insert(generation);
        broken.last = now;
        let doubtful = &mut self.faults.breaks.doubtful;
        doubtful.retain(|_, last| now.saturating_sub(*last) < FORGIVEN);
        doubtful.insert((one, other), now);
    }

    /// Whether a link between two workers that are here could not be made, or broke, and it is not known since whether they can be linked.
    pub(super) fn doubts_links(&self) -> bool {
        let here = |worker| self.members.contains_key(worker);
        let recent = |last| self.now.saturating_sub(last) < FORGIVEN;
        let mut doubtful = self.faults.breaks.doubtful.iter();
        doubtful.any(|((one, other), &last)| here(one) && here(other) && recent(last))
    }

    /// Members of a generation that works can be linked with others. A worker that trains alone has not shown that it can.
    pub(super) fn forget_breaks(&mut self) {
        let members: BTreeSet<WorkerId> = self.formation.iter().flat_map(Formation::workers).collect();
        if members.len() > 1 {
            self.faults.breaks.forget(|worker| members.contains(&worker));
        }
        if let Some(formation) = &self.formation {
            let linked = |one, other| formation.knows(one, other);
            self.faults.breaks.doubtful.retain(|&(one, other), _| !linked(one, other));
        }
    }

    /// Leaves out the worker that too many generations in a row broke with, if there is one.
    pub(super) fn leave_out_the_unreachable(&mut self) {
        let charged = self.members.keys().copied();
        let present = |other| self.members.contains_key(&other);
        let charged = charged.filter(|&worker| self.faults.breaks.times(worker, present) >= MAX_LINK_FAILURES as usize);
        let mut charged: Vec<(Charge, u64, WorkerId)> = charged
            .filter(|&worker| !self.alone_has_the_state(worker))
            .filter_map(|worker| Some((self.charge(worker)?, self.members.get(&worker)?.arrival, worker)))
            .collect();
        charged.sort_unstable();
        let Some((charge, _, guilty)) = charged.pop().filter(|_| self.members.len() > 1) else {
            return;
        };
        let is_sure = charged.last().is_none_or(|(other, ..)| *other < charge);
        if is_sure {
            self.faults.breaks.forget(|worker| worker == guilty);
        }
        self.evict(guilty, Loss::Unreachable);
    }

    fn charge(&self, worker: WorkerId) -> Option<Charge> {
        let record = self.members.get(&worker)?;
        let present = |other: &WorkerId| self.members.contains_key(other);
        let (here, gone): (Vec<_>, Vec<_>) = self.faults.breaks.of(worker).partition(|(other, ..)| present(other));
        // A successor on the host of a worker that is gone may have inherited its trouble: then it is no other witness.
        let hosts: BTreeSet<IpAddr> = here.iter().map(|(_, host, _)| *host).collect();
        let gone: BTreeSet<IpAddr> = gone.into_iter().map(|(_, host, _)| host).collect();
        let formation = self.formation.as_ref();
        let neighbours = formation.map_or_else(Vec::new, |formation| formation.peers_of(worker));
        let works = |other: &WorkerId| present(other) && !self.faults.breaks.pairs.contains_key(&pair(worker, *other));
        Some(Charge {
            joins: record.joins(),
            others: here.len() + gone.difference(&hosts).count(),
            alone: !neighbours.iter().any(works),
        })
    }

    /// Whether the others would have to begin anew without it. It may be at fault; it can still train alone.
    fn alone_has_the_state(&self, worker: WorkerId) -> bool {
        let others = self.members.iter().filter(|(one, _)| **one != worker);
        let newest = others.filter_map(|(_, record)| record.quiet()).map(|standing| standing.step);
        let others_lack_it = newest.max().unwrap_or(Step::ZERO) < self.training.oldest_alive();
        let halted = self.members.get(&worker).is_some_and(|record| record.quiet().is_some());
        halted && others_lack_it && self.checkpoints.newest_usable() == Step::ZERO
    }
}
