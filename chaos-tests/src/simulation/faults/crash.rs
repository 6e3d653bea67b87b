//! The coordinator's process ends and starts again: with its disk, but for what was not synced, or without.

use std::time::Duration;

use super::Struck;
use crate::simulation::calendar::Happening;
use crate::simulation::network::IDLE;
use crate::simulation::swarm::between;
use crate::simulation::world::World;

/// The coordinator is down for this long at most.
const DOWN: Duration = Duration::from_secs(30);

impl World {
    pub(super) fn crash(&mut self) -> Struck {
        self.crash_with(false)
    }

    pub(super) fn lose_disk(&mut self) -> Struck {
        self.crash_with(true)
    }

    fn crash_with(&mut self, disk_lost: bool) -> Struck {
        self.coordinator.machine.as_ref()?;
        let now = self.now();
        let sessions = self.coordinator.sessions();
        self.coordinator.die(now, disk_lost);
        // Either its host says that no process listens, or connections only fall silent.
        let told = self.dice.below(2) == 0;
        for (worker, session) in sessions {
            let quick = self.within(Duration::from_millis(200));
            let noticed = if told { quick } else { IDLE - 10 * quick };
            self.calendar.after(noticed, Happening::ControlLost { worker, session });
        }
        self.depots_lose_coordinator(told);
        let down = between(&mut self.dice, 50, 2 * 30_000);
        let down = Duration::from_millis(down).min(DOWN);
        self.calendar.after(down, Happening::Revive);
        Some(())
    }
}
