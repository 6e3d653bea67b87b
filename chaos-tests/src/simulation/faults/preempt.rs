//! Half of the fleet or all of it is taken away at once, as spot machines are: with a notice, without one, or with one that is too short.

use std::time::Duration;

use sardana_protocol::words::WorkerId;

use super::{Later, Struck};
use crate::simulation::calendar::Happening;
use crate::simulation::world::World;

/// The longest notice.
const NOTICE: Duration = Duration::from_secs(30);

impl World {
    pub(super) fn preempt(&mut self) -> Struck {
        let whole = self.dice.below(4) == 0;
        let notice = match self.dice.below(2) {
            0 => Duration::ZERO,
            _ => self.within(NOTICE),
        };
        let fleet: Vec<WorkerId> = self.processes.keys().copied().collect();
        let mut struck = None;
        for worker in fleet {
            if !whole && self.dice.below(2) == 0 {
                continue;
            }
            struck = Some(());
            if notice == Duration::ZERO {
                self.take_away(worker);
            } else {
                self.signal(worker);
                self.calendar.after(notice, Happening::Later(Later::Die(worker)));
            }
        }
        struck
    }

    /// The machine of a worker is taken away; sometimes its agent sees it.
    pub(super) fn take_away(&mut self, worker: WorkerId) {
        if self.dice.below(2) == 0 {
            self.killed(worker);
        } else if self.processes.contains_key(&worker) {
            self.vanishes(worker);
        }
    }
}
