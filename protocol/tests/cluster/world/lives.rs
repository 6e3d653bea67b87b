//! Workers that die one after the other.

use super::World;

/// Between two deaths, so that some of those who come take part, and some die before.
const EVENTS: u64 = 300;

/// The longest text that a machine was, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    pub(crate) coordinator: usize,
    /// Of the worker that has lived for longest.
    pub(crate) oldest: usize,
}

impl World {
    /// So many workers die, and another comes in place of each: never the one that has lived for longest, unless it is let go.
    pub(crate) fn outlive(&mut self, lives: u32) -> Sizes {
        let mut sizes = Sizes::default();
        let begun = self.coordinator.generation().count();
        for _ in 0..lives {
            for _ in 0..1 + self.dice.below(EVENTS) {
                self.event();
            }
            let mortal = 1 + self.dice.index(self.processes.len() - 1);
            let Some(worker) = self.processes.keys().nth(mortal).copied() else {
                panic!("somebody comes in place of each")
            };
            self.end(worker, "signal 9");
            self.start();
            let text = |machine: &dyn std::fmt::Debug| format!("{machine:?}").len();
            sizes.coordinator = sizes.coordinator.max(text(&self.coordinator));
            if let Some(oldest) = self.processes.values().next() {
                sizes.oldest = sizes.oldest.max(text(&oldest.member));
            }
        }
        let formed = self.coordinator.generation().count() - begun;
        assert!(
            self.summary.is_none() && formed >= u64::from(lives / 2),
            "{formed} generations"
        );
        sizes
    }
}
