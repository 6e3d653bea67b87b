//! A joiner that follows asks for one sum after the other.

use sardana_protocol::words::WorkerId;

use super::{Law, Violation};

impl Law {
    /// A joiner follows. `goes_on`: whether it waits for a sum, or for none any more.
    pub(crate) fn follows(&mut self, worker: WorkerId, goes_on: bool) -> Result<(), Violation> {
        self.check("who follows asks on", goes_on, || {
            format!("{worker} follows, and neither applies a sum nor waits for one")
        })
    }
}
