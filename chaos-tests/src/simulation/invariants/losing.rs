//! The state is given up only once no worker has it that is connected, or was cut off so shortly before that it may be on its way back.

use std::time::Duration;

use sardana_protocol::limits::STATE_GRACE;
use sardana_protocol::words::{Step, WorkerId};

use super::{Held, Law};

impl Law {
    /// The coordinator has noticed, at this time of its clock, that a connection broke.
    pub(crate) fn cut_off(&mut self, worker: WorkerId, clock: Duration) {
        self.cut_off.insert(worker, clock);
    }

    /// A worker is back, or was seen to end.
    pub(crate) fn not_missed(&mut self, worker: WorkerId) {
        self.cut_off.remove(&worker);
    }

    /// Whether a worker that is not connected may be on its way back.
    pub(crate) fn is_awaited(&self, worker: WorkerId, clock: Duration) -> bool {
        let since = self.cut_off.get(&worker);
        since.is_some_and(|&since| clock.saturating_sub(since) < STATE_GRACE)
    }

    /// The state is given up: training begins again at `from`. `holder`: a worker that is here, or awaited, with a newer one.
    pub(crate) fn gives_up_state(&mut self, from: Step, holder: Option<(WorkerId, Step)>) -> Held {
        self.doubts.states_lost += 1;
        self.check("the state is lost with its holders", holder.is_none(), || {
            format!("training begins again at {from}, and there is {holder:?}")
        })
    }
}
