//! Many new workers come at once: an operator has scaled up, or a whole rack is back.

use std::time::Duration;

use super::Struck;
use crate::simulation::world::{CROWD, World};

impl World {
    pub(super) fn storm(&mut self) -> Struck {
        let newcomers = 3 + self.dice.below(20);
        for _ in 0..newcomers {
            if self.processes.len() + self.coming < CROWD {
                self.start_after(Duration::from_secs(2));
            }
        }
        Some(())
    }
}
