//! A host's network goes down and up again and again.

use std::time::Duration;

use sardana_protocol::words::WorkerId;

use super::{Later, Struck};
use crate::simulation::calendar::Happening;
use crate::simulation::network::{Cut, Node, Way};
use crate::simulation::world::World;

/// Down for this long at most, and up as long.
const EACH: Duration = Duration::from_millis(600);

impl World {
    pub(super) fn begin_to_flap(&mut self) -> Struck {
        let worker = self.pick()?;
        let left = 5 + self.dice.below(40);
        self.flap(worker, left);
        Some(())
    }

    pub(super) fn flap(&mut self, worker: WorkerId, left: u64) {
        let (down, up) = (self.within(EACH), self.within(EACH));
        let until = self.now() + down;
        self.cut_off(Cut {
            inside: [Node::Worker(worker)].into(),
            way: Way::Both,
            until,
        });
        if left > 0 {
            let left = left - 1;
            self.calendar.at(until + up, Happening::Later(Later::Flap { worker, left }));
        }
    }
}
