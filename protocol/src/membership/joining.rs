//! Joins that stop no member: a snapshot is taken at a boundary, the joiners copy it and follow the ring, and are planned in. Checkpoints
//! are made of the same snapshots: one that is due asks for one, as a joiner does, and one that joiners asked for is used for it.
//!
//! ```text
//!a joiner, or a save due      all have room         a trailer, then all Snapshotted         the last joiner is in, or gone
//!  Idle ────────▶ MakingRoom ──────────────▶ Asked ─────────────────────────────────▶ Serving ─────────────────────────▶ Idle
//!                      ▲              a share has no holder any more                     │
//!                      └─────────────────────────────────────────────────────────────────┘
//! ```
//! It outlives generations: holders are known by their place among those that took the snapshot.

use std::collections::BTreeSet;
use std::time::Duration;

use super::formation::Formation;
use super::planning::Planned;
use super::roster::{Joining, Place};
use super::taking::Intake;
use super::{Loss, Membership, Phase, Record, Stop, WorkerEvent};
use crate::limits::{
    CATCH_UP_PATIENCE, MAX_COPY_ATTEMPTS, MAX_WORKERS, ROOM_PATIENCE, SNAPSHOT_DOUBLINGS, SNAPSHOT_PATIENCE,
};
use crate::messages::{CoordinatorMessage, Joiners, Needed, Serve};
use crate::snapshot::SnapshotId;
use crate::words::{Step, WorkerId};

impl Membership {
    /// Takes joiners in, as far as that goes at the moment.
    pub(super) fn take_in(&mut self) {
        if !self.takes_in() {
            return;
        }
        let due = self.checkpoints.is_save_due(&self.facts());
        if !self.members.take_stirred() {
            // No worker came, went, or failed since this was looked at last.
            if due && matches!(self.round.intake, Intake::Idle) {
                self.make_room();
            }
            return;
        }
        let waiting = self.has_seats() && self.joiners().any(|(_, joining)| joining.copies.is_none());
        let copied = |id: SnapshotId| self.joiners().any(|(_, joining)| joining.copies == Some(id));
        match &self.round.intake {
            Intake::Idle if waiting || due => self.make_room(),
            // The state at the end is kept: there will be no other boundary.
            Intake::Collecting { taken, .. } | Intake::Serving { taken, .. }
                if self.checkpoints.is_last(taken.id.step, &self.facts()) => {}
            Intake::MakingRoom { .. } | Intake::Asked { .. } | Intake::Collecting { .. } if !waiting && !due => {
                self.end_intake()
            }
            Intake::Serving { taken, .. } if !copied(taken.id) => {
                self.end_intake();
                if waiting || due {
                    self.make_room();
                }
            }
            Intake::Idle
            | Intake::MakingRoom { .. }
            | Intake::Asked { .. }
            | Intake::Collecting { .. }
            | Intake::Serving { .. } => {}
        }
    }

    fn takes_in(&self) -> bool {
        // A joiner that is being switched in may still need the last sum.
        let settled = self.change.switching.is_empty() && self.stop == Stop::No && !self.is_ending();
        settled && matches!(self.phase, Phase::Running { .. })
    }

    /// Whether a generation has room for more members than there are and will be once all who copy have come.
    fn has_seats(&self) -> bool {
        let members = self.formation.as_ref().map_or(0, Formation::world_size);
        members + self.members.census().copying < MAX_WORKERS as usize
    }

    /// Those who join, but for those who leave again and are not planned in.
    fn joiners(&self) -> impl Iterator<Item = (WorkerId, &Joining)> {
        let begun = |record: &Record| record.joining().is_some_and(|joining| joining.copies.is_some());
        let comes = move |worker, record: &Record| {
            (record.leaving().is_none() || self.planned(worker) != Planned::No)
                && (begun(record) || self.cools_for(record) == Duration::ZERO)
        };
        let joiners = self.members.joining().filter(move |(worker, record)| comes(*worker, record));
        joiners.filter_map(|(worker, record)| Some((worker, record.joining()?)))
    }

    /// All whom those who hold a snapshot serve: those who join, and those who have just switched and may lack the last sum.
    pub(super) fn served(&self) -> BTreeSet<WorkerId> {
        let joiners = self.joiners().map(|(worker, _)| worker);
        joiners.chain(self.change.switching.iter().copied()).collect()
    }

    /// The members are told of a snapshot to come, or that none will: those who are to hold it.
    pub(super) fn ask_for_room(&mut self, needed: Needed) {
        let holders: Vec<WorkerId> = self
            .formation
            .iter()
            .flat_map(Formation::holders)
            .map(|member| member.worker)
            .collect();
        let joiners = Joiners::Only(self.served().into_iter().collect());
        self.serve(
            holders,
            &Serve {
                joiners,
                snapshot: None,
                shares: needed,
                sums_from: Step::ZERO,
            },
        );
    }

    /// Tells those of `workers` who are there, and no joiners themselves.
    fn serve(&mut self, workers: Vec<WorkerId>, serve: &Serve) {
        let donates = |record: &Record| record.joining().is_none();
        for worker in workers {
            if self.members.get(&worker).is_some_and(donates) {
                self.send(worker, CoordinatorMessage::Serve(serve.clone()));
            }
        }
    }

    /// Tells those who hold the snapshot that is served what has changed: whom they serve, and what of it is needed.
    fn serve_changes(&mut self, needed: (Needed, Step)) {
        let served = self.served();
        let Intake::Serving { taken, told, named } = &mut self.round.intake else {
            return;
        };
        let came: Vec<WorkerId> = served.difference(named).copied().collect();
        let gone: Vec<WorkerId> = named.difference(&served).copied().collect();
        if *told == needed && came.is_empty() && gone.is_empty() {
            return;
        }
        (*told, *named) = (needed, served);
        let (holders, id) = (taken.all().collect(), taken.id);
        self.serve(
            holders,
            &Serve {
                joiners: Joiners::Changed { came, gone },
                snapshot: Some(id),
                shares: needed.0,
                sums_from: needed.1,
            },
        );
    }

    /// No snapshot is needed any more, or it is not whole any more: no holder keeps anything of it.
    pub(super) fn end_intake(&mut self) {
        self.members.stir();
        match std::mem::replace(&mut self.round.intake, Intake::Idle) {
            Intake::Idle => {}
            Intake::MakingRoom { .. } | Intake::Asked { .. } => self.ask_for_room(Needed::No),
            Intake::Collecting { taken, .. } | Intake::Serving { taken, .. } => {
                self.forget_copies();
                // Also those who have one from before, since they have not seen the trailer that asked for this one.
                let all = self.members.keys().copied().collect();
                self.serve(
                    all,
                    &Serve {
                        joiners: Joiners::Only(Vec::new()),
                        snapshot: Some(taken.id),
                        shares: Needed::No,
                        sums_from: Step::ZERO,
                    },
                );
            }
        }
    }

    pub(super) fn forget_copies(&mut self) {
        for worker in self.members.joining().map(|(worker, _)| worker).collect::<Vec<_>>() {
            self.members.join(worker, |joining| {
                joining.copies = None;
                joining.caught_up = false;
            });
        }
    }

    /// A snapshot is there: those who hold it are told whom they serve, and all joiners copy it.
    pub(super) fn share_snapshot(&mut self) {
        let copying = self.let_copy();
        let served = self.served();
        let Intake::Serving { taken, told, named } = &mut self.round.intake else {
            return;
        };
        named.clone_from(&served);
        let serve = Serve {
            joiners: Joiners::Only(served.into_iter().collect()),
            snapshot: Some(taken.id),
            shares: told.0,
            sums_from: told.1,
        };
        let holders = taken.all().collect();
        self.serve(holders, &serve);
        copying.into_iter().for_each(|worker| self.send_copy(worker));
    }

    /// All joiners copy the snapshot that is served, as far as there is room for them among the members. Who did not before?
    fn let_copy(&mut self) -> Vec<WorkerId> {
        let Intake::Serving { taken, .. } = &self.round.intake else {
            return Vec::new();
        };
        let id = taken.id;
        let joiners: Vec<WorkerId> = self
            .joiners()
            .filter(|(_, one)| one.copies != Some(id) && one.failed != Some(id))
            .map(|(worker, _)| worker)
            .collect();
        let begins = |joining: &mut Joining| {
            joining.copies = Some(id);
            joining.loaded = false;
            joining.follows = None;
            joining.caught_up = false;
        };
        let mut copying = Vec::new();
        for worker in joiners {
            if self.has_seats() && self.members.join(worker, begins).is_some() {
                copying.push(worker);
            }
        }
        copying
    }

    /// Tells a joiner what to copy, and from whom.
    pub(super) fn send_copy(&mut self, worker: WorkerId) {
        let Intake::Serving { taken, .. } = &self.round.intake else {
            return;
        };
        let copies = self.members.get(&worker).and_then(Record::joining);
        if copies.is_some_and(|joining| joining.copies == Some(taken.id))
            && let Some(order) = taken.order()
        {
            self.members.join(worker, |joining| joining.answered = false);
            self.send(worker, CoordinatorMessage::Copy(Box::new(order)));
        }
    }

    /// A joiner has its order to copy.
    pub(super) fn copy_answered(&mut self, worker: WorkerId, id: SnapshotId) {
        self.members
            .join(worker, |joining| joining.answered |= joining.copies == Some(id));
    }

    /// A worker is gone, or has dropped what it held.
    pub(super) fn holder_gone(&mut self, worker: WorkerId) {
        let (Intake::Collecting { taken, .. } | Intake::Serving { taken, .. }) = &mut self.round.intake else {
            return;
        };
        if !taken.gone(worker) {
            return;
        }
        if taken.is_whole() {
            let copying: Vec<WorkerId> = self.joiners().map(|(joiner, _)| joiner).collect();
            copying.into_iter().for_each(|joiner| self.send_copy(joiner));
            return self.settle_snapshot();
        }
        let joiners: Vec<WorkerId> = self
            .joiners()
            .filter(|(_, one)| one.copies.is_some())
            .map(|(one, _)| one)
            .collect();
        for worker in joiners {
            self.unplan_with(worker);
            self.copied_in_vain(worker, "both holders of a share are gone".to_owned());
        }
        self.end_intake();
    }

    /// A joiner's copy will not become a state. After some such times it is waited for.
    fn copied_in_vain(&mut self, worker: WorkerId, reason: String) {
        let again = self.members.join(worker, |joining| {
            joining.copies = None;
            joining.caught_up = false;
            joining.attempts += 1;
            joining.attempts < MAX_COPY_ATTEMPTS
        });
        let Some(again) = again else { return };
        self.tell(WorkerEvent::JoinsAnew { worker, reason });
        if !again {
            self.hold(worker);
        }
    }

    /// All halt, and the snapshot that is being taken will not be whole: who waits for it has waited in vain.
    pub(super) fn joins_broken_off(&mut self) {
        let broken_off = match &self.round.intake {
            Intake::MakingRoom { .. } | Intake::Asked { .. } | Intake::Collecting { .. } => true,
            Intake::Idle | Intake::Serving { .. } => false,
        };
        let waiting: Vec<WorkerId> = self
            .members
            .joining()
            .map(|(worker, _)| worker)
            .filter(|_| broken_off)
            .collect();
        for worker in waiting {
            self.members.join(worker, |joining| joining.attempts += 1);
        }
    }

    /// Whether those who join have waited in vain so often that all wait for them now that they have halted anyway: workers are lost faster
    /// than others come to the state. The last one that has it waits as soon as that has happened once: the state would be lost with it.
    pub(super) fn joins_are_overdue(&self, newest: Step) -> bool {
        let holders = self
            .members
            .values()
            .filter_map(Record::quiet)
            .filter(|standing| standing.step == newest);
        let most = if holders.count() == 1 { 1 } else { MAX_COPY_ATTEMPTS };
        newest > Step::ZERO && self.joiners().any(|(_, joining)| joining.attempts >= most)
    }

    pub(super) fn dropped(&mut self, worker: WorkerId, id: SnapshotId) {
        let (Intake::Collecting { taken, .. } | Intake::Serving { taken, .. }) = &self.round.intake else {
            return;
        };
        if taken.id == id {
            self.holder_gone(worker);
        }
    }

    pub(super) fn caught_up(&mut self, worker: WorkerId, id: SnapshotId, step: Step) {
        let news = self.members.join(worker, |joining| {
            let copies = joining.copies == Some(id);
            if copies {
                joining.answered = true;
                joining.step = joining.step.max(step);
                joining.loaded = true;
            }
            copies && !std::mem::replace(&mut joining.caught_up, true)
        });
        if news == Some(true) {
            self.tell(WorkerEvent::CaughtUp { worker, step });
        }
    }

    /// A worker says where its state stands. False if it is no joiner.
    pub(super) fn joiner_at(&mut self, worker: WorkerId, step: Step) -> bool {
        let now = self.now;
        let joins = self.members.join(worker, |joining| {
            joining.step = step;
            joining.loaded |= joining.copies.is_some_and(|id| step >= id.step);
            if joining.loaded {
                joining.follows.get_or_insert(now);
            }
        });
        joins.is_some()
    }

    pub(super) fn copy_failed(&mut self, worker: WorkerId, id: SnapshotId, reason: String) {
        if self.change.switching.contains(&worker) || self.planned(worker) == Planned::Ordered {
            // It is awaited at a boundary, and the sums up to there are out of its reach.
            return self.disturb();
        }
        self.unplan_with(worker);
        let failed = self.members.join(worker, |joining| {
            let copies = joining.copies == Some(id);
            if copies {
                joining.failed = Some(id);
            }
            copies
        });
        if failed == Some(true) {
            self.copied_in_vain(worker, reason);
        }
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
        self.members.put(worker, Place::Called);
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

    /// Lets go of what no joiner needs any more, and says again what may have been lost.
    pub(super) fn tend_joiners(&mut self) {
        let now = self.now;
        match &self.round.intake {
            Intake::Idle => {}
            Intake::MakingRoom { at, .. } => {
                if now.saturating_sub(*at) >= ROOM_PATIENCE && self.trains_on() {
                    self.ask_for_snapshot();
                }
            }
            Intake::Asked { at } | Intake::Collecting { at, .. } => {
                let patience = SNAPSHOT_PATIENCE * (1 << self.round.asked_in_vain.min(SNAPSHOT_DOUBLINGS));
                if now.saturating_sub(*at) >= patience && self.trains_on() {
                    self.round.asked_in_vain += 1;
                    self.make_room();
                }
            }
            Intake::Serving { .. } if !self.change.switching.is_empty() => {}
            Intake::Serving { .. } => self.tend_those_who_copy(),
        }
    }

    fn tend_those_who_copy(&mut self) {
        let Intake::Serving { taken, told, .. } = &self.round.intake else {
            return;
        };
        let id = taken.id;
        // Nothing of it is let go yet, so that those who have come since can copy it too.
        let came = if *told == (Needed::Yes, id.step) && self.takes_in() {
            self.let_copy()
        } else {
            Vec::new()
        };
        let copying = || self.joiners().filter(|(_, joining)| joining.copies == Some(id));
        // No joiner copies the last state any more, but it is to be saved.
        let last = self.last_is_to_be_saved();
        let shares = if !last && copying().all(|(_, joining)| joining.loaded) {
            Needed::No
        } else {
            Needed::Yes
        };
        let from = copying()
            .map(|(_, joining)| joining.step.max(id.step))
            .min()
            .unwrap_or(id.step);
        let from = if shares == Needed::No { from } else { id.step };
        let (now, patience) = (self.now, self.resend_patience());
        let late = |worker: &WorkerId| {
            let asked = self.members.get(worker).map(|record| record.asked);
            asked.is_some_and(|asked| now.saturating_sub(asked) >= patience)
        };
        let late: Vec<WorkerId> = copying()
            .filter(|(worker, joining)| !joining.answered && late(worker))
            .map(|(worker, _)| worker)
            .collect();
        self.serve_changes((shares, from));
        came.into_iter().chain(late).for_each(|worker| self.send_copy(worker));
        self.hold_the_slow();
    }

    /// Whether there will be another boundary.
    fn trains_on(&self) -> bool {
        matches!(self.phase, Phase::Running { .. }) && self.stop == Stop::No
    }

    /// A joiner whose lag does not shrink would join never.
    fn hold_the_slow(&mut self) {
        let too_long = |joining: &Joining| {
            let follows = joining.follows.filter(|_| joining.loaded && !joining.caught_up);
            follows.is_some_and(|since| self.now.saturating_sub(since) >= CATCH_UP_PATIENCE)
        };
        let slow = self
            .joiners()
            .find(|(_, joining)| too_long(joining))
            .map(|(worker, _)| worker);
        if let Some(worker) = slow {
            self.hold(worker);
        }
    }
}
