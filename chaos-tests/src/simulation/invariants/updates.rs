//! STEP-1: a worker's steps only grow, but where a joiner begins with another state; no two different updates are ever applied for one step, anywhere.

use sardana_protocol::job::Order;
use sardana_protocol::words::{Step, WorkerId};

use super::{Held, Law};
use crate::simulation::model::Sum;

impl Law {
    /// A worker's step before and after something happened to it. `copied`: it is a joiner that has loaded a snapshot, which in fast order takes the place
    /// of whatever state it had.
    pub(crate) fn grows(&mut self, worker: WorkerId, before: Step, after: Step, copied: bool) -> Held {
        let anew = copied && self.order == Order::Fast;
        self.check("STEP-1", after >= before || anew, || {
            format!("{worker} went from {before} back to {after}")
        })
    }

    /// A worker says that it has halted. `update`: how far its state's next change is.
    pub(crate) fn halts(&mut self, worker: WorkerId, update: &'static str) -> Held {
        self.check("STEP-1, halting", update == "none", || {
            format!("{worker} says that it has halted, with an update that is {update}")
        })
    }

    /// A worker has applied a sum to the state `before`, which led it to this one.
    pub(crate) fn applied(&mut self, worker: WorkerId, step: Step, sum: &Sum, before: u64, state: u64) -> Held {
        let last = self.steps;
        self.check("nothing is applied after the end", step < last, || {
            format!("{worker} applied {step}, and the job has {last}")
        })?;
        self.each_shard_once(step, &sum.gradients)?;
        let own = self.reference.leads_on(step, before, &sum.gradients, state);
        self.check("BITS-1", own, || {
            format!("{worker} applied another update at {step} than an undisturbed run does")
        })
    }
}
