//! STEP-1: a worker's steps only grow; no two different updates are ever applied for one step, anywhere.

use sardana_protocol::words::{Step, WorkerId};

use super::{Held, Law};
use crate::simulation::model::Sum;

impl Law {
    /// A worker's step before and after something happened to it.
    pub(crate) fn grows(&mut self, worker: WorkerId, before: Step, after: Step) -> Held {
        self.check("STEP-1", after >= before, || {
            format!("{worker} went from {before} back to {after}")
        })
    }

    /// A worker says that it has halted. `update`: how far its state's next change is.
    pub(crate) fn halts(&mut self, worker: WorkerId, update: &'static str) -> Held {
        self.check("STEP-1, halting", update == "none", || {
            format!("{worker} says that it has halted, with an update that is {update}")
        })
    }

    /// A worker has applied a sum, which led it to this state.
    pub(crate) fn applied(&mut self, worker: WorkerId, step: Step, sum: &Sum, state: u64) -> Held {
        let last = self.steps;
        self.check("nothing is applied after the end", step < last, || {
            format!("{worker} applied {step}, and the job has {last}")
        })?;
        self.each_shard_once(step, &sum.gradients)?;
        let expected = self.reference.at(step.next());
        self.check("BITS-1", state == expected, || {
            format!("{worker} applied another update at {step} than an undisturbed run does")
        })
    }
}
