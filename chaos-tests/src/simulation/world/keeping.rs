//! What members keep for joiners, and for members that load: shares of a snapshot, and sums.

use std::collections::BTreeMap;
use std::time::Duration;

use sardana_protocol::limits::HASHING_SIGN;
use sardana_protocol::member::Event;
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Step, WorkerId};

use super::World;
use super::process::Data;
use crate::simulation::calendar::Happening;
use crate::simulation::invariants::Violation;
use crate::simulation::model::{Sum, hash_of_share};

/// What a member keeps for others.
#[derive(Default)]
pub(crate) struct Keeping {
    pub(crate) admitted: Vec<WorkerId>,
    /// The newest snapshot, its shares, the state they are of, and whether they are hashed.
    snapshot: Option<(SnapshotId, Vec<Share>, u64, Hashed)>,
    pub(crate) sums: BTreeMap<Step, Sum>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hashed {
    NotBefore(Duration),
    Yes,
}

impl Keeping {
    pub(crate) fn let_go(&mut self, shares: bool, sums_before: Option<Step>) {
        if shares && let Some((_, shares, _, _)) = &mut self.snapshot {
            shares.clear();
        }
        match sums_before {
            Some(step) => self.sums.retain(|kept, _| *kept >= step),
            None => {
                self.sums.clear();
                self.snapshot = None;
            }
        }
    }

    /// The shares of this snapshot that are copied and hashed, and the state that they are of.
    pub(crate) fn shares_of(&self, id: SnapshotId) -> Option<(Vec<Share>, u64)> {
        let (held, shares, state, hashed) = self.snapshot.as_ref()?;
        (*held == id && *hashed == Hashed::Yes && !shares.is_empty()).then(|| (shares.clone(), *state))
    }

    pub(super) fn share(&self, id: SnapshotId, index: u32) -> Option<u64> {
        let (held, shares, state, hashed) = self.snapshot.as_ref()?;
        let has = *held == id && *hashed == Hashed::Yes && shares.iter().any(|share| share.index == index);
        has.then_some(*state)
    }
}

impl World {
    pub(super) fn make_room(&mut self, worker: WorkerId, wanted: bool) {
        if wanted {
            let delay = self.within(self.swarm.local);
            self.calendar.after(delay, Happening::RoomMade { worker });
        }
    }

    pub(super) fn room_made(&mut self, worker: WorkerId) {
        self.member(worker, Event::RoomMade, Data::None);
    }

    pub(super) fn take_snapshot(&mut self, worker: WorkerId, snapshot: SnapshotId, shares: Vec<Share>) {
        let delay = self.within(self.swarm.local);
        let done = self.now() + delay;
        if let Some(process) = self.processes.get_mut(&worker) {
            process.keeping.snapshot = Some((snapshot, shares, process.state, Hashed::NotBefore(done)));
            process.keeping.sums.clear();
            self.calendar
                .after(delay.min(HASHING_SIGN), Happening::Hashed { worker, snapshot });
        }
    }

    pub(super) fn hashed(&mut self, worker: WorkerId, snapshot: SnapshotId) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let Some((held, shares, state, hashed)) = &mut process.keeping.snapshot else {
            return;
        };
        // The training thread makes the copies.
        if *held != snapshot || process.hung {
            return;
        }
        let left = match *hashed {
            Hashed::NotBefore(done) => done.saturating_sub(self.calendar.now()),
            Hashed::Yes => Duration::ZERO,
        };
        if left > Duration::ZERO {
            self.calendar
                .after(left.min(HASHING_SIGN), Happening::Hashed { worker, snapshot });
            return self.member(worker, Event::Hashing { snapshot }, Data::None);
        }
        *hashed = Hashed::Yes;
        let hash = |share: &Share| (share.index, hash_of_share(*state, *share));
        let shares: Vec<(u32, StateHash)> = shares.iter().map(hash).collect();
        self.member(worker, Event::Snapshotted { snapshot, shares }, Data::None);
    }

    /// The sum that was applied last stays here for joiners that follow.
    pub(super) fn keep_sum(&mut self, worker: WorkerId, step: Step) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let held = match process.sum.clone().filter(|sum| sum.step == step) {
            Some(sum) => {
                process.keeping.sums.insert(step, sum);
                self.law.keeps(worker, process.keeping.sums.len(), self.swarm.keeps)
            }
            None => Err(Violation::new(
                "commands make sense",
                format!("{worker}: what is kept was applied"),
            )),
        };
        self.require(held);
    }
}
