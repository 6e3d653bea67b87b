//! A depot's process ends, and starts again some time later: what was not synced is lost, and so is what it had only in memory.

use super::{Later, Struck};
use crate::simulation::calendar::Happening;
use crate::simulation::network::IDLE;
use crate::simulation::world::{AtDepot, World};

impl World {
    pub(super) fn crash_depot(&mut self) -> Struck {
        let place = self.pick_depot()?;
        self.depot_goes_down(place);
        Some(())
    }

    /// A depot that runs.
    pub(super) fn pick_depot(&mut self) -> Option<usize> {
        let depots = self.depots.iter().enumerate();
        let up: Vec<usize> = depots.filter(|(_, depot)| depot.up).map(|(place, _)| place).collect();
        self.dice.pick(&up)
    }

    pub(super) fn depot_goes_down(&mut self, place: usize) {
        let session = self.depot_session(place);
        self.depots[place].goes_down();
        if let Some(session) = session {
            self.session_ends(place, session);
            self.depot_after(IDLE, place, AtDepot::Lost { session });
        }
        let down = self.lasting();
        self.calendar.after(down, Happening::Later(Later::DepotBack(place)));
    }
}
