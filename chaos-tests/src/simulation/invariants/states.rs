//! STEP-2: no worker computes with a state other than the job's state at that step.

use sardana_protocol::words::Step;

use super::{Held, Law};

impl Law {
    /// A worker computes with, loads, or hands out this state as that of this step.
    pub(crate) fn computes_with(&mut self, step: Step, state: u64) -> Held {
        let holds = self.reference.is_at(step, |one| one == state);
        self.check("STEP-2", holds, || format!("this is not the job's state at {step}"))
    }
}
