//! A coordinator that comes back takes over what it finds only if that is whole, and begins anew only after it has waited for the workers
//! that train.

use std::time::Duration;

use sardana_protocol::limits::ADOPTION_PATIENCE;
use sardana_protocol::messages::{Introduction, Ring};
use sardana_protocol::words::{Generation, WorkerId};

use super::{Held, Law};

impl Law {
    /// A worker comes to the coordinator, in its present life.
    pub(crate) fn introduces(&mut self, worker: WorkerId, introduction: &Introduction) {
        let ring = introduction.seat.as_ref().map(|seat| seat.ring);
        self.introduced.insert(worker, (introduction.generation, ring));
    }

    /// A generation is adopted: all its members have come, and each has said that its ring is whole.
    pub(crate) fn adopts_whole(&mut self, generation: Generation, members: &[WorkerId]) -> Held {
        let said = |member: &WorkerId| (*member, self.introduced.get(member).copied());
        let other = members
            .iter()
            .map(said)
            .find(|(_, said)| *said != Some((generation, Some(Ring::Whole))));
        self.check("only a whole ring is adopted", other.is_none(), || {
            format!("{generation} is adopted, and of its members {other:?} has said something else")
        })
    }

    /// A generation is formed, at this time of the coordinator's clock, by a life that has met no worker that trains. `training`: a worker
    /// that does.
    pub(crate) fn begins_anew(&mut self, clock: Duration, training: Option<WorkerId>) -> Held {
        let age = clock.saturating_sub(self.born);
        let Some(training) = training else { return Ok(()) };
        self.check("who comes back waits first", age >= ADOPTION_PATIENCE, || {
            format!("a coordinator begins anew after {age:?}, and {training:?} trains")
        })
    }
}
