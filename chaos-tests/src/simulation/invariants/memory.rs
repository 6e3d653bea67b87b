//! What a member keeps for those who join is bounded.

use sardana_protocol::words::WorkerId;

use super::{Law, Violation};

impl Law {
    /// A member keeps so many sums, of at most `most`.
    pub(crate) fn keeps(&mut self, worker: WorkerId, sums: usize, most: u32) -> Result<(), Violation> {
        self.check("memory is bounded", sums <= most as usize, || {
            format!("{worker} keeps {sums} sums, at most {most} are allowed")
        })
    }
}
