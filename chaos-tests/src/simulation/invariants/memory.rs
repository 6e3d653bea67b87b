//! What a member keeps for joiners is bounded, and so is what it computes.

use sardana_protocol::memory::GradientMemory;
use sardana_protocol::words::{ShardRange, WorkerId};

use super::{Held, Law};

impl Law {
    /// A worker has these pieces.
    pub(crate) fn holds(&mut self, worker: WorkerId, pieces: &[ShardRange], memory: GradientMemory) -> Held {
        let most = memory.pieces();
        self.check("memory is bounded", pieces.len() <= most as usize, || {
            format!("{worker} has room for {most} pieces and holds {pieces:?}")
        })
    }

    /// A member keeps so many sums, of at most `most`.
    pub(crate) fn keeps(&mut self, worker: WorkerId, sums: usize, most: u32) -> Held {
        self.check("memory is bounded", sums <= most as usize, || {
            format!("{worker} keeps {sums} sums, at most {most} are allowed")
        })
    }
}
