//! Where the machine of membership and that of snapshots meet: what the one tells the other, and what it does for it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::change::Planned;
use super::formation::Formation;
use super::roster::Place;
use super::{JobEvent, Loss, Membership, Phase, Record, Stop, WorkerEvent};
use crate::holders::{Disagreement, Taken};
use crate::limits::{CATCH_UP_PATIENCE, LEAVERS_CATCH_UP_PATIENCE, MAX_COPY_ATTEMPTS, MAX_WORKERS};
use crate::messages::{CoordinatorMessage, MemberAddress, Serve};
use crate::snapshot::SnapshotId;
use crate::snapshot_round::{Command, Facts, SnapshotRound};
use crate::state::StateHash;
use crate::words::{Generation, Step, WorkerId};

impl Membership {
    /// Lets the snapshot round decide, and does what it wants.
    pub(super) fn lead<T>(&mut self, decide: impl FnOnce(&mut SnapshotRound, &Facts) -> T) -> T {
        let facts = self.facts_of_the_round();
        let decided = decide(&mut self.round, &facts);
        self.do_what_the_round_needs();
        decided
    }

    fn facts_of_the_round(&self) -> Facts {
        let holders: Vec<MemberAddress> = self.formation.iter().flat_map(Formation::holders).collect();
        let is_absent = |worker: &WorkerId| !self.members.contains_key(worker);
        let of_checkpoints = self.facts();
        let is_last = |taken: &Taken| self.checkpoints.is_last(taken.id.step, &of_checkpoints);
        let members = self.formation.as_ref().map_or(0, Formation::world_size);
        Facts {
            now: self.now,
            formed: self.formed,
            absent: holders.iter().map(|holder| holder.worker).filter(is_absent).collect(),
            holders,
            closer: self.formation.as_ref().and_then(Formation::closer),
            reached: self.training.reached,
            seats: (MAX_WORKERS as usize).saturating_sub(members),
            trains_on: matches!(self.phase, Phase::Running { .. }) && self.stop == Stop::No,
            takes_in: self.takes_in(),
            save_due: self.checkpoints.is_save_due(&of_checkpoints),
            is_last: self.round.taken().is_some_and(is_last),
            last_to_save: self
                .checkpoints
                .last_to_save(self.round.kept_whole(), &of_checkpoints)
                .is_some(),
            resend_patience: self.resend_patience(),
            catch_up_patience: self.catch_up_patience(),
            switching: self.change.switching.clone(),
            leaving: self.joiners_that_leave(),
            cooling: self.joiners_that_cool(),
        }
    }

    fn catch_up_patience(&self) -> Duration {
        let members = self.formation.as_ref().map_or(0, Formation::world_size);
        // Few may leave of many: those are not looked at for each message.
        let leave = || self.members.leaving().filter(|(worker, _)| self.is_member(*worker)).count();
        if members > 0 && self.members.are_leaving(members) && leave() == members {
            LEAVERS_CATCH_UP_PATIENCE
        } else {
            CATCH_UP_PATIENCE
        }
    }

    fn takes_in(&self) -> bool {
        // A joiner that is being switched in may still need the last sum.
        let settled = self.change.switching.is_empty() && self.stop == Stop::No && !self.is_ending();
        settled && matches!(self.phase, Phase::Running { .. })
    }

    fn joiners_that_leave(&self) -> BTreeSet<WorkerId> {
        let unplanned = |(worker, record): &(WorkerId, &Record)| record.joins() && self.planned(*worker) == Planned::No;
        self.members.leaving().filter(unplanned).map(|(worker, _)| worker).collect()
    }

    fn joiners_that_cool(&self) -> BTreeSet<WorkerId> {
        if !self.faults.failures.has_hosts() {
            return BTreeSet::new();
        }
        let cools = |(_, record): &(WorkerId, &Record)| self.cools_for(record) > Duration::ZERO;
        self.members.joining().filter(cools).map(|(worker, _)| worker).collect()
    }

    fn do_what_the_round_needs(&mut self) {
        for command in self.round.take_commands() {
            match command {
                Command::Send { worker, message } => self.send_if_here(worker, message),
                Command::SendToAll(serve) => self.send_to_all(&serve),
                Command::Whole(taken) => self.snapshot_is_whole(&taken),
                Command::Disagree { step, found } => self.holders_disagree(step, found),
                Command::CaughtUp { worker, step } => self.tell(WorkerEvent::CaughtUp { worker, step }),
                Command::JoinsAnew { worker, reason } => self.tell(WorkerEvent::JoinsAnew { worker, reason }),
                Command::Unplan { worker } => self.unplan_with(worker),
                Command::Hold { worker } => self.hold(worker),
            }
        }
    }

    fn send_to_all(&mut self, serve: &Serve) {
        let donate = self.members.iter().filter(|(_, record)| !record.joins());
        for worker in donate.map(|(&worker, _)| worker).collect::<Vec<_>>() {
            self.send(worker, CoordinatorMessage::Serve(serve.clone()));
        }
    }

    fn snapshot_is_whole(&mut self, taken: &Taken) {
        self.reach(taken.id.step);
        self.manage(|checkpoints, facts| checkpoints.save_if_due(taken, facts));
        self.tell(JobEvent::Snapshot {
            step: taken.id.step,
            holders: taken.holders(),
        });
    }

    fn holders_disagree(&mut self, step: Step, found: Disagreement) {
        let Disagreement {
            share,
            holders: [one, other],
        } = found;
        self.fail(format!(
            "two holders of share {share} of the state at {step} have different bytes (BITS-1): worker {one} and worker {other}; one of \
             the two machines computes wrongly, or the model is not deterministic"
        ));
    }

    /// Takes joiners in, as far as that goes at the moment.
    pub(super) fn take_in(&mut self) {
        // Asked with every message, and nearly always for nothing.
        if self.takes_in() && self.round.is_to_be_looked_at(self.checkpoints.is_save_due(&self.facts())) {
            self.lead(SnapshotRound::look);
        }
    }

    /// A member has memory for its shares.
    pub(super) fn room_made(&mut self, worker: WorkerId, generation: Generation) {
        if self.round.room_made(worker, generation, self.formed) {
            self.lead(SnapshotRound::ask);
        }
    }

    /// A holder hashes what it has copied, and has come further.
    pub(super) fn hashing(&mut self, worker: WorkerId, id: SnapshotId) {
        if self.lead(|round, facts| round.hashing(worker, id, facts)) {
            self.checkpoints.hashed(self.now);
        }
    }

    /// A holder has copied its shares.
    pub(super) fn snapshotted(&mut self, worker: WorkerId, id: SnapshotId, shares: Vec<(u32, StateHash)>) {
        self.hashing(worker, id);
        self.lead(|round, facts| round.snapshotted(worker, id, shares, facts));
    }

    /// A joiner could not copy.
    pub(super) fn copy_failed(&mut self, worker: WorkerId, id: SnapshotId, reason: String) {
        if self.change.switching.contains(&worker) || self.planned(worker) == Planned::Ordered {
            // It is awaited at a boundary, and the sums up to there are out of its reach.
            return self.disturb();
        }
        self.lead(|round, _| round.copy_failed(worker, id, reason));
    }

    /// Whether joiners have waited in vain so often that the members, which have halted anyway, wait for them. The last holder of the state
    /// waits as soon as that has happened once: the state would be lost with it.
    pub(super) fn joins_are_overdue(&self, newest: Step) -> bool {
        let quiet = self.members.values().filter_map(Record::quiet);
        let holders = quiet.filter(|standing| standing.step == newest);
        let most = if holders.count() == 1 { 1 } else { MAX_COPY_ATTEMPTS };
        newest > Step::ZERO && self.round.is_overdue(most, &self.facts_of_the_round())
    }

    /// Copying beside the ring has failed time and again: all wait at a boundary until this worker has the state.
    fn hold(&mut self, worker: WorkerId) {
        if !self.is_formed() {
            return;
        }
        self.disturb();
        self.call_in(worker);
    }

    /// Takes a joiner into the next generation with whatever state it has; it catches up while the others wait.
    pub(super) fn call_in(&mut self, worker: WorkerId) {
        self.tell(WorkerEvent::Held { worker });
        self.put(worker, Place::Called);
        if let Some(record) = self.members.get_mut(&worker) {
            // The others may have waited long, but not for this one.
            record.work.waited_for(self.now);
        }
        let generation = self.generation;
        self.send(worker, CoordinatorMessage::Halt { generation });
    }

    /// A worker's model failed before the worker was a member: the others do not end for that.
    pub(super) fn joiner_failed(&mut self, worker: WorkerId, reason: String) {
        self.evict(worker, Loss::Failed { reason });
    }

    /// From now on `worker` has this place.
    pub(super) fn put(&mut self, worker: WorkerId, place: Place) {
        self.members.put(worker, place);
        self.tell_the_round(worker);
    }

    /// `worker` is known from now on.
    pub(super) fn insert(&mut self, worker: WorkerId, record: Record) {
        self.members.insert(worker, record);
        self.tell_the_round(worker);
    }

    /// `worker` is not known any more.
    pub(super) fn remove(&mut self, worker: WorkerId) -> Option<Record> {
        let removed = self.members.remove(&worker);
        self.tell_the_round(worker);
        removed
    }

    /// Whether `worker` joins may have changed.
    fn tell_the_round(&mut self, worker: WorkerId) {
        if let Some(Place::Joining(standing)) = self.members.get(&worker).map(Record::place) {
            self.round.joins(worker, standing.step);
        } else {
            self.round.joins_no_more(worker);
        }
    }
}
