//! How a step's gradients are summed in fast order. A ring's chunks begin at all ranks at once; one of them is played, whose sum begins at rank 0. The
//! last rank closes it, and lets it go round again. Each generation adds in an order of its own, so that what is computed again is never the same.

use sardana_protocol::plan::{HopEnd, RingPart};
use sardana_protocol::words::{Generation, Step};

use super::process::RingEnd;
use super::ring::Pass;
use crate::simulation::model::Gradients;

/// The gradients as members of this generation add them.
pub(super) fn in_its_order(generation: Generation, mut gradients: Gradients) -> Gradients {
    let turns = generation.count().checked_rem(gradients.len() as u64);
    gradients.rotate_left(turns.and_then(|turns| usize::try_from(turns).ok()).unwrap_or(0));
    gradients
}

impl RingEnd {
    /// Lets the gradients go on, if those of all ranks before this one are here.
    pub(super) fn go_round(&mut self, part: &RingPart, step: Step) -> Option<Pass> {
        let (from, to) = part.hops?;
        let before = match self.form.rank.get() {
            0 if self.started >= Some(step) => return None,
            0 => Gradients::new(),
            _ => self.arrived.remove(&(step, from.hop))?,
        };
        self.started = Some(step);
        let mut own = Gradients::new();
        part.shards.iter().for_each(|&run| self.add(run, &mut own));
        if self.ranks_behind() == 0 {
            return Some(Pass::Closed {
                generation: self.form.generation,
                step,
                trailer: self.close(),
                gradients: in_its_order(self.form.generation, [before, own].concat()),
            });
        }
        Some(Pass::On {
            to: self.member(to),
            generation: self.form.generation,
            step,
            hop: to.hop,
            gradients: [before, own].concat(),
        })
    }

    /// Where the finished sum goes on to: it comes back as far as the rank before the last one.
    pub(super) fn passes_sum_to(&self, part: &RingPart) -> Option<HopEnd> {
        part.hops.map(|(_, to)| to).filter(|_| self.ranks_behind() != 1)
    }

    /// How many ranks come after this one.
    fn ranks_behind(&self) -> u32 {
        self.form.world_size.saturating_sub(self.form.rank.get() + 1)
    }
}
