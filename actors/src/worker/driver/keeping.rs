//! What a worker keeps for others: the newest sum for a member that is behind, shares of a snapshot and the sums since for joiners, and
//! the tasks that wait for a sum to come. Knows no names.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sardana_collectives::gradient::Sum;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::lineage::{Lineage, WantedSum};
use sardana_protocol::messages::Trailer;
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::state::{StateHash, StatePieces, share_hash};
use sardana_protocol::words::Step;
use tokio::sync::oneshot;

use crate::room::Room;

/// A finished sum that may be handed to others.
#[derive(Debug, Clone)]
pub struct KeptSum {
    kept: Arc<Hashed>,
    closed: Closed,
}

/// What is said of a finished sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// The orders for the boundary after it.
    pub trailer: Trailer,
    /// Of the state that it leads to.
    pub lineage: Lineage,
}

/// A sum, and its hash once somebody has asked for it.
#[derive(Debug)]
struct Hashed {
    sum: Sum,
    hash: OnceLock<StateHash>,
}

impl Hashed {
    const fn new(sum: Sum) -> Self {
        Self {
            sum,
            hash: OnceLock::new(),
        }
    }
}

impl KeptSum {
    pub(super) fn new(sum: Sum, closed: Closed) -> Self {
        Self {
            kept: Arc::new(Hashed::new(sum)),
            closed,
        }
    }

    /// Another sum in the same memory. What was there is returned, unless a task still reads it.
    fn renewed(mut self, sum: Sum, closed: Closed) -> (Self, Option<Sum>) {
        match Arc::get_mut(&mut self.kept) {
            Some(kept) => {
                let old = std::mem::replace(kept, Hashed::new(sum));
                (Self { closed, ..self }, Some(old.sum))
            }
            None => {
                // It was applied, and is kept for others, who read it on the host.
                self.sum().let_go_elsewhere();
                (Self::new(sum, closed), None)
            }
        }
    }

    /// The sum.
    #[must_use]
    pub fn sum(&self) -> &Sum {
        &self.kept.sum
    }

    /// The sum, unless a task still reads it.
    pub(super) fn into_sum(self) -> Option<Sum> {
        Arc::into_inner(self.kept).map(|kept| kept.sum)
    }

    /// What is said of it.
    #[must_use]
    pub const fn closed(&self) -> Closed {
        self.closed
    }

    /// Whether it is the sum that `wanted` speaks of.
    fn is(&self, wanted: WantedSum) -> bool {
        self.sum().step() == wanted.step && self.closed.lineage.leads_on_from(wanted.before)
    }

    /// The hash of its bytes. The first call computes it, which takes a while: not for a thread that others wait for.
    #[must_use]
    pub fn hash(&self) -> StateHash {
        *self.kept.hash.get_or_init(|| StateHash::of(self.sum().bytes()))
    }

    /// Its bytes, which stay as they are for as long as these are held. Not copied, unless other workers have some of them: not for a thread that others
    /// wait for.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        struct Owner(Arc<Hashed>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                self.0.sum.bytes()
            }
        }
        Bytes::from_owner(Owner(Arc::clone(&self.kept)))
    }
}

/// One share of a snapshot that is held.
#[derive(Debug, Clone)]
pub struct HeldShare {
    /// The share.
    pub share: Share,
    /// Its bytes.
    pub bytes: Bytes,
    /// The names of its pieces, which need not be hashed once more.
    pub pieces: Arc<[PieceHash]>,
    /// Their hash.
    pub hash: StateHash,
}

impl HeldShare {
    /// A share that has these bytes, hashed, which takes a while: not for a thread that others wait for.
    #[must_use]
    pub fn new(pieces: &StatePieces, share: Share, bytes: Bytes) -> Self {
        Self::new_watched(pieces, share, bytes, |_| ())
    }

    /// The same. `hashed` is told how many bytes more are hashed.
    pub(crate) fn new_watched(pieces: &StatePieces, share: Share, bytes: Bytes, hashed: impl Fn(usize)) -> Self {
        let names = names_watched(pieces, share, &bytes, hashed);
        Self::named(share, bytes, names)
    }

    /// A share whose pieces have these names.
    pub(crate) fn named(share: Share, bytes: Bytes, names: Vec<PieceHash>) -> Self {
        Self {
            share,
            hash: share_hash(bytes.len() as u64, &names),
            pieces: names.into(),
            bytes,
        }
    }
}

/// The names of a share's pieces. `hashed` is told how many bytes more are hashed: a whole state takes minutes.
pub(crate) fn names_watched(pieces: &StatePieces, share: Share, bytes: &[u8], hashed: impl Fn(usize)) -> Vec<PieceHash> {
    let name = |range: Range<usize>| {
        let piece = bytes.get(range).unwrap_or_default();
        hashed(piece.len());
        PieceHash::of(piece)
    };
    pieces.pieces_in(share).map(name).collect()
}

#[derive(Debug, Default)]
pub(super) struct Keeping {
    newest: Option<KeptSum>,
    sums: BTreeMap<Step, KeptSum>,
    /// The newest snapshot that was asked for, and what is hashed of it.
    snapshot: Option<(SnapshotId, Vec<HeldShare>)>,
    waiting: Vec<(WantedSum, oneshot::Sender<KeptSum>)>,
    copy_to: CopyTo,
}

/// Where a snapshot to come will be copied to.
#[derive(Debug, Default)]
enum CopyTo {
    #[default]
    NotWanted,
    Wanted,
    Made(Room),
}

impl Keeping {
    /// A snapshot is to come: what room there was is not for that snapshot.
    pub(super) fn want_room(&mut self) {
        self.copy_to = CopyTo::Wanted;
    }

    pub(super) fn room_made(&mut self, room: Room) {
        match self.copy_to {
            CopyTo::Wanted => self.copy_to = CopyTo::Made(room),
            // It was made for a snapshot that does not come, or has come.
            CopyTo::NotWanted | CopyTo::Made(_) => {}
        }
    }

    /// Gives the room away, if there is any.
    pub(super) fn take_room(&mut self) -> Option<Room> {
        match std::mem::take(&mut self.copy_to) {
            CopyTo::Made(room) => Some(room),
            CopyTo::NotWanted | CopyTo::Wanted => None,
        }
    }

    /// The training thread applies this sum now. Each task that waits for it gets it. Returned are what is applied, and the sum before, unless a
    /// task still reads that.
    pub(super) fn renew(&mut self, sum: Sum, closed: Closed) -> (KeptSum, Option<Sum>) {
        let (newest, old) = match self.newest.take() {
            Some(newest) => newest.renewed(sum, closed),
            None => (KeptSum::new(sum, closed), None),
        };
        let step = newest.sum().step();
        // A task that waits for a sum of this step that is added to another state is told that there is none.
        for (wanted, waiter) in self.waiting.extract_if(.., |(wanted, _)| wanted.step == step) {
            if newest.is(wanted) {
                // A task that has given up needs nothing.
                let _ = waiter.send(newest.clone());
            }
        }
        self.newest = Some(newest.clone());
        (newest, old)
    }

    /// Keeps the newest sum beyond the next one, if it is that of `step`.
    pub(super) fn keep(&mut self, step: Step) {
        if let Some(sum) = self.newest.as_ref().filter(|sum| sum.sum().step() == step) {
            self.sums.insert(step, sum.clone());
        }
    }

    pub(super) fn sum(&self, wanted: WantedSum) -> Option<KeptSum> {
        let sums = [self.newest.as_ref(), self.sums.get(&wanted.step)];
        sums.into_iter().flatten().find(|sum| sum.is(wanted)).cloned()
    }

    /// Is told when that sum is there. The channel ends if that cannot be any more.
    pub(super) fn wait(&mut self, wanted: WantedSum) -> oneshot::Receiver<KeptSum> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.retain(|(_, waiter)| !waiter.is_closed());
        let is_past = self.newest.as_ref().is_some_and(|newest| newest.sum().step() == wanted.step);
        if !is_past {
            self.waiting.push((wanted, sender));
        }
        receiver
    }

    /// No task is told any more of sums before `step`; of none at all if there is no step.
    pub(super) fn disappoint(&mut self, before: Option<Step>) {
        self.waiting
            .retain(|(wanted, _)| before.is_some_and(|before| wanted.step >= before));
    }

    /// Starts anew with this snapshot. Returns the sums that are not kept any more.
    pub(super) fn begin(&mut self, snapshot: SnapshotId) -> Vec<KeptSum> {
        self.snapshot = Some((snapshot, Vec::new()));
        std::mem::take(&mut self.sums).into_values().collect()
    }

    /// Whether others are to have sums that come, besides the newest.
    pub(super) const fn serves(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Holds these shares, if they are of the snapshot that is wanted. Returns whether they are.
    pub(super) fn hold(&mut self, snapshot: SnapshotId, shares: Vec<HeldShare>) -> bool {
        match &mut self.snapshot {
            Some((wanted, held)) if *wanted == snapshot => {
                *held = shares;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn share(&self, step: Step, share: Share) -> Option<HeldShare> {
        let (_, held) = self.snapshot.as_ref().filter(|(snapshot, _)| snapshot.step == step)?;
        held.iter().find(|held| held.share == share).cloned()
    }

    /// All shares that are held of this snapshot.
    pub(super) fn all_of(&self, snapshot: SnapshotId) -> Vec<HeldShare> {
        let held = self.snapshot.as_ref().filter(|(wanted, _)| *wanted == snapshot);
        held.map_or_else(Vec::new, |(_, shares)| shares.clone())
    }

    pub(super) fn let_go_of_shares(&mut self) {
        self.snapshot = None;
        self.copy_to = CopyTo::NotWanted;
    }

    /// Returns the sums that are not kept any more: those before a step, or all.
    pub(super) fn let_go_of_sums(&mut self, before: Option<Step>) -> Vec<KeptSum> {
        self.disappoint(before);
        let kept = before.map_or_else(BTreeMap::new, |step| self.sums.split_off(&step));
        std::mem::replace(&mut self.sums, kept).into_values().collect()
    }

    /// The state has been replaced as a whole: the newest sum is not the one that led to it.
    pub(super) fn forget_newest(&mut self) {
        self.newest = None;
    }
}

#[cfg(test)]
impl Keeping {
    pub(super) fn kept(&self) -> Vec<Step> {
        self.sums.keys().copied().collect()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.iter().filter(|(_, waiter)| !waiter.is_closed()).count()
    }
}
