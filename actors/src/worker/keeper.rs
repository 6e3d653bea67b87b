//! The step driver as the keeper of what other workers may fetch.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::member::Member;
use sardana_protocol::messages::Trailer;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, StatePieces, share_hash};
use sardana_protocol::words::{Generation, Step};

use super::driver::names_watched;
use super::{KeptSum, StepDriver};
use crate::peers::{Keeper, OutgoingShare, OutgoingSum};
use crate::room::Reserve;

impl Keeper for StepDriver {
    fn step(&self) -> Step {
        self.read(Member::step)
    }

    fn share_of(&self, step: Step, share: Share) -> Option<OutgoingShare> {
        let held = Self::share_of(self, step, share)?;
        Some(OutgoingShare {
            bytes: held.bytes,
            hash: held.hash,
        })
    }

    fn state_at(&self, step: Step) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(Self::state_at(self, step))
    }

    fn sum_of(&self, wanted: WantedSum) -> Option<Box<dyn OutgoingSum>> {
        Self::sum_of(self, wanted).map(outgoing)
    }

    fn coming_sum(&self, wanted: WantedSum) -> BoxFuture<'_, Option<Box<dyn OutgoingSum>>> {
        Box::pin(async move { Self::coming_sum(self, wanted).await.map(outgoing) })
    }

    fn hash(&self, pieces: &StatePieces, share: Share, bytes: &[u8]) -> StateHash {
        let names = names_watched(pieces, share, bytes, |hashed| Self::moved(self, hashed));
        share_hash(bytes.len() as u64, &names)
    }

    fn reserve(&self) -> &Reserve {
        Self::reserve(self)
    }

    fn moved(&self, bytes: usize) {
        Self::moved(self, bytes);
    }

    #[cfg(test)]
    fn moved_so_far(&self) -> u64 {
        Self::moved_so_far(self)
    }
}

fn outgoing(sum: KeptSum) -> Box<dyn OutgoingSum> {
    Box::new(sum)
}

impl OutgoingSum for KeptSum {
    fn bytes(&self) -> Bytes {
        Self::bytes(self)
    }

    fn trailer(&self) -> Trailer {
        self.closed().trailer
    }

    fn generation(&self) -> Generation {
        self.closed().lineage.last
    }

    fn hash(&self) -> StateHash {
        Self::hash(self)
    }
}
