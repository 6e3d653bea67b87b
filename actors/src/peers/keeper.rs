//! What a worker has that others may fetch, as this room sees it. Must not know what keeps it, nor why.

use std::fmt::Debug;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::messages::Trailer;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, StatePieces};
use sardana_protocol::words::{Generation, Step};

use crate::room::Reserve;

/// Keeps a worker's state and sums.
pub trait Keeper: Debug + Send + Sync {
    /// At which step the state stands.
    fn step(&self) -> Step;

    /// A share of the snapshot at `step`, if it is held.
    fn share_of(&self, step: Step, share: Share) -> Option<OutgoingShare>;

    /// The state at `step`, as soon as it can be copied. None if the state stands elsewhere by then, or the worker ends.
    fn state_at(&self, step: Step) -> BoxFuture<'_, Option<Bytes>>;

    /// The sum, if it is here.
    fn sum_of(&self, wanted: WantedSum) -> Option<Box<dyn OutgoingSum>>;

    /// The sum. Waits for it if it is yet to come. None once it cannot come any more.
    fn coming_sum(&self, wanted: WantedSum) -> BoxFuture<'_, Option<Box<dyn OutgoingSum>>>;

    /// The hash of a share that has these bytes, which count as moved as they are hashed. Takes a while: not for a thread that others
    /// wait for.
    fn hash(&self, pieces: &StatePieces, share: Share, bytes: &[u8]) -> StateHash;

    /// Memory for a state that comes, and for copies of the state.
    fn reserve(&self) -> &Reserve;

    /// So many more bytes of a state have come, or were hashed or compared: the worker is at work.
    fn moved(&self, bytes: usize);

    /// Bytes of which [`Self::moved`] was told.
    #[cfg(test)]
    fn moved_so_far(&self) -> u64;
}

/// A share of a snapshot, to be given to others.
#[derive(Debug, Clone)]
pub struct OutgoingShare {
    /// Its bytes.
    pub bytes: Bytes,
    /// Their hash.
    pub hash: StateHash,
}

/// The finished sum of a step, to be given to others.
pub trait OutgoingSum: Send + Sync {
    /// Its bytes, not copied.
    fn bytes(&self) -> Bytes;

    /// The orders for the boundary after it.
    fn trailer(&self) -> Trailer;

    /// The generation whose sum it is.
    fn generation(&self) -> Generation;

    /// The hash of its bytes. May take a while: not for a thread that others wait for.
    fn hash(&self) -> StateHash;
}
