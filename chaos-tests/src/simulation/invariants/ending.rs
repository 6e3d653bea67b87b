//! The end: the last step, or the one where all were told to stop, with the state of an undisturbed run (BITS-1); and the count, as far
//! as it can be known.

use sardana_protocol::membership::Summary;
use sardana_protocol::words::{Step, WorkerId};

use super::{Law, Violation};
use crate::simulation::model::hash_of;

/// Whether the coordinator can know how many gradients were computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Every loss told it.
    Exact,
    /// Connections broke or messages were lost.
    Unknown,
}

impl Law {
    /// The job is done only when every member has reported the last step. `behind`: one that has not reached it.
    pub(crate) fn all_at_the_end(&mut self, last: Step, behind: Option<(WorkerId, Step)>) -> Result<(), Violation> {
        self.check("all are at the end", behind.is_none(), || {
            format!("the job is done at {last}, and a member is not there: {behind:?}")
        })
    }

    /// The job is done.
    pub(crate) fn ended(&mut self, summary: &Summary) -> Result<(), Violation> {
        let (step, last) = (summary.step, self.steps);
        let right = step == last || (self.may_stop_early && step < last);
        self.check("the job ends where it should", right, || {
            format!("it ended at {step} of {last}")
        })?;
        let expected = hash_of(self.reference.at(step));
        self.check("BITS-1", summary.hash == expected, || {
            format!("the final state at {step} is not that of an undisturbed run")
        })?;
        if self.count == Count::Unknown || summary.unknown > 0 {
            return Ok(());
        }
        let (computed, again) = (summary.computed, summary.recomputed);
        let once = u64::from(self.shards) * step.get();
        self.check("each gradient once", computed == once + again, || {
            format!("{computed} gradients were computed; expected {once} and {again} again")
        })
    }
}
