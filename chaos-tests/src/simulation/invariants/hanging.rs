//! Only a worker that hangs is left out as one that hangs: its training thread has been at one thing for longer than it is given for it, or
//! nothing came of the state that it fetches.

use std::time::Duration;

use sardana_protocol::limits::{HALT_PATIENCE, STALL_LEAST, STALL_SHARDS, STALL_UNKNOWN};
use sardana_protocol::words::WorkerId;

use super::{Held, Law};

/// A coordinator's clock may go twice as fast as it should.
const FASTEST: u32 = 2;

/// What a worker's training thread does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Doing {
    /// It has been at one thing for so long, or was until just now. Nothing, if it waits for what comes next.
    Works(Duration),
    /// It comes to a state, of which nothing has moved for so long.
    Loads(Duration),
    /// It will never be done, or waits for a worker that will not, or its process stands still.
    Hangs,
}

impl Law {
    /// The coordinator wants a worker killed that keeps the others from training, or from halting. `given`: how long it must be given, by
    /// what it is known to do.
    pub(crate) fn kills(&mut self, worker: WorkerId, doing: Doing, given: Duration) -> Held {
        let (lasts, given) = match doing {
            Doing::Works(lasts) => (lasts, given),
            Doing::Loads(stood) => (stood, STALL_UNKNOWN),
            Doing::Hangs => return Ok(()),
        };
        self.check("who works is not left out as one who hangs", lasts * FASTEST >= given, || {
            format!("{worker} is killed after {lasts:?} at one thing ({doing:?}), for which it is to be given {given:?}")
        })
    }
}

/// How long a worker must be given for what it does, while others wait for it. `gradient`: how long a gradient takes it at least, if it has
/// told how fast it is.
pub(crate) fn given(gradient: Option<Duration>, halting: bool) -> Duration {
    let gradients = gradient.map(|gradient| gradient * STALL_SHARDS);
    match (halting, gradients) {
        (true, gradients) => HALT_PATIENCE.max(gradients.unwrap_or_default()),
        (false, Some(gradients)) => STALL_LEAST.max(gradients),
        (false, None) => STALL_UNKNOWN,
    }
}
