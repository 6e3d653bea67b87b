//! The generations of a group: its members make collective calls of their own, and the coordinator says only which members there are.
//!
//! ```text
//!  one comes, one is to leave, one gives the generation up          all Halted          all Ready
//!  ─────────────────────────────────────────────────────▶ Halting ───────────▶ Forming ─────────▶ Running
//! ```
//! There is no state that a newcomer could copy beside the others, and no trailer that could switch: every change ends the generation, and all
//! begin the next one together. What their programs have computed, and how far they are, is theirs to agree on.

use super::roster::Ending;
use super::{Membership, Phase, Resumed, Stage, Stop};
use crate::job::{JobKind, kind_of};
use crate::limits::{GROUP_STANDS, MAX_WORKERS};
use crate::planted::{Bug, bites};
use crate::state::StateHash;
use crate::words::{Generation, Step, WorkerId};

impl Membership {
    /// Whether the workers of this job are a group.
    pub(super) fn is_group(&self) -> bool {
        kind_of(self.config.shards) == JobKind::Group
    }

    /// How many workers a generation has at most. Those beyond `max` wait where nothing is trained: a spare is of use only if it has a state.
    pub(super) fn most_members(&self) -> usize {
        let most = if self.is_group() && !bites(Bug::MaxIgnored) {
            self.config.max
        } else {
            MAX_WORKERS
        };
        most.clamp(1, MAX_WORKERS) as usize
    }

    /// Ends the generation if another would have other members.
    pub(super) fn renew_group(&mut self) {
        if !matches!(self.phase, Phase::Running { .. }) {
            return;
        }
        let members = self.formation.as_ref().map_or(0, |formation| formation.world_size());
        let has_room = members < self.most_members() || bites(Bug::RenewedThoughFull);
        let comes = || self.members.quiet().any(|(_, record)| self.cools_for(record).is_zero());
        let goes = || {
            let mut leaving = self.members.leaving();
            leaving.any(|(worker, record)| self.is_member(worker) && record.ending().is_none())
        };
        // Where one has finished all say so soon, but for one that leaves instead. None is stopped on the way for one that comes now.
        let is_wanted = has_room && !self.is_ending() && self.members.census().quiet > 0 && !bites(Bug::NewcomerIgnored);
        if (goes() && !bites(Bug::LeaverKept)) || (is_wanted && comes()) {
            self.disturb();
        }
    }

    /// An operation of a member has failed, or its program has let go of the generation.
    pub(super) fn given_up(&mut self, worker: WorkerId, generation: Generation) {
        let is_news = generation == self.formed && self.is_formed() && self.is_member(worker);
        if self.is_group() && is_news && !bites(Bug::GivenUpIgnored) {
            self.disturb();
        }
    }

    /// What time brings to a group. How long its members take between two operations is their own affair.
    pub(super) fn tend_group(&mut self) {
        if let Phase::Halting { .. } = self.phase {
            self.evict_stalled();
        }
        let stands = || self.now.saturating_sub(self.training.advanced) >= GROUP_STANDS;
        let running = Phase::Running {
            resumed: Resumed::NotYet,
        };
        if self.phase == running && stands() {
            self.forget_breaks();
            self.training.disturbed = None;
            self.phase = Phase::Running { resumed: Resumed::Yes };
        }
    }

    /// Ends a group whose operator wants it to end: nothing of it is kept here. Members that an earlier life has left are waited for, so
    /// that they hear of it; so is a generation that was found.
    pub(super) fn stop_group(&mut self) {
        if !self.is_group() || self.stop == Stop::No || self.stage() == Stage::Done {
            return;
        }
        if let Phase::Gathering { since, .. } = self.phase
            && self.may_be_missing_a_past(since)
        {
            return;
        }
        // Of an earlier life all may be gone, with what was written down of them.
        if self.formed.count() == 0 && (!self.earlier.resumed || bites(Bug::StopInVain)) {
            return self.stop_in_vain();
        }
        self.end(Ending {
            step: Step::ZERO,
            hash: StateHash::new([0; 32]),
            results: Vec::new(),
            in_vain: 0,
        });
    }
}
