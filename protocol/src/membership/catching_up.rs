//! How the members of a generation that lack its state come to it: by a sum or the whole state, each from a member that has it.

use std::collections::BTreeMap;

use super::formation::Candidate;
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

/// What each member fetches, and from which donor. Donors take turns.
pub(super) fn catch_up(step: Step, candidates: &[Candidate<'_>]) -> Vec<CatchUp> {
    let donors = |wanted: &dyn Fn(&Standing) -> bool| {
        let donors = candidates.iter().enumerate().filter(|(_, one)| wanted(one.standing));
        donors.map(|(index, _)| Rank::at(index)).collect::<Vec<_>>()
    };
    let holders = donors(&|standing| standing.step == step);
    let has_sum = |standing: &Standing| standing.sum.is_some() && standing.sum == step.previous();
    let summed = donors(&|standing| standing.step == step && (has_sum(standing) || bites(Bug::WrongDonor)));
    candidates
        .iter()
        .enumerate()
        .map(|(turn, candidate)| {
            let stale = bites(Bug::StaleMember) && candidate.standing.step.next() == step;
            if candidate.standing.step == step || stale {
                CatchUp::None
            } else if step.previous() == Some(candidate.standing.step) && !summed.is_empty() {
                CatchUp::Sum {
                    from: summed[turn % summed.len()],
                }
            } else {
                CatchUp::State {
                    from: holders[turn % holders.len()],
                }
            }
        })
        .collect()
}
