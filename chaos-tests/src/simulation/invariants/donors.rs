//! A donor has what others are told to fetch from it.

use sardana_protocol::words::{Step, WorkerId};

use super::{Held, Law};

impl Law {
    /// A member asks a donor of its generation for the sum or the state of `step`. `refuses`: whether the donor, which is there, does not
    /// have it.
    pub(crate) fn donates(&mut self, donor: WorkerId, to: WorkerId, step: Step, refuses: bool) -> Held {
        self.check("a donor has what is fetched", !refuses, || {
            format!("{to} is told to fetch {step} from {donor}, which does not have it")
        })
    }
}
