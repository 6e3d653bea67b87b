//! A worker that says what is so is not left out as one that says what cannot be.

use sardana_protocol::membership::Loss;
use sardana_protocol::words::WorkerId;

use super::{Held, Law};

impl Law {
    /// An honest worker is lost in this way.
    pub(crate) fn honest_is_lost(&mut self, worker: WorkerId, cause: &Loss) -> Held {
        let believed = !matches!(cause, Loss::Senseless(_));
        self.check("an honest worker is believed", believed, || {
            format!("{worker} is left out: {cause}")
        })
    }
}
