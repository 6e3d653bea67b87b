//! What the tests of membership see of, and do to, the manager of checkpoints beyond what the machine itself does.

use std::time::Duration;

use super::CheckpointManager;
use super::saves::{Described, Written};
use crate::checkpoint::{DepotId, PieceHash};
use crate::holders::Taken;
use crate::state::StateSize;
use crate::words::WorkerId;

impl CheckpointManager {
    /// Which attempt is under way on exactly these checkpoint actors.
    pub(crate) fn attempt_on(&self, depots: &[u64]) -> Option<u32> {
        let saving = self.saving.as_ref()?;
        let same = saving.depots.iter().map(|one| one.depot.get()).eq(depots.iter().copied());
        same.then_some(saving.attempt)
    }

    /// How many shares of the checkpoint under way are written, in whole or in part; none if none is under way.
    pub(crate) fn shares_written(&self) -> Option<usize> {
        self.saving.as_ref().map(|saving| saving.shares.len())
    }

    /// A checkpoint actor could not keep what it should. Until when is it done without?
    pub(crate) fn fails(&mut self, depot: DepotId, now: Duration) -> Duration {
        let known = self.depots.get_mut(&depot).expect("it is there");
        known.failed(now);
        known.rests
    }

    /// How often in a row a checkpoint actor could not keep what it should.
    pub(crate) fn failures_of(&self, depot: DepotId) -> u32 {
        self.depots[&depot].failures
    }

    /// All shares of `taken`, which is being saved, are written: each worker has written one piece of 8 bytes of a state of this size.
    pub(crate) fn are_written(&mut self, taken: Taken, by: &[(WorkerId, StateSize, PieceHash)]) {
        let written = |&(by, state, piece): &(WorkerId, StateSize, PieceHash)| Written {
            by,
            bytes: 8,
            described: Described {
                description: vec![PieceHash::of(b"names")],
                state,
            },
            pieces: vec![piece],
            whole: true,
        };
        let saving = self.saving.as_mut().expect("one is being saved");
        saving.taken = taken;
        saving.shares = (0..).zip(by.iter().map(written)).collect();
    }
}
