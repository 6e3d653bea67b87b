//! What joiners copy, and what members keep for them.

use std::collections::BTreeMap;

use sardana_protocol::member::Event;
use sardana_protocol::messages::{Snapshot, Trailer};
use sardana_protocol::snapshot::{Share, SnapshotId, holders_of, keepers_of};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Step, WorkerId};

use super::World;
use super::process::Data;
use super::stores::hash_of_share;

/// A sum as it was applied: its step, gradients and trailer.
pub(crate) type KeptSum = (Step, Vec<(u32, u64)>, Trailer);

/// What a joiner waits for.
#[derive(Default)]
pub(crate) struct Joining {
    pub(crate) copying: Option<Snapshot>,
    pub(crate) following: Option<(Step, Snapshot)>,
    pub(crate) aside: Option<Data>,
}

/// What a member keeps.
#[derive(Default)]
pub(crate) struct Keeping {
    pub(crate) admitted: Vec<WorkerId>,
    snapshot: Option<(SnapshotId, Vec<Share>, u64)>,
    /// Whether room was asked for, which is not said yet.
    pub(crate) makes_room: bool,
    /// What is not said yet.
    unsaid: Option<(SnapshotId, Vec<(u32, StateHash)>)>,
    pub(crate) sums: BTreeMap<Step, KeptSum>,
}

impl Keeping {
    pub(crate) fn take(&mut self, snapshot: SnapshotId, shares: &[Share], state: u64) {
        let hashes = shares.iter().map(|share| (share.index, hash_of_share(state, *share)));
        self.unsaid = Some((snapshot, hashes.collect()));
        self.snapshot = Some((snapshot, shares.to_vec(), state));
        self.sums.clear();
    }

    pub(crate) fn let_go(&mut self, shares: bool, sums_before: Option<Step>) {
        if shares && let Some((_, shares, _)) = &mut self.snapshot {
            shares.clear();
        }
        match sums_before {
            Some(step) => self.sums.retain(|kept, _| *kept >= step),
            None => {
                self.sums.clear();
                self.snapshot = None;
                self.unsaid = None;
            }
        }
    }

    /// What it holds, to be written.
    pub(super) fn held(&self) -> Option<(SnapshotId, Vec<Share>, u64)> {
        self.snapshot.clone()
    }

    fn share(&self, joiner: WorkerId, id: SnapshotId, index: u32) -> Option<u64> {
        let (held, shares, state) = self.snapshot.as_ref()?;
        let has = *held == id && self.admitted.contains(&joiner) && shares.iter().any(|share| share.index == index);
        has.then_some(*state)
    }
}

/// What a keeper says to one that follows.
enum Kept {
    Here(KeptSum, Step),
    NotYet,
    Never,
}

impl World {
    /// A member has found room for its shares, or has hashed them.
    pub(super) fn tell_snapshot(&mut self, worker: WorkerId) {
        let keeping = self.processes.get_mut(&worker).map(|process| &mut process.keeping);
        if keeping.is_some_and(|keeping| std::mem::take(&mut keeping.makes_room)) {
            return self.member(worker, Event::RoomMade, None);
        }
        let unsaid = self
            .processes
            .get_mut(&worker)
            .and_then(|process| process.keeping.unsaid.take());
        if let Some((snapshot, shares)) = unsaid {
            self.member(worker, Event::Snapshotted { snapshot, shares }, None);
        }
    }

    /// A joiner gets what it has asked for, or learns that no worker has it.
    pub(super) fn copy(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.get(&worker) else { return };
        let answer = match (&process.joining.copying, &process.joining.following) {
            (Some(snapshot), _) => Some(self.copied(worker, snapshot)),
            (None, Some((step, snapshot))) => self.followed(worker, *step, snapshot),
            (None, None) => None,
        };
        let Some((event, data)) = answer else { return };
        if let Some(process) = self.processes.get_mut(&worker) {
            process.joining.copying = None;
            process.joining.following = None;
        }
        self.member(worker, event, data);
    }

    fn copied(&self, joiner: WorkerId, snapshot: &Snapshot) -> (Event, Option<Data>) {
        let of = u32::try_from(snapshot.holders.len()).expect("few holders");
        let mut states = Vec::new();
        for index in 0..of {
            let state = holders_of(index, of).into_iter().find_map(|place| {
                let holder = snapshot.holders[place as usize]?;
                self.processes.get(&holder.worker)?.keeping.share(joiner, snapshot.id, index)
            });
            let Some(state) = state else {
                let reason = format!("nobody has share {index}");
                return (
                    Event::CopyFailed {
                        snapshot: snapshot.id,
                        reason,
                    },
                    None,
                );
            };
            let hash = hash_of_share(state, Share { index, of });
            if hash != snapshot.shares[index as usize] && self.liars.is_some() {
                let (snapshot, reason) = (snapshot.id, format!("share {index} is another one than was told"));
                return (Event::CopyFailed { snapshot, reason }, None);
            }
            assert_eq!(hash, snapshot.shares[index as usize], "seed {}", self.law.seed);
            states.push(state);
        }
        assert!(
            states.windows(2).all(|pair| pair[0] == pair[1]),
            "shares of one state, seed {}",
            self.law.seed
        );
        self.law.same_state(snapshot.id.step, states[0]);
        (Event::Copied { snapshot: snapshot.id }, Some(Data::State(states[0])))
    }

    fn followed(&self, joiner: WorkerId, step: Step, snapshot: &Snapshot) -> Option<(Event, Option<Data>)> {
        let of = u32::try_from(snapshot.holders.len()).expect("few holders");
        let mut waits = false;
        for place in keepers_of(step, of) {
            let Some(keeper) = snapshot.holders[place as usize] else {
                continue;
            };
            match self.kept(joiner, keeper.worker, snapshot.id, step) {
                Kept::Here(sum, keeper_at) => {
                    let event = Event::Followed {
                        step,
                        trailer: sum.2,
                        keeper_at,
                    };
                    return Some((event, Some(Data::Sum(sum.0, sum.1, sum.2))));
                }
                Kept::NotYet => waits = true,
                Kept::Never => {}
            }
        }
        let reason = format!("nobody has the sum of {step}");
        let failed = Event::CopyFailed {
            snapshot: snapshot.id,
            reason,
        };
        (!waits).then_some((failed, None))
    }

    fn kept(&self, joiner: WorkerId, keeper: WorkerId, id: SnapshotId, step: Step) -> Kept {
        let Some(process) = self.processes.get(&keeper) else {
            return Kept::Never;
        };
        let keeping = &process.keeping;
        let named = keeping.admitted.contains(&joiner);
        let newest = process.sum.as_ref().filter(|sum| sum.0 == step);
        match keeping.sums.get(&step).or(newest) {
            Some(sum) if named => Kept::Here(sum.clone(), process.member.step()),
            None if named
                && keeping.snapshot.as_ref().is_some_and(|(held, ..)| *held == id)
                && process.member.step() <= step =>
            {
                Kept::NotYet
            }
            Some(_) | None => Kept::Never,
        }
    }
}
