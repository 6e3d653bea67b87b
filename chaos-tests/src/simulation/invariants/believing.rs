//! A worker that says what is so is not left out as one that says what cannot be.

use sardana_protocol::membership::Loss;
use sardana_protocol::words::{Generation, WorkerId};

use super::{Held, Law};

impl Law {
    /// An honest worker says hello with a state that a sum of `last` has led to, where the coordinator has numbered generations up to `newest`.
    pub(crate) fn honest_says_hello(&mut self, worker: WorkerId, last: Generation, newest: Generation) -> Held {
        self.check("an honest worker is believed", last <= newest, || {
            format!("{worker} has a sum of {last}, and the newest generation is {newest}")
        })
    }

    /// An honest worker is lost in this way.
    pub(crate) fn honest_is_lost(&mut self, worker: WorkerId, cause: &Loss) -> Held {
        let believed = !matches!(cause, Loss::Senseless(_));
        self.check("an honest worker is believed", believed, || {
            format!("{worker} is left out: {cause}")
        })
    }
}
