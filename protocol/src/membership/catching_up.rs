//! How the members of a generation that lack its state come to it: by a sum or the whole state, each from a member that has it.

use std::collections::BTreeMap;

use super::formation::Candidate;
use crate::lineage::Lineage;
use crate::messages::{CatchUp, Standing};
use crate::planted::{Bug, bites};
use crate::words::{Rank, Step};

/// The ranks that each donor gives something to.
pub(super) fn fetchers(catch_up: &[CatchUp]) -> BTreeMap<Rank, Vec<Rank>> {
    let mut fetchers: BTreeMap<Rank, Vec<Rank>> = BTreeMap::new();
    for (rank, catch_up) in (0..).map(Rank::new).zip(catch_up) {
        if let Some(donor) = catch_up.donor() {
            fetchers.entry(donor).or_default().push(rank);
        }
    }
    fetchers
}

/// The state that a generation starts from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common {
    pub(super) step: Step,
    pub(super) lineage: Lineage,
}

impl Common {
    /// The newest one. Where there are several of that step, the one to which the newest generation's sum has led: the others are of members that the
    /// rest has gone on without.
    pub(super) fn newest(candidates: &[Candidate<'_>]) -> Option<Self> {
        let standings = || candidates.iter().map(|candidate| candidate.standing);
        let steps = || standings().map(|standing| standing.step);
        let step = if bites(Bug::OldestState) {
            steps().min()
        } else {
            steps().max()
        }?;
        let there = standings().filter(|standing| standing.step == step);
        let lineage = there.map(|standing| standing.lineage).max()?;
        Some(Self { step, lineage })
    }

    /// Whether a candidate that stands so has it.
    pub(super) fn is_had_by(self, standing: &Standing) -> bool {
        standing.step == self.step && standing.lineage.is_same(self.lineage)
    }
}

/// What each member fetches, and from which donor, to come to the state of all. Donors take turns.
pub(super) fn catch_up(common: Common, candidates: &[Candidate<'_>]) -> Vec<CatchUp> {
    let standings = || candidates.iter().map(|candidate| candidate.standing);
    let had_by = standings().enumerate().filter(|(_, standing)| common.is_had_by(standing));
    let holders: Vec<usize> = had_by.map(|(place, _)| place).collect();
    let step = common.step;
    let has_sum = |standing: &Standing| standing.sum.is_some() && standing.sum == step.previous();
    // A worker that says another lineage than the others of its state has not added the same sum.
    let summed = |&place: &usize| {
        let standing = candidates[place].standing;
        standing.lineage == common.lineage && (has_sum(standing) || bites(Bug::WrongDonor))
    };
    let summed: Vec<usize> = holders.iter().copied().filter(summed).collect();
    standings()
        .enumerate()
        .map(|(turn, standing)| {
            let stale = bites(Bug::StaleMember) && standing.step.next() == step;
            if common.is_had_by(standing) || stale {
                return CatchUp::None;
            }
            // One more update is all that it lacks, if the sum is one of gradients that were computed with its state.
            let behind = step.previous() == Some(standing.step) && common.lineage.leads_on_from(standing.lineage.last);
            let in_turn = |donors: &[usize]| Rank::at(donors[turn % donors.len()]);
            if behind && !summed.is_empty() {
                CatchUp::Sum { from: in_turn(&summed) }
            } else {
                CatchUp::State { from: in_turn(&holders) }
            }
        })
        .collect()
}
