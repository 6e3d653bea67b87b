//! From a disturbance to the next generation: halt, gather, form.

use std::time::Duration;

use super::contradicting::WITNESSES;
use super::formation::{Candidate, Formation};
use super::resending::Said;
use super::roster::Place;
use super::{GenerationEvent, JobEvent, Membership, Need, Phase, Record, Resumed, Stop};
use crate::assign::room;
use crate::job::Order;
use crate::limits::{GATHER, MAX_WORKERS, STATE_GRACE};
use crate::messages::MemberAddress;
use crate::planted::{Bug, bites};
use crate::snapshot_round::SnapshotRound;
use crate::words::{Rank, Step, WorkerId};

impl Membership {
    /// Goes on as far as what is known allows.
    pub(super) fn advance(&mut self) {
        if self.settle_the_past() {
            return;
        }
        if let Phase::Gathering { since, .. } = self.phase
            && self.members.census().busy > 0
            && !self.may_be_missing_a_past(since)
        {
            self.halt();
        }
        self.stop_group();
        if let Phase::Halting { since } = self.phase
            && self.members.census().busy == 0
        {
            self.phase = Phase::Gathering { since, told: None };
            self.leave_out_the_unreachable();
        }
        self.release_leavers();
        if let Phase::Gathering { since, told } = self.phase {
            match self.lacks(since) {
                Lack::Nothing => self.form(since),
                Lack::Joiners => self.call_in_joiners(since),
                Lack::Need(Need::Workers(_) | Need::Room { .. }) if self.has_nothing_to_keep(since) => self.stop_in_vain(),
                // Workers that have yet to come are not missed.
                Lack::Need(need) if self.arrivals > 0 && told != Some(need) => {
                    self.phase = Phase::Gathering { since, told: Some(need) };
                    let have = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
                    self.tell(JobEvent::Waiting { have, need });
                }
                Lack::Need(_) | Lack::Patience => {}
            }
        }
        if let Phase::Forming { .. } = self.phase
            && self.members.census().called == 0
        {
            self.run(Resumed::NotYet);
        }
        if let Phase::Running { .. } = self.phase {
            self.conclude();
            if self.is_group() {
                self.renew_group();
            } else {
                self.plan_ahead();
                self.take_in();
            }
        }
    }

    /// The others cannot train without the joiners: all wait until they have the state.
    fn call_in_joiners(&mut self, since: Duration) {
        self.renumber();
        self.phase = Phase::Halting { since };
        for worker in self.members.joining().map(|(worker, _)| worker).collect::<Vec<_>>() {
            self.call_in(worker);
        }
    }

    /// Training goes on. People are told of the ring, also if the first update is heard of before the last `Ready`.
    pub(super) fn run(&mut self, resumed: Resumed) {
        if let Phase::Forming { since } = self.phase {
            self.lead(SnapshotRound::goes_on_after_a_halt);
            let world_size = self.formation.as_ref().map_or(0, Formation::world_size);
            self.tell(GenerationEvent::Formed {
                generation: self.formed,
                world_size: u32::try_from(world_size).unwrap_or(u32::MAX),
                took: self.now.saturating_sub(since),
            });
        }
        self.phase = Phase::Running { resumed };
        (self.training.advanced, self.ranges.settled) = (self.now, self.now);
        if self.stop != Stop::No {
            self.close_with_stop();
        }
    }

    /// What keeps the next generation from being formed. All workers are quiet.
    fn lacks(&self, since: Duration) -> Lack {
        if self.may_be_missing_a_past(since) {
            return Lack::Patience;
        }
        if self.all_leave_once_saved(since) {
            return Lack::Patience;
        }
        let count = |found: usize| u32::try_from(found).unwrap_or(u32::MAX);
        let have = count(self.members.census().quiet);
        let joining = count(self.members.joining().count());
        if self.asks_joiners() {
            return Lack::Joiners;
        }
        // Where nothing is left to be trained, no worker is waited for.
        let ends = self.nothing_is_left_to_train();
        let min = if ends { 1 } else { self.config.min.max(1) };
        if have < min && have.saturating_add(joining) < min {
            return Lack::Need(Need::Workers(min));
        }
        if have < min {
            return Lack::Joiners;
        }
        let room = self.room();
        if room < u64::from(self.config.shards) && joining > 0 && !ends {
            return Lack::Joiners;
        }
        if room < u64::from(self.config.shards) && !ends {
            return Lack::Need(Need::Room {
                room,
                shards: self.config.shards,
                gradient: self.gradient_bytes(),
            });
        }
        if !self.has_begun() && have < self.config.expected && self.now.saturating_sub(since) < GATHER {
            return Lack::Patience;
        }
        if self.newest() < self.training.oldest_alive() && joining > 0 {
            return Lack::Joiners;
        }
        let newest = self.newest();
        // A worker that may be on its way back is not waited for where a checkpoint has as much.
        let kept = || self.checkpoints.newest_usable() >= self.training.reached;
        if newest < self.training.oldest_alive() && !kept() && self.holder_may_return() && !bites(Bug::HoldersNotAwaited) {
            return Lack::Need(Need::State);
        }
        if self.checkpoints.awaits_depots(newest, since, &self.facts()) {
            return Lack::Need(Need::Depots);
        }
        if self.joins_are_overdue(self.newest()) {
            return Lack::Joiners;
        }
        Lack::Nothing
    }

    /// Whether a worker that was lost a short while ago may come back, perhaps with the state.
    pub(super) fn holder_may_return(&self) -> bool {
        let mut missed = self.absent.missed.values();
        missed.any(|&since| self.now.saturating_sub(since) < STATE_GRACE)
    }

    /// Of how many shards the quiet workers can hold the gradients.
    fn room(&self) -> u64 {
        let census = self.members.census();
        let all_compute = census.quiet <= self.config.max.min(MAX_WORKERS) as usize;
        if all_compute && census.room >= u64::from(self.config.shards) {
            return census.room;
        }
        self.room_of(&self.candidates())
    }

    /// Of how many shards these candidates can hold the gradients.
    pub(super) fn room_of(&self, candidates: &[Candidate<'_>]) -> u64 {
        room(self.config.order, candidates.iter().map(|one| one.means))
    }

    /// Whether training has begun before, as far as is known.
    pub(super) fn has_begun(&self) -> bool {
        self.formed.count() > 0 || self.earlier.recorded.count() > 0 || self.training.reached > Step::ZERO
    }

    /// The newest state that is present.
    pub(super) fn newest(&self) -> Step {
        let quiet = self.members.values().filter_map(Record::quiet);
        quiet.map(|standing| standing.step).max().unwrap_or(Step::ZERO)
    }

    /// Whether members of the last generation are here with what they had there: then no worker is more than one step beyond those that are. One alone may only say
    /// so, unless there was no other.
    fn goes_on_from_the_last(&self) -> bool {
        self.formation.as_ref().is_none_or(|last| {
            let members = last.workers().filter(|worker| self.change.can_tell(*worker));
            let here = members.filter_map(|worker| self.members.get(&worker)?.quiet());
            here.filter(|standing| standing.step >= last.floor()).count() >= WITNESSES.min(last.world_size())
        })
    }

    /// The newest state of the members of the last generation; the one that they were known to have, if they are all gone.
    fn newest_of_members(&self) -> Step {
        let Some(formation) = &self.formation else {
            // Which workers were members in an earlier life is not known.
            return self.newest();
        };
        let members = formation.workers().filter_map(|worker| self.members.get(&worker)?.quiet());
        members.map(|standing| standing.step).max().unwrap_or_else(|| {
            // Members that were lost before them may have been a step ahead of where their generation began.
            let theirs = self.training.reached > formation.step.next();
            if theirs { self.training.reached } else { formation.step }
        })
    }

    /// Where a joiner has the newest state, gradients that were counted as lost may live on in it.
    fn doubt_what_is_rescued(&mut self, newest: Step) {
        let of_members = self.newest_of_members();
        if newest > of_members && self.training.restarted >= of_members {
            self.ledger.rescued();
        } else if newest > of_members {
            self.ledger.rescued_from(of_members);
        }
    }

    /// How many gradients of lost workers the state at `step` holds: all but those of the living.
    pub(super) fn kept_of_the_lost(&self, step: Step) -> u64 {
        let living = self
            .members
            .iter()
            .filter_map(|(&worker, record)| Some((worker, record.standing()?)));
        let of_the_living = living
            .map(|(worker, standing)| self.ledger.useful_of(worker, standing, step))
            .fold(0, u64::saturating_add);
        u64::from(self.config.shards)
            .saturating_mul(step.get())
            .saturating_sub(of_the_living)
    }

    pub(super) fn candidates(&self) -> Vec<Candidate<'_>> {
        let mut order: Vec<_> = self.members.iter().filter(|(_, record)| record.quiet().is_some()).collect();
        order.sort_by_key(|(worker, record)| record.order(**worker));
        order.truncate(self.most_members());
        self.order_by_host(&mut order, |(_, record)| record.address.ip());
        order
            .into_iter()
            .enumerate()
            .filter_map(|(index, (&worker, record))| {
                Some(Candidate {
                    member: MemberAddress {
                        worker,
                        address: record.address,
                    },
                    means: self.means(index, worker)?,
                    standing: record.quiet()?,
                })
            })
            .collect()
    }

    /// The number of the next generation is one that was never given away.
    fn renumber(&mut self) {
        if self.generation == self.formed || self.generation.count() == 0 {
            self.generation = self.generation.next();
        }
    }

    fn form(&mut self, since: Duration) {
        if self.refute_standings() {
            return;
        }
        let stops = self.may_have_been_stopped();
        self.training.unbroken &= self.goes_on_from_the_last();
        self.renumber();
        self.leave_the_past();
        let newest = self.newest();
        self.doubt_what_is_rescued(newest);
        let source = match self.manage(|checkpoints, facts| checkpoints.resumes_from(newest, facts)) {
            Ok(source) => source,
            Err(reason) => return self.fail(reason),
        };
        // Workers that computed the steps before a restart are not in the ledger one by one any more.
        if let Some(head) = &source {
            self.begin_from(head);
        } else if newest < self.training.oldest_alive() {
            self.training.restarted = newest;
            if self.ledger.restart(self.kept_of_the_lost(newest)) > 0 {
                self.ledger.rescued();
            }
            self.tell(JobEvent::StateLost {
                reached: self.training.reached,
                from: newest,
            });
            self.training.next_report = newest;
            self.training.reached = newest;
            self.lead(SnapshotRound::end);
            self.manage(|checkpoints, facts| checkpoints.begin_without(newest, facts));
        }
        let stops_here = (source.is_none() && self.stops_where_it_stands()).then_some(newest);
        let ends = source.is_none() && self.nothing_is_left_to_train();
        let mut candidates = self.candidates();
        // No gradient needs room any more.
        let unbounded = self.config.shards;
        candidates
            .iter_mut()
            .filter(|_| ends)
            .for_each(|one| (one.means.capacity, one.means.pieces) = (unbounded, unbounded));
        let members = || -> Vec<MemberAddress> { candidates.iter().map(|candidate| candidate.member).collect() };
        let sums = self.sums(candidates.iter().map(|candidate| candidate.member.worker));
        let restore = source.map(|head| self.checkpoints.restores_of(&head, &members()));
        let Ok(mut formation) = Formation::decide(self.generation, sums, &candidates, restore) else {
            return;
        };
        if !stops {
            formation.goes_on();
        }
        formation.stop_here(stops_here);
        self.change.tellers = None;
        self.members.values_mut().for_each(|record| record.stopped_unasked = false);
        self.formed = self.generation;
        self.faults.breaks.begin();
        // In fast order a sum that is computed again may have other bits.
        if self.config.order == Order::Fast {
            self.lead(SnapshotRound::end);
        }
        let recomputed = self.ledger.resume(formation.step);
        if formation.drops_some {
            self.ledger.dropped();
        }
        self.tell(GenerationEvent::Forming {
            generation: self.formed,
            members: formation.workers().collect(),
            step: formation.step,
            recomputed,
            fetching: formation.fetching(),
            dropping: formation.drops_some,
        });
        self.phase = Phase::Forming { since };
        let workers = formation.workers().collect();
        self.formation = Some(formation);
        self.call(workers);
    }

    /// Tells the members from now on, in rank order, their places.
    fn call(&mut self, workers: Vec<WorkerId>) {
        for (index, worker) in workers.into_iter().enumerate() {
            let rank = Rank::at(index);
            if let Some(record) = self.members.get_mut(&worker) {
                record.rank = Some(rank);
            }
            self.put(worker, Place::Called);
            self.send_form(worker, rank, Said::First);
        }
    }
}

/// What keeps a generation from being formed.
enum Lack {
    Nothing,
    /// The first generation waits a little for all that are expected.
    Patience,
    /// The others do not suffice without the joiners.
    Joiners,
    Need(Need),
}
