//! GEN-1: at most one generation is current; its number is greater than any before, across coordinator restarts.

use sardana_protocol::words::{Generation, WorkerId};

use super::{Held, Law};

impl Law {
    /// A generation was formed, or switched to.
    pub(crate) fn newer(&mut self, generation: Generation) -> Held {
        let newest = self.newest;
        self.newest = newest.max(generation);
        self.unheard = false;
        self.check("GEN-1", generation > newest, || format!("{generation} after {newest}"))
    }

    /// A generation is formed: all its members have left those before. `training`: a member that has not.
    pub(crate) fn all_have_halted(&mut self, generation: Generation, training: Option<WorkerId>) -> Held {
        self.check("all have halted first", training.is_none(), || {
            format!("{generation} is formed, and {training:?} still trains in another")
        })
    }

    /// A generation was adopted: it may have been begun unseen. A coordinator that has forgotten the newest may find an older one
    /// first, if that is whole; members of the newest then say so. Its next lives know no more than it did.
    pub(crate) fn adopted(&mut self, generation: Generation, forgetful: bool) -> Held {
        let newest = self.newest;
        self.newest = newest.max(generation);
        let excused = forgetful || self.unheard;
        self.unheard = excused && generation < newest;
        if self.unheard {
            self.excuse("a coordinator without its records adopts an older generation");
            return Ok(());
        }
        self.check("GEN-1, adopting", generation >= newest, || {
            format!("{generation} is adopted after {newest}")
        })
    }
}
