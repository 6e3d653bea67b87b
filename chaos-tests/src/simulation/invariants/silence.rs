//! No worker is left out for silent heartbeats while the generation's steps advance.

use std::time::Duration;

use sardana_protocol::limits::SILENCE_LEAST;
use sardana_protocol::words::WorkerId;

use super::{Held, Law};

impl Law {
    /// A generation with these members is current.
    pub(crate) fn seats(&mut self, members: &[WorkerId]) {
        self.seated = members.to_vec();
        self.left_out.clear();
        self.given_up.retain(|worker| !members.contains(worker));
    }

    /// A trailer has switched to a generation with these members.
    pub(crate) fn seats_by_trailer(&mut self, members: &[WorkerId]) {
        let before = std::mem::replace(&mut self.seated, members.to_vec());
        let goes = |worker: &WorkerId| !members.contains(worker);
        self.given_up.retain(|worker| !members.contains(worker));
        self.left_out = before.into_iter().filter(goes).collect();
    }

    /// The coordinator has heard of a new step, at this time of its clock.
    pub(crate) fn advances(&mut self, clock: Duration) {
        self.advanced = Some(clock);
    }

    /// The coordinator leaves out a worker for its silence, while the generation trains.
    pub(crate) fn silent(&mut self, worker: WorkerId, clock: Duration) -> Held {
        let since = self.advanced.map(|advanced| clock.saturating_sub(advanced));
        // Nothing speaks for a worker without a seat, nor where no step was heard of yet.
        let Some(since) = since.filter(|_| self.seated.contains(&worker)) else {
            return Ok(());
        };
        self.check("progress speaks for the silent", since >= SILENCE_LEAST, || {
            format!("{worker} is left out for its silence, and a step was heard of {since:?} ago")
        })
    }
}
