//! A leave that was announced loses nothing: a worker that is let go leaves its state to another, or has waited long enough for that. And it
//! takes part no more.

use std::time::Duration;

use sardana_protocol::limits::LEAVE_GRACE;
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::{Held, Law};

/// What the workers that stay have when one goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heirs {
    /// The newest state of the connected workers; none if no worker is connected.
    At(Option<Step>),
    /// One of the workers that stay is gone, and the coordinator cannot know it yet.
    Unknown,
}

impl Law {
    /// A worker is to leave, from this time of the coordinator's clock on.
    pub(crate) fn leaves(&mut self, worker: WorkerId, clock: Duration) {
        self.leaving.insert(worker, clock);
    }

    /// Training begins anew without the state of these workers: it need not be kept any more.
    pub(crate) fn goes_on_without(&mut self, workers: impl Iterator<Item = WorkerId>) {
        self.given_up.extend(workers);
    }

    /// A worker is let go with its state at `step`.
    pub(crate) fn let_go(&mut self, worker: WorkerId, step: Step, heirs: Heirs, clock: Duration) -> Held {
        self.gone.insert(worker);
        let asked = self.leaving.remove(&worker);
        let waited = asked.map(|asked| clock.saturating_sub(asked));
        let Heirs::At(newest) = heirs else {
            self.excuse("a worker leaves while one that is to stay is gone unseen");
            return Ok(());
        };
        // The others load it from a checkpoint.
        let loaded = step <= self.checkpoints.source.max(self.checkpoints.saved);
        let kept = if loaded || self.given_up.contains(&worker) {
            true
        } else if self.left_out.contains(&worker) {
            // A member that a trailer left out is let go only once all others have begun without it. Else one step may be computed again.
            newest >= Some(step)
        } else {
            // A member that still loads the checkpoint that its generation starts from is as good as there: one step is computed again.
            step == Step::ZERO || newest.max(Some(self.checkpoints.source)).map(Step::next) >= Some(step)
        };
        if !kept && waited.is_some_and(|waited| waited >= LEAVE_GRACE) {
            self.excuse("a worker that leaves has waited for an heir in vain");
            return Ok(());
        }
        self.check("a leave loses nothing", kept, || {
            format!("{worker} is let go at {step} after {waited:?}, and the others are at {heirs:?}")
        })
    }

    /// An order for a generation goes out: no worker that was let go is in it.
    pub(super) fn without_the_gone(&mut self, worker: WorkerId, generation: Generation) -> Held {
        let away = !self.gone.contains(&worker);
        self.check("who was let go stays away", away, || {
            format!("{worker} was let go, and is to take part in {generation}")
        })
    }

    /// The coordinator begins another life, at this time of its clock. `remembers`: whether it knows which workers were let go.
    pub(crate) fn begins_life(&mut self, clock: Duration, remembers: bool) {
        self.born = clock;
        self.lives += 1;
        self.introduced.clear();
        self.leaving.clear();
        self.cut_off.clear();
        self.advanced = None;
        if !remembers {
            self.gone.clear();
        }
    }
}
