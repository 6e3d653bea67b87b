//! A planned generation is switched to only once each of its members has its links: until then the others train on undisturbed.

use std::collections::BTreeSet;

use sardana_protocol::messages::Form;
use sardana_protocol::words::{Generation, WorkerId};

use super::{Held, Law};

impl Law {
    /// The coordinator has sent an order to prepare.
    pub(super) fn is_planned(&mut self, worker: WorkerId, form: &Form) {
        let (planned, members) = &mut self.planned;
        if *planned != form.generation {
            (*planned, *members) = (form.generation, BTreeSet::new());
        }
        members.insert(worker);
    }

    /// A worker says that it has its links.
    pub(super) fn says_ready(&mut self, worker: WorkerId, generation: Generation) {
        self.ready.retain(|(_, before)| *before >= self.newest);
        self.ready.insert((worker, generation));
    }

    /// The coordinator asks the closer to switch. A pause has no members.
    pub(super) fn may_switch(&mut self, generation: Generation) -> Held {
        let (planned, members) = &self.planned;
        let waited_for = members.iter().filter(|member| !self.ready.contains(&(**member, generation)));
        let missing = waited_for.copied().next().filter(|_| *planned == generation);
        self.check("all are ready first", missing.is_none(), || {
            format!("the closer is to switch to {generation}, and {missing:?} has not said that it is ready")
        })
    }
}
