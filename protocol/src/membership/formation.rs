//! A generation as the coordinator keeps it: enough to tell every member its part, also a second time.

use std::time::Duration;

use crate::assign::{Means, NoRoom, Seat, retry, slowest, steady};
use crate::messages::{CatchUp, Form, MemberAddress, Standing, Visit};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Rank, ShardRange, Step, WorkerId};

/// A candidate for membership, in the order of ranks.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) member: MemberAddress,
    pub(super) means: Means,
    pub(super) standing: &'a Standing,
}

/// One generation.
#[derive(Debug, Clone)]
pub(super) struct Formation {
    pub(super) generation: Generation,
    pub(super) step: Step,
    members: Vec<MemberAddress>,
    first: Vec<Visit>,
    steady: Vec<Visit>,
    catch_up: Vec<CatchUp>,
    stop_at: Option<Step>,
}

impl Formation {
    /// Decides who does what. The generation starts from the newest state that any candidate has.
    ///
    /// # Errors
    /// [`NoRoom`] when the candidates' memory does not cover `shards`.
    pub(super) fn decide(generation: Generation, shards: u32, candidates: &[Candidate<'_>]) -> Result<Self, NoRoom> {
        let standings = || candidates.iter().map(|candidate| candidate.standing);
        let steps = || standings().map(|standing| standing.step);
        let step = if bites(Bug::OldestState) {
            steps().min()
        } else {
            steps().max()
        }
        .unwrap_or(Step::ZERO);
        let stop_at = standings().filter_map(|standing| standing.stop_at).max();
        let kept = |standing: &Standing| {
            if standing.step == step {
                standing.kept.clone()
            } else {
                Vec::new()
            }
        };
        let seats: Vec<Seat> = candidates
            .iter()
            .map(|one| {
                let kept = kept(one.standing);
                // A spare may hold gradients from when it was none.
                let held = kept.iter().map(|range| range.len()).fold(0, u32::saturating_add);
                let capacity = one.means.capacity.max(held);
                let means = Means { capacity, ..one.means };
                Seat { means, kept }
            })
            .collect();
        let means: Vec<Means> = candidates.iter().map(|one| one.means).collect();
        Ok(Self {
            generation,
            step,
            members: candidates.iter().map(|candidate| candidate.member).collect(),
            first: retry(shards, &seats)?,
            steady: steady(shards, &means)?,
            catch_up: catch_up(step, candidates),
            stop_at,
        })
    }

    /// The generation that follows by a planned change, at a boundary that is not known yet: nobody is behind, nothing is kept.
    ///
    /// # Errors
    /// [`NoRoom`] when the members' memory does not cover `shards`.
    pub(super) fn planned(generation: Generation, shards: u32, members: &[(MemberAddress, Means)]) -> Result<Self, NoRoom> {
        let means: Vec<Means> = members.iter().map(|(_, means)| *means).collect();
        let steady = steady(shards, &means)?;
        Ok(Self {
            generation,
            step: Step::ZERO,
            members: members.iter().map(|(member, _)| *member).collect(),
            first: steady.clone(),
            steady,
            catch_up: Vec::new(),
            stop_at: None,
        })
    }

    /// A generation that trains, as its members tell it. None if its ranges are not those of a generation (GEN-2).
    pub(super) fn found(
        generation: Generation,
        shards: u32,
        step: Step,
        members: Vec<MemberAddress>,
        steady: Vec<Visit>,
    ) -> Option<Self> {
        let end = steady.iter().try_fold(0, |next, visit| {
            let follows = visit.shards.is_empty() || visit.shards.start() == next;
            follows.then_some(next.max(visit.shards.end()))
        });
        (end == Some(shards)).then_some(Self {
            generation,
            step,
            members,
            first: steady.clone(),
            steady,
            catch_up: Vec::new(),
            stop_at: None,
        })
    }

    pub(super) fn members(&self) -> impl Iterator<Item = MemberAddress> + '_ {
        self.members.iter().copied()
    }

    /// What rank `rank` is told. `report_from` is the first step whose report is missing.
    pub(super) fn form(&self, rank: Rank, report_from: Step) -> Form {
        Form {
            generation: self.generation,
            rank,
            members: self.members.clone(),
            step: self.step,
            first: self.first.clone(),
            steady: self.steady.clone(),
            catch_up: self.catch_up.get(rank.index()).copied().unwrap_or(CatchUp::None),
            report_from,
            stop_at: self.stop_at,
        }
    }

    /// Whether a member that stands like this can begin it.
    pub(super) fn fits(&self, worker: WorkerId, standing: &Standing) -> bool {
        let rank = self.workers().position(|member| member == worker);
        match rank.and_then(|rank| self.catch_up.get(rank)).unwrap_or(&CatchUp::None) {
            CatchUp::None if bites(Bug::StaleMember) => standing.step.next() >= self.step,
            CatchUp::None => standing.step == self.step,
            CatchUp::Sum { .. } => standing.step.next() == self.step,
            CatchUp::State { .. } => standing.step <= self.step,
        }
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.members.iter().map(|member| member.worker)
    }

    /// Whether `worker` has this rank.
    pub(super) fn seats(&self, worker: WorkerId, rank: Rank) -> bool {
        self.members.get(rank.index()).is_some_and(|member| member.worker == worker)
    }

    /// What `worker` computes in every step but the first; none if it is no member.
    pub(super) fn steady_shards(&self, worker: WorkerId) -> Option<ShardRange> {
        let rank = self.members.iter().position(|member| member.worker == worker)?;
        let visit = self.steady.iter().find(|visit| visit.rank.index() == rank)?;
        Some(visit.shards)
    }

    /// What each member computes in every step but the first, by rank.
    pub(super) fn ranges(&self) -> Vec<ShardRange> {
        let range = |rank: usize| self.steady.iter().find(|visit| visit.rank.index() == rank);
        let ranks = 0..self.members.len();
        ranks
            .map(|rank| range(rank).map_or(ShardRange::new(0, 0), |visit| visit.shards))
            .collect()
    }

    /// How long the slowest member computes in a step but the first, and how long it would with the best ranges that there are, if the
    /// members have these means.
    pub(super) fn slowest(&self, means: &[Means]) -> Option<(Duration, Duration)> {
        let shards = self.steady.iter().map(|visit| visit.shards.len()).sum();
        let best = steady(shards, means).ok()?;
        Some((slowest(&self.steady, means), slowest(&best, means)))
    }

    /// How many members fetch the state.
    pub(super) fn fetching(&self) -> u32 {
        let states = self
            .catch_up
            .iter()
            .filter(|catch_up| matches!(catch_up, CatchUp::State { .. }));
        u32::try_from(states.count()).unwrap_or(u32::MAX)
    }

    /// How many gradients rank `rank` computes in `step`.
    pub(super) fn owes(&self, rank: usize, step: Step) -> u32 {
        let visits = if step == self.step { &self.first } else { &self.steady };
        let own = visits.iter().filter(|visit| visit.rank.index() == rank);
        own.map(|visit| visit.shards.len()).fold(0, u32::saturating_add)
    }

    /// Whether rank `rank` comes to the state first.
    pub(super) fn catches_up(&self, rank: usize) -> bool {
        self.catch_up.get(rank).is_some_and(|catch_up| *catch_up != CatchUp::None)
    }

    pub(super) fn stop_at(&self) -> Option<Step> {
        self.stop_at
    }

    /// The member that closes the sums: the last to be visited.
    pub(super) fn closer(&self) -> Option<WorkerId> {
        let last = self.steady.last()?;
        self.members.get(last.rank.index()).map(|member| member.worker)
    }
}

/// Who fetches what from whom. Donors take turns.
fn catch_up(step: Step, candidates: &[Candidate<'_>]) -> Vec<CatchUp> {
    let rank = |index: usize| Rank::new(u32::try_from(index).unwrap_or(u32::MAX));
    let donors = |wanted: &dyn Fn(&Standing) -> bool| {
        let donors = candidates.iter().enumerate().filter(|(_, one)| wanted(one.standing));
        donors.map(|(index, _)| rank(index)).collect::<Vec<_>>()
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
