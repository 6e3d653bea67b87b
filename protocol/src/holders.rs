//! A snapshot as its holders have told it: which of them has what, and which are gone.

use crate::messages::{MemberAddress, Snapshot};
use crate::snapshot::{SnapshotId, holders_of};
use crate::state::StateHash;
use crate::words::WorkerId;

/// A snapshot as its holders have told it.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) id: SnapshotId,
    /// By place.
    holders: Vec<Holder>,
    /// By place: the hash, and the holder that told it first.
    shares: Vec<Option<(StateHash, WorkerId)>>,
}

/// Two holders of a share that have different bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disagreement {
    pub(crate) share: u32,
    pub(crate) holders: [WorkerId; 2],
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    member: MemberAddress,
    here: Here,
}

/// Whether a holder has what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    Unknown,
    Yes,
    Gone,
}

impl Taken {
    /// Of a snapshot that these members hold, by place. `is_here`: whether a member is still there.
    pub(crate) fn new(
        id: SnapshotId,
        members: impl Iterator<Item = MemberAddress>,
        is_here: impl Fn(WorkerId) -> bool,
    ) -> Self {
        let holder = |member: MemberAddress| Holder {
            member,
            here: if is_here(member.worker) { Here::Unknown } else { Here::Gone },
        };
        let holders: Vec<Holder> = members.map(holder).collect();
        Self {
            id,
            shares: vec![None; holders.len()],
            holders,
        }
    }

    /// What `worker` has copied: of shares that it does not hold it has nothing to say. True if it is a holder.
    ///
    /// # Errors
    /// A share that another holder has with other bytes.
    pub(crate) fn told(&mut self, worker: WorkerId, shares: Vec<(u32, StateHash)>) -> Result<bool, Disagreement> {
        let Some(place) = self.place_of(worker) else {
            return Ok(false);
        };
        self.holders[place].here = Here::Yes;
        let of = self.holders();
        for (index, hash) in shares {
            let own = holders_of(index.min(of), of).contains(&u32::try_from(place).unwrap_or(u32::MAX));
            let Some(share) = self.shares.get_mut(index as usize).filter(|_| own) else {
                continue;
            };
            let (before, by) = *share.get_or_insert((hash, worker));
            if before != hash {
                let holders = [by, worker];
                return Err(Disagreement { share: index, holders });
            }
        }
        Ok(true)
    }

    /// Whether `worker` is a holder that has yet to tell what it has.
    pub(crate) fn awaits(&self, worker: WorkerId) -> bool {
        let place = self.place_of(worker);
        place.is_some_and(|place| self.holders[place].here == Here::Unknown)
    }

    /// How many holders have told what they have, or are gone.
    pub(crate) fn settled(&self) -> usize {
        self.holders.iter().filter(|holder| holder.here != Here::Unknown).count()
    }

    /// Does without the holders that have yet to tell what they have, if others have told all of it. True if it is settled then.
    pub(crate) fn do_without_the_silent(&mut self) -> bool {
        let told = |index: u32| self.share(index).is_some() && self.writers(index).next().is_some();
        if !(0..self.holders()).all(told) {
            return false;
        }
        for holder in self.holders.iter_mut().filter(|holder| holder.here == Here::Unknown) {
            holder.here = Here::Gone;
        }
        true
    }

    /// `worker` is gone, or has dropped what it held. True if it was a holder.
    pub(crate) fn gone(&mut self, worker: WorkerId) -> bool {
        let place = self.place_of(worker);
        if let Some(place) = place {
            self.holders[place].here = Here::Gone;
        }
        place.is_some()
    }

    /// All members that took it.
    pub(crate) fn all(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.holders.iter().map(|holder| holder.member.worker)
    }

    /// The holders that are there.
    pub(crate) fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        let here = self.holders.iter().filter(|holder| holder.here == Here::Yes);
        here.map(|holder| holder.member.worker)
    }

    /// The hash of a share.
    pub(crate) fn share(&self, index: u32) -> Option<StateHash> {
        let share = self.shares.get(index as usize).copied().flatten();
        share.map(|(hash, _)| hash)
    }

    /// The holders that may write a share to depots: those that are there, the first choice in front.
    pub(crate) fn writers(&self, index: u32) -> impl Iterator<Item = WorkerId> + '_ {
        let places = holders_of(index, self.holders()).into_iter();
        let here = places.filter_map(|place| self.holders.get(place as usize).filter(|holder| holder.here == Here::Yes));
        here.map(|holder| holder.member.worker)
    }

    pub(crate) fn holders(&self) -> u32 {
        u32::try_from(self.holders.len()).unwrap_or(u32::MAX)
    }

    fn place_of(&self, worker: WorkerId) -> Option<usize> {
        self.holders.iter().position(|holder| holder.member.worker == worker)
    }

    /// Whether every holder has told what it has, or is gone.
    pub(crate) fn is_settled(&self) -> bool {
        self.holders.iter().all(|holder| holder.here != Here::Unknown)
    }

    /// Whether each share, and each sum to come, has a holder.
    pub(crate) fn is_whole(&self) -> bool {
        let of = self.holders();
        let held = |index: u32| {
            let mut places = holders_of(index, of).into_iter();
            places.any(|place| self.holders[place as usize].here != Here::Gone)
        };
        (0..of).all(held)
    }

    /// What a joiner is told to copy; none while a share's hash is unknown.
    pub(crate) fn order(&self) -> Option<Snapshot> {
        Some(Snapshot {
            id: self.id,
            holders: self
                .holders
                .iter()
                .map(|holder| (holder.here == Here::Yes).then_some(holder.member))
                .collect(),
            shares: self
                .shares
                .iter()
                .map(|share| share.map(|(hash, _)| hash))
                .collect::<Option<_>>()?,
        })
    }
}
