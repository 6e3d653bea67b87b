//! A generation as the coordinator keeps it: enough to tell every member its part, also a second time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::catching_up::{Common, catch_up, fetchers};
use super::schedule::Schedule;
use crate::assign::{Means, NoRoom, Seat, retry, slowest, steady};
use crate::checkpoint_manager::Restores;
use crate::job::Order;
use crate::lineage::Lineage;
use crate::messages::{CatchUp, Form, Last, MemberAddress, MembersDigest, Peer, Standing};
use crate::plan::{Hosts, Visit};
use crate::planted::{Bug, bites};
use crate::snapshot::{holders_among, rank_at};
use crate::words::{Generation, Rank, ShardRange, Step, WorkerId};

/// What is summed in each step of the job, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sums {
    pub(super) order: Order,
    /// K.
    pub(super) shards: u32,
    /// Bytes of one gradient.
    pub(super) gradient_bytes: u64,
    /// Where the members are. None if each is to have two neighbours, whatever the size of gradients.
    pub(super) hosts: Option<Hosts>,
    /// Whether all members' gradients lie on devices.
    pub(super) on_devices: bool,
    /// What becomes of the state at the end.
    pub(super) last: Last,
}

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
    /// Of the state that it starts from; of what is planned, of the one that it will.
    lineage: Lineage,
    members: Vec<MemberAddress>,
    /// The rank of each, by id.
    ranks: BTreeMap<WorkerId, Rank>,
    digest: MembersDigest,
    first: Schedule,
    steady: Schedule,
    catch_up: Vec<CatchUp>,
    /// The ranks that each rank has to do with beside its neighbours in these schedules: it gives them the state or a sum; or, in a
    /// generation that was found, says that it has links with them, perhaps from the first step on.
    others: BTreeMap<Rank, Vec<Rank>>,
    /// What all members load, if no worker has the state.
    restore: Option<Restores>,
    /// Whether gradients that members have are computed again, as memory does not hold them beside those that are missing.
    pub(super) drops_some: bool,
    stop_at: Option<Step>,
    last: Last,
}

impl Formation {
    /// Decides what each member does. The generation starts from the newest state that any candidate has, or from the one that all restore.
    ///
    /// # Errors
    /// [`NoRoom`] when the candidates' memory does not cover `shards`.
    pub(super) fn decide(
        generation: Generation,
        sums: Sums,
        candidates: &[Candidate<'_>],
        restore: Option<Restores>,
    ) -> Result<Self, NoRoom> {
        let standings = || candidates.iter().map(|candidate| candidate.standing);
        let common = Common::newest(candidates).filter(|_| restore.is_none());
        let restored = restore.as_ref().map(|restore| restore.key.step);
        let step = restored.or(common.map(|common| common.step)).unwrap_or(Step::ZERO);
        // A member that was told to stop is at that step, or one before.
        let stop_at = standings().filter_map(|standing| standing.stop_at).max();
        let stop_at = stop_at.map(|stop| stop.min(step.next()));
        let has = |standing: &Standing| common.is_some_and(|common| common.is_had_by(standing));
        let seats: Vec<Seat> = candidates
            .iter()
            .map(|one| {
                let kept = if has(one.standing) {
                    one.standing.kept.clone()
                } else {
                    Vec::new()
                };
                // A spare may hold gradients from when it was none.
                let held = kept.iter().map(|range| range.len()).fold(0, u32::saturating_add);
                let means = Means {
                    capacity: one.means.capacity.max(held),
                    ..one.means
                };
                Seat { means, kept }
            })
            .collect();
        let means: Vec<Means> = candidates.iter().map(|one| one.means).collect();
        let (order, shards) = (sums.order, sums.shards);
        let later = steady(order, shards, &means)?;
        // Where memory does not hold what is kept and what is missing, a rank that lacks some computes all of its range again.
        let retried = retry(order, shards, &seats).ok().filter(|_| !bites(Bug::KeptComputedAnew));
        // So does a rank whose gradients are those of another state.
        let of_another = |standing: &Standing| standing.step == step && !standing.kept.is_empty() && !has(standing);
        let drops_some = retried.is_none() && seats.iter().any(|seat| !seat.kept.is_empty())
            || (common.is_some() && standings().any(of_another));
        let first = retried.unwrap_or_else(|| later.clone());
        let members: Vec<MemberAddress> = candidates.iter().map(|candidate| candidate.member).collect();
        let catch_up = match common {
            Some(common) => catch_up(common, candidates),
            None => vec![CatchUp::Checkpoint; candidates.len()],
        };
        let lineage = common.map(|common| common.lineage);
        Ok(Self {
            generation,
            step,
            lineage: lineage.unwrap_or_else(|| Lineage::of(order, generation)),
            digest: MembersDigest::of(members.iter().map(|member| member.worker)),
            first: Schedule::new(sums, members.len(), first),
            steady: Schedule::new(sums, members.len(), later),
            others: fetchers(&catch_up),
            ranks: ranks_of(&members),
            members,
            catch_up,
            restore,
            drops_some,
            stop_at,
            last: sums.last,
        })
    }

    /// The generation that follows `current` by a planned change, at a boundary that is not known yet: no member is behind, nothing is kept.
    ///
    /// # Errors
    /// [`NoRoom`] when the members' memory does not cover `shards`.
    pub(super) fn planned(
        [current, generation]: [Generation; 2],
        sums: Sums,
        members: &[(MemberAddress, Means)],
    ) -> Result<Self, NoRoom> {
        let (members, means): (Vec<_>, Vec<_>) = members.iter().copied().unzip();
        let steady = steady(sums.order, sums.shards, &means)?;
        Ok(Self {
            lineage: Lineage::of(sums.order, current),
            ..Self::simple(generation, sums, Step::ZERO, members, steady)
        })
    }

    /// A generation in which no member is behind, and all steps are alike.
    fn simple(generation: Generation, sums: Sums, step: Step, members: Vec<MemberAddress>, steady: Vec<Visit>) -> Self {
        let steady = Schedule::new(sums, members.len(), steady);
        Self {
            generation,
            step,
            lineage: Lineage::of(sums.order, generation),
            digest: MembersDigest::of(members.iter().map(|member| member.worker)),
            first: steady.clone(),
            steady,
            ranks: ranks_of(&members),
            members,
            catch_up: Vec::new(),
            others: BTreeMap::new(),
            restore: None,
            drops_some: false,
            stop_at: None,
            last: sums.last,
        }
    }

    /// A generation that trains, as its members tell it. None if its ranges are not those of a generation (GEN-2).
    pub(super) fn found(
        generation: Generation,
        sums: Sums,
        step: Step,
        members: Vec<MemberAddress>,
        steady: Vec<Visit>,
        others: BTreeMap<Rank, Vec<Rank>>,
    ) -> Option<Self> {
        let end = steady.iter().try_fold(0, |next, visit| {
            let follows = visit.shards.is_empty() || visit.shards.start() == next;
            follows.then_some(next.max(visit.shards.end()))
        });
        (end == Some(sums.shards)).then(|| Self {
            others,
            ..Self::simple(generation, sums, step, members, steady)
        })
    }

    /// What rank `rank` is told; none if it has no such rank. `report_from` is the first step whose report is missing.
    pub(super) fn form(&self, rank: Rank, report_from: Step) -> Option<Form> {
        let (first, steady) = (self.first.plan.part(rank)?.clone(), self.steady.plan.part(rank)?.clone());
        let catch_up = self.catch_up.get(rank.index()).copied().unwrap_or(CatchUp::None);
        let others = self.others.get(&rank).into_iter().flatten();
        let known: BTreeSet<Rank> = [first.peers(), steady.peers()]
            .into_iter()
            .flatten()
            .chain(catch_up.donor())
            .chain(others.copied())
            .collect();
        let peer = |rank: Rank| {
            let member = *self.members.get(rank.index())?;
            Some(Peer { rank, member })
        };
        Some(Form {
            generation: self.generation,
            rank,
            world_size: u32::try_from(self.members.len()).unwrap_or(u32::MAX),
            digest: self.digest,
            peers: known.into_iter().filter_map(peer).collect(),
            step: self.step,
            lineage: self.lineage,
            first,
            steady,
            catch_up,
            restore: self
                .restore
                .as_ref()
                .filter(|_| catch_up == CatchUp::Checkpoint)
                .and_then(|restores| restores.of(rank)),
            report_from,
            stop_at: self.stop_at,
            last: self.last,
        })
    }

    /// Whether its members add as only members do that share memory.
    pub(super) fn counts_on_memory(&self) -> bool {
        self.first.counts_on_memory || self.steady.counts_on_memory
    }

    /// Of its members.
    pub(super) fn digest(&self) -> MembersDigest {
        self.digest
    }

    /// Whether a member that stands like this can begin it.
    pub(super) fn fits(&self, worker: WorkerId, standing: &Standing) -> bool {
        let rank = self.rank_of(worker);
        match rank
            .and_then(|rank| self.catch_up.get(rank.index()))
            .unwrap_or(&CatchUp::None)
        {
            CatchUp::None if bites(Bug::StaleMember) => standing.step.next() >= self.step,
            CatchUp::None => standing.step == self.step && standing.lineage.is_same(self.lineage),
            CatchUp::Sum { .. } => standing.step.next() == self.step && self.lineage.leads_on_from(standing.lineage.last),
            CatchUp::State { .. } | CatchUp::Checkpoint => standing.step <= self.step,
        }
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.members.iter().map(|member| member.worker)
    }

    pub(super) fn world_size(&self) -> usize {
        self.members.len()
    }

    /// The rank of `worker`; none if it is no member.
    pub(super) fn rank_of(&self, worker: WorkerId) -> Option<Rank> {
        self.ranks.get(&worker).copied()
    }

    /// The members that hold its snapshots, by place.
    pub(super) fn holders(&self) -> impl Iterator<Item = MemberAddress> + '_ {
        let world_size = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let places = 0..holders_among(world_size);
        places.filter_map(move |place| self.members.get(rank_at(place, world_size).index()).copied())
    }

    /// What `worker` computes in every step but the first; none if it is no member.
    pub(super) fn steady_shards(&self, worker: WorkerId) -> Option<ShardRange> {
        let rank = self.rank_of(worker)?;
        self.steady.shares.get(rank.index()).map(|(_, shards)| *shards)
    }

    /// What each member computes in every step but the first, by rank.
    pub(super) fn ranges(&self) -> Vec<ShardRange> {
        self.steady.shares.iter().map(|(_, shards)| *shards).collect()
    }

    /// How long the slowest member computes in a step but the first, and how long it would with the best ranges that there are, if the
    /// members have these means.
    pub(super) fn slowest(&self, order: Order, means: &[Means]) -> Option<(Duration, Duration)> {
        let shards = self.steady.visits.iter().map(|visit| visit.shards.len()).sum();
        let best = steady(order, shards, means).ok()?;
        Some((slowest(&self.steady.visits, means), slowest(&best, means)))
    }

    /// How far each member is at least taken to be: one that fetches the state says until then where it stood before. Where none does each has said where it stands.
    pub(super) fn floor(&self) -> Step {
        if self.fetching() == 0 { Step::ZERO } else { self.step }
    }

    /// How many members fetch the state.
    pub(super) fn fetching(&self) -> u32 {
        let states = self
            .catch_up
            .iter()
            .filter(|catch_up| matches!(catch_up, CatchUp::State { .. } | CatchUp::Checkpoint));
        u32::try_from(states.count()).unwrap_or(u32::MAX)
    }

    /// How many gradients rank `rank` computes in `step`.
    pub(super) fn owes(&self, rank: usize, step: Step) -> u32 {
        let schedule = if step == self.step { &self.first } else { &self.steady };
        schedule.len_of(rank)
    }

    /// Whether rank `rank` comes to the state first.
    pub(super) fn catches_up(&self, rank: usize) -> bool {
        self.catch_up.get(rank).is_some_and(|catch_up| *catch_up != CatchUp::None)
    }

    /// It is not to stop: what members may have been told does not count.
    pub(super) fn goes_on(&mut self) {
        self.stop_at = None;
    }

    /// Whether `worker` has to do with `peer`: has links with it, or gives it something, or gets something from it.
    pub(super) fn knows(&self, worker: WorkerId, peer: WorkerId) -> bool {
        self.peers_of(worker).contains(&peer)
    }

    /// The workers that a member has to do with.
    pub(super) fn peers_of(&self, worker: WorkerId) -> Vec<WorkerId> {
        let form = self.rank_of(worker).and_then(|rank| self.form(rank, Step::ZERO));
        form.map_or_else(Vec::new, |form| form.peers.iter().map(|peer| peer.member.worker).collect())
    }

    /// The member that gives rank `rank` what it lacks, if one does.
    pub(super) fn donor(&self, rank: usize) -> Option<WorkerId> {
        let donor = self.catch_up.get(rank)?.donor()?;
        self.members.get(donor.index()).map(|member| member.worker)
    }

    /// All stop at this step, whatever they were told before, if there is one.
    pub(super) fn stop_here(&mut self, step: Option<Step>) {
        self.stop_at = step.or(self.stop_at);
    }

    pub(super) fn stop_at(&self) -> Option<Step> {
        self.stop_at
    }

    /// The member that closes the sums: the last to be visited.
    pub(super) fn closer(&self) -> Option<WorkerId> {
        let last = self.steady.visits.last()?;
        self.members.get(last.rank.index()).map(|member| member.worker)
    }
}

impl Form {
    /// What all members of a generation are told, by rank, if none is behind. `first` and `steady` say which rank adds which shards in the
    /// first step and in every later one, as [`crate::assign`] makes them. For callers that need no coordinator.
    #[must_use]
    pub fn all(
        generation: Generation,
        order: Order,
        step: Step,
        members: Vec<MemberAddress>,
        [first, steady]: [Vec<Visit>; 2],
    ) -> Vec<Self> {
        let sums = Sums {
            order,
            shards: 0,
            gradient_bytes: 0,
            hosts: None,
            on_devices: false,
            last: Last::Forgotten,
        };
        let first = Schedule::new(sums, members.len(), first);
        let formation = Formation {
            first,
            lineage: Lineage::default(),
            ..Formation::simple(generation, sums, step, members, steady)
        };
        let ranks = (0..formation.members.len()).map(Rank::at);
        ranks.filter_map(|rank| formation.form(rank, Step::ZERO)).collect()
    }
}

fn ranks_of(members: &[MemberAddress]) -> BTreeMap<WorkerId, Rank> {
    let ranks = members.iter().enumerate();
    ranks.map(|(index, member)| (member.worker, Rank::at(index))).collect()
}
