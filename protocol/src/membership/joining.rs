//! Joins that stop nobody: a snapshot is taken at a boundary, the joiners copy it and follow the ring, and are planned in. Checkpoints
//! are made of the same snapshots: one that is due asks for one, as a joiner does, and one that joiners asked for is used for it.
//!
//! ```text
//!a joiner, or a save due      all have room         a trailer, then all Snapshotted         the last joiner is in, or gone
//!  Idle ────────▶ MakingRoom ──────────────▶ Asked ─────────────────────────────────▶ Serving ─────────────────────────▶ Idle
//!                      ▲              a share has no holder any more                     │
//!                      └─────────────────────────────────────────────────────────────────┘
//! ```
//! It outlives generations: holders are known by their place among those that took the snapshot.

use std::time::Duration;

use super::planning::Planned;
use super::roster::{Joining, Place};
use super::taking::Intake;
use super::{JobEvent, Loss, Membership, Phase, Record, Stop};
use crate::limits::{CATCH_UP_PATIENCE, MAX_COPY_ATTEMPTS, RESEND, ROOM_PATIENCE, SNAPSHOT_DOUBLINGS, SNAPSHOT_PATIENCE};
use crate::messages::{CoordinatorMessage, Needed, Serve};
use crate::snapshot::SnapshotId;
use crate::words::{Step, WorkerId};

impl Membership {
    /// Takes joiners in, as far as that goes at the moment.
    pub(super) fn take_in(&mut self) {
        // Whoever is being switched in may still need the last sum.
        let switching = !self.switching.is_empty();
        if switching || self.stop != Stop::No || self.is_ending() || !matches!(self.phase, Phase::Running { .. }) {
            return;
        }
        let due = self.is_save_due();
        let waiting = self.joiners().any(|(_, joining)| joining.copies.is_none());
        let fresh = |id: SnapshotId| self.joiners().any(|(_, one)| one.copies.is_none() && one.failed != Some(id));
        let copied = |id: SnapshotId| self.joiners().any(|(_, joining)| joining.copies == Some(id));
        match &self.intake {
            Intake::Idle if waiting || due => self.make_room(),
            // The state at the end is kept: there will be no other boundary.
            Intake::Collecting { taken, .. } | Intake::Serving { taken, .. } if self.is_last(taken.id.step) => {}
            Intake::MakingRoom { .. } | Intake::Asked { .. } | Intake::Collecting { .. } if !waiting && !due => {
                self.end_intake()
            }
            Intake::Serving { taken, .. } if !copied(taken.id) => {
                self.end_intake();
                if waiting || due {
                    self.make_room();
                }
            }
            // Nothing of it is let go yet, so that who comes now can copy it too.
            Intake::Serving { taken, told } if fresh(taken.id) && *told == (Needed::Yes, taken.id.step) => {
                self.share_snapshot()
            }
            Intake::Idle
            | Intake::MakingRoom { .. }
            | Intake::Asked { .. }
            | Intake::Collecting { .. }
            | Intake::Serving { .. } => {}
        }
    }

    /// Those who join, but for those who leave again and are not planned in.
    fn joiners(&self) -> impl Iterator<Item = (WorkerId, &Joining)> {
        let begun = |record: &Record| record.joining().is_some_and(|joining| joining.copies.is_some());
        let comes = move |worker, record: &Record| {
            (record.leaving.is_none() || self.planned(worker) != Planned::No)
                && (begun(record) || self.cools_for(record) == Duration::ZERO)
        };
        let joiners = self.members.iter().filter(move |(worker, record)| comes(**worker, record));
        joiners.filter_map(|(&worker, record)| Some((worker, record.joining()?)))
    }

    /// Lets the members serve those who join, and those who have just switched and may lack the last sum.
    pub(super) fn send_serve(&mut self, snapshot: Option<SnapshotId>, shares: Needed, sums_from: Step) {
        let serve = self.serving(snapshot, shares, sums_from);
        self.serve(serve);
    }

    /// What members are told of those who join, and of a snapshot.
    pub(super) fn serving(&self, snapshot: Option<SnapshotId>, shares: Needed, sums_from: Step) -> Serve {
        let joiners = self.joiners().map(|(worker, _)| worker);
        Serve {
            joiners: joiners.chain(self.switching.iter().copied()).collect(),
            snapshot,
            shares,
            sums_from,
        }
    }

    /// Tells all but the joiners themselves.
    fn serve(&mut self, serve: Serve) {
        let donors = self.members.iter().filter(|(_, record)| record.joining().is_none());
        for worker in donors.map(|(&worker, _)| worker).collect::<Vec<_>>() {
            self.send(worker, CoordinatorMessage::Serve(serve.clone()));
        }
    }

    /// No snapshot is needed any more, or it is not whole any more: nobody keeps anything of it.
    pub(super) fn end_intake(&mut self) {
        match std::mem::replace(&mut self.intake, Intake::Idle) {
            Intake::Idle => {}
            Intake::MakingRoom { .. } | Intake::Asked { .. } => self.send_serve(None, Needed::No, Step::ZERO),
            Intake::Collecting { taken, .. } | Intake::Serving { taken, .. } => {
                self.forget_copies();
                self.serve(Serve {
                    joiners: Vec::new(),
                    snapshot: Some(taken.id),
                    shares: Needed::No,
                    sums_from: Step::ZERO,
                });
            }
        }
    }

    pub(super) fn forget_copies(&mut self) {
        for record in self.members.values_mut() {
            if let Place::Joining(joining) = &mut record.place {
                joining.copies = None;
                joining.caught_up = false;
            }
        }
    }

    /// Lets all joiners copy the snapshot that do not copy it yet.
    pub(super) fn share_snapshot(&mut self) {
        let Intake::Serving { taken, told } = &self.intake else {
            return;
        };
        let (id, told) = (taken.id, *told);
        let joiners: Vec<WorkerId> = self
            .joiners()
            .filter(|(_, one)| one.copies != Some(id) && one.failed != Some(id))
            .map(|(worker, _)| worker)
            .collect();
        for worker in &joiners {
            if let Some(joining) = self.members.get_mut(worker).and_then(Record::joining_mut) {
                joining.copies = Some(id);
                joining.loaded = false;
                joining.follows = None;
                joining.caught_up = false;
            }
        }
        self.send_serve(Some(id), told.0, told.1);
        joiners.into_iter().for_each(|worker| self.send_copy(worker));
    }

    /// Tells a joiner what to copy, and from whom.
    pub(super) fn send_copy(&mut self, worker: WorkerId) {
        let Intake::Serving { taken, .. } = &self.intake else {
            return;
        };
        let copies = self.members.get(&worker).and_then(Record::joining);
        if copies.is_some_and(|joining| joining.copies == Some(taken.id))
            && let Some(order) = taken.order()
        {
            self.send(worker, CoordinatorMessage::Copy(Box::new(order)));
        }
    }

    /// A worker is gone, or has dropped what it held.
    pub(super) fn holder_gone(&mut self, worker: WorkerId) {
        let (Intake::Collecting { taken, .. } | Intake::Serving { taken, .. }) = &mut self.intake else {
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
        let Some(joining) = self.members.get_mut(&worker).and_then(Record::joining_mut) else {
            return;
        };
        joining.copies = None;
        joining.caught_up = false;
        joining.attempts += 1;
        let again = joining.attempts < MAX_COPY_ATTEMPTS;
        self.tell(JobEvent::JoinsAnew { worker, reason });
        if !again {
            self.hold(worker);
        }
    }

    /// All halt, and the snapshot that is being taken will not be whole: who waits for it has waited in vain.
    pub(super) fn joins_broken_off(&mut self) {
        let broken_off = match &self.intake {
            Intake::MakingRoom { .. } | Intake::Asked { .. } | Intake::Collecting { .. } => true,
            Intake::Idle | Intake::Serving { .. } => false,
        };
        let waiting = self
            .members
            .values_mut()
            .filter_map(Record::joining_mut)
            .filter(|_| broken_off);
        waiting.for_each(|joining| joining.attempts += 1);
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
        let (Intake::Collecting { taken, .. } | Intake::Serving { taken, .. }) = &self.intake else {
            return;
        };
        if taken.id == id {
            self.holder_gone(worker);
        }
    }

    pub(super) fn caught_up(&mut self, worker: WorkerId, id: SnapshotId, step: Step) {
        let joining = self.members.get_mut(&worker).and_then(Record::joining_mut);
        let Some(joining) = joining.filter(|joining| joining.copies == Some(id)) else {
            return;
        };
        joining.step = joining.step.max(step);
        joining.loaded = true;
        if !std::mem::replace(&mut joining.caught_up, true) {
            self.tell(JobEvent::CaughtUp { worker, step });
        }
    }

    /// A worker says where its state stands. False if it is no joiner.
    pub(super) fn joiner_at(&mut self, worker: WorkerId, step: Step) -> bool {
        let now = self.now;
        let Some(joining) = self.members.get_mut(&worker).and_then(Record::joining_mut) else {
            return false;
        };
        joining.step = step;
        joining.loaded |= joining.copies.is_some_and(|id| step >= id.step);
        if joining.loaded {
            joining.follows.get_or_insert(now);
        }
        true
    }

    pub(super) fn copy_failed(&mut self, worker: WorkerId, id: SnapshotId, reason: String) {
        if self.switching.contains(&worker) || self.planned(worker) == Planned::Ordered {
            // It is awaited at a boundary, and the sums up to there are out of its reach.
            return self.disturb();
        }
        self.unplan_with(worker);
        let joining = self.members.get_mut(&worker).and_then(Record::joining_mut);
        let Some(joining) = joining.filter(|joining| joining.copies == Some(id)) else {
            return;
        };
        joining.failed = Some(id);
        self.copied_in_vain(worker, reason);
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
        self.tell(JobEvent::Held { worker });
        if let Some(record) = self.members.get_mut(&worker) {
            record.place = Place::Called;
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
        match &self.intake {
            Intake::Idle => {}
            Intake::MakingRoom { at, .. } => {
                if now.saturating_sub(*at) >= ROOM_PATIENCE && self.trains_on() {
                    self.ask_for_snapshot();
                }
            }
            Intake::Asked { at } | Intake::Collecting { at, .. } => {
                let patience = SNAPSHOT_PATIENCE * (1 << self.asked_in_vain.min(SNAPSHOT_DOUBLINGS));
                if now.saturating_sub(*at) >= patience && self.trains_on() {
                    self.asked_in_vain += 1;
                    self.make_room();
                }
            }
            Intake::Serving { .. } if !self.switching.is_empty() => {}
            Intake::Serving { taken, told } => {
                let (id, told) = (taken.id, *told);
                let copying = || self.joiners().filter(|(_, joining)| joining.copies == Some(id));
                // Nobody copies the last state any more, but it is to be saved.
                let last = self.last_to_save().is_some();
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
                let late: Vec<WorkerId> = copying()
                    .filter(|(_, joining)| !joining.caught_up)
                    .map(|(worker, _)| worker)
                    .filter(|worker| {
                        let asked = self.members.get(worker).map(|record| record.asked);
                        asked.is_some_and(|asked| now.saturating_sub(asked) >= RESEND)
                    })
                    .collect();
                if (shares, from) != told {
                    if let Intake::Serving { told, .. } = &mut self.intake {
                        *told = (shares, from);
                    }
                    self.send_serve(Some(id), shares, from);
                }
                late.into_iter().for_each(|worker| self.send_copy(worker));
                self.hold_the_slow();
            }
        }
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
