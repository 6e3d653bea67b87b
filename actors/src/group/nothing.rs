//! What a group's worker keeps for others: nothing. What its program has it passes on by operations of the group.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, StatePieces};
use sardana_protocol::words::Step;

use crate::peers::{Keeper, OutgoingShare, OutgoingSum};
use crate::room::Reserve;

/// Keeps nothing.
#[derive(Debug, Default)]
pub(super) struct Nothing {
    reserve: Reserve,
}

impl Keeper for Nothing {
    fn step(&self) -> Step {
        Step::ZERO
    }

    fn share_of(&self, _: Step, _: Share) -> Option<OutgoingShare> {
        None
    }

    fn state_at(&self, _: Step) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(async { None })
    }

    fn sum_of(&self, _: WantedSum) -> Option<Box<dyn OutgoingSum>> {
        None
    }

    fn coming_sum(&self, _: WantedSum) -> BoxFuture<'_, Option<Box<dyn OutgoingSum>>> {
        Box::pin(async { None })
    }

    fn hash(&self, pieces: &StatePieces, share: Share, bytes: &[u8]) -> StateHash {
        pieces.hash_of(share, bytes)
    }

    fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    fn moved(&self, _: usize) {}

    #[cfg(test)]
    fn moved_so_far(&self) -> u64 {
        0
    }
}
