//! Only who hangs is left out as one who hangs: its training thread has been at one thing for longer than anybody is given for it.

use std::time::Duration;

use sardana_protocol::limits::{HALT_PATIENCE, STALL_LEAST};
use sardana_protocol::words::WorkerId;

use super::{Law, Violation};

/// A coordinator's clock may go twice as fast as it should.
const FASTEST: u32 = 2;

/// What a worker's training thread does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Doing {
    /// It has been at one thing for so long, or was until just now. Nothing, if it waits for what comes next.
    Works(Duration),
    /// It will never be done, or waits for one that will not, or its process stands still.
    Hangs,
}

impl Law {
    /// The coordinator wants a worker killed that keeps the others from training, or from halting.
    pub(crate) fn kills(&mut self, worker: WorkerId, doing: Doing, halting: bool) -> Result<(), Violation> {
        let patience = if halting { HALT_PATIENCE } else { STALL_LEAST };
        let holds = match doing {
            Doing::Works(lasts) => lasts * FASTEST >= patience,
            Doing::Hangs => true,
        };
        self.check("who works is not left out as one who hangs", holds, || {
            let waits = if halting { "all halt" } else { "the others wait" };
            format!("{worker} is killed while {waits}, and does this: {doing:?}")
        })
    }
}
