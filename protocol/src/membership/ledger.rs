//! Counts gradients: each is computed once, but for those that a death took along.
//!
//! `computed` comes from the workers' own tallies, `recomputed` from what the dead held when the next generation formed. In the
//! end `computed = K × steps + recomputed`; neither side is derived from the other.

use crate::messages::Tally;
use crate::words::Step;

/// The count so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    /// Tallies of lost workers whose last gradients may still be lost, and how many were already counted as lost.
    recent: Vec<(Tally, u64)>,
    /// Gradients of workers lost earlier that live on in the state.
    useful: u64,
    /// Gradients of all lost workers.
    gone: u64,
    recomputed: u64,
    unknown: u32,
}

impl Ledger {
    /// A worker was lost.
    pub(super) fn lost(&mut self, tally: Option<Tally>) {
        match tally {
            Some(tally) => {
                self.gone = self.gone.saturating_add(tally.total);
                self.recent.push((tally, 0));
            }
            None => self.unknown += 1,
        }
    }

    /// The count of a worker counted as unknown has become known after all.
    pub(super) fn found(&mut self, tally: Tally) {
        self.unknown = self.unknown.saturating_sub(1);
        self.lost(Some(tally));
    }

    /// A generation resumes at `step`. Returns how many lost gradients are computed again for it.
    pub(super) fn resume(&mut self, step: Step) -> u64 {
        let mut again = 0;
        for (tally, counted) in &mut self.recent {
            let lost = lost_of(*tally, step).max(*counted);
            again += lost - *counted;
            *counted = lost;
        }
        // Steps only go back by one, unless the state is lost.
        let (settled, recent) = self
            .recent
            .drain(..)
            .partition(|(tally, _)| step.previous().is_some_and(|previous| tally.step < previous));
        self.recent = recent;
        self.useful = self.useful.saturating_add(useful(settled));
        self.recomputed += again;
        again
    }

    /// The newest state is lost: training starts again from one that holds only `kept` gradients.
    pub(super) fn restart(&mut self, kept: u64) {
        let recent = std::mem::take(&mut self.recent);
        self.useful = self.useful.saturating_add(useful(recent));
        let lost = self.useful.saturating_sub(kept);
        self.useful -= lost;
        self.recomputed += lost;
    }

    /// Gradients computed by the lost and by the living.
    pub(super) fn computed(&self, living: impl Iterator<Item = u64>) -> u64 {
        living.fold(self.gone, u64::saturating_add)
    }

    pub(super) fn recomputed(&self) -> u64 {
        self.recomputed
    }

    pub(super) fn unknown(&self) -> u32 {
        self.unknown
    }
}

fn useful(tallies: Vec<(Tally, u64)>) -> u64 {
    tallies
        .into_iter()
        .fold(0, |sum, (tally, counted)| sum.saturating_add(tally.total - counted))
}

/// How many of a lost worker's gradients are not part of the state at `step`.
fn lost_of(tally: Tally, step: Step) -> u64 {
    if tally.step < step {
        return 0;
    }
    let this_step = u64::from(tally.this_step);
    let lost = if tally.step == step {
        this_step
    } else {
        this_step + u64::from(tally.previous_step)
    };
    lost.min(tally.total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(step: u64, this_step: u32, previous_step: u32) -> Tally {
        Tally {
            total: 100,
            step: Step::new(step),
            this_step,
            previous_step,
        }
    }

    #[test]
    fn a_death_costs_what_was_not_summed() {
        let lost = |tally| {
            let mut ledger = Ledger::default();
            ledger.lost(Some(tally));
            ledger.resume(Step::new(7))
        };
        assert_eq!(lost(tally(7, 2, 3)), 2, "it died in the step under way");
        assert_eq!(lost(tally(6, 2, 3)), 0, "the others have the sum it took part in");
        assert_eq!(lost(tally(8, 2, 3)), 5, "it took the only sum along");
    }

    #[test]
    fn losing_the_state_costs_everything() {
        let mut ledger = Ledger::default();
        ledger.lost(Some(tally(5, 2, 2)));
        ledger.resume(Step::new(5));
        ledger.lost(Some(tally(9, 1, 2)));
        ledger.lost(None);
        ledger.restart(0);
        assert_eq!(
            (ledger.computed([].into_iter()), ledger.recomputed(), ledger.unknown()),
            (200, 200, 1)
        );
    }
}
