//! What other workers may have of this one: shares of a snapshot, sums, and the state.

use bytes::Bytes;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::member::Event;
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::words::Step;

use super::copies::Haste;
use super::{HeldShare, KeptSum, StepDriver};
use crate::room::Room;

#[cfg(doc)]
use super::ActorCommand;
#[cfg(doc)]
use sardana_protocol::member::NetworkCommand;

impl StepDriver {
    /// Here is room for the shares that [`NetworkCommand::MakeRoom`] spoke of.
    pub fn room_made(&self, room: Room) {
        let mut inner = self.lock();
        inner.keeping.room_made(room);
        inner.handle(Event::RoomMade);
    }

    /// The shares that [`ActorCommand::Snapshot`] spoke of are being copied or hashed, and more of them are than when this was last said.
    pub fn still_hashing(&self, snapshot: SnapshotId) {
        self.lock().handle(Event::Hashing { snapshot });
    }

    /// The shares that [`ActorCommand::Snapshot`] spoke of are hashed: from now on they are there for others, unless another snapshot is
    /// wanted by now.
    pub fn snapshotted(&self, snapshot: SnapshotId, shares: Vec<HeldShare>) {
        self.lock().snapshotted(snapshot, shares);
        self.changed.notify_all();
    }

    /// The sum, if it is here.
    #[must_use]
    pub fn sum_of(&self, wanted: WantedSum) -> Option<KeptSum> {
        self.lock().keeping.sum(wanted)
    }

    /// The sum. Waits for it if it is yet to come. None once it cannot come any more: it was let go of, the state was
    /// replaced by another one, the sum of that step was added to another state, or the worker ends.
    pub async fn coming_sum(&self, wanted: WantedSum) -> Option<KeptSum> {
        let coming = self.lock().coming_sum(wanted);
        match coming {
            Ok(sum) => Some(sum),
            Err(receiver) => receiver?.await.ok(),
        }
    }

    /// A share of the snapshot at `step`, if it is held.
    #[must_use]
    pub fn share_of(&self, step: Step, share: Share) -> Option<HeldShare> {
        self.lock().keeping.share(step, share)
    }

    /// The state at `step`, copied by the training thread as soon as it is free. None if the state stands elsewhere by then, or the
    /// worker ends.
    pub async fn state_at(&self, step: Step) -> Option<Bytes> {
        let receiver = self.lock().copy(step, vec![Share::WHOLE], Haste::AtOnce)?;
        self.changed.notify_all();
        receiver.await.ok()?.pop()
    }
}
