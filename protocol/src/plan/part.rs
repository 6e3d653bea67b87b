//! What one rank does in a plan, as it is told.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::HopId;
use crate::job::Order;
use crate::limits::MAX_WORKERS;
use crate::words::{Rank, ShardRange};

/// One visit of the running sum at a rank: the rank adds the gradients of `shards`, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// The rank that is visited.
    pub rank: Rank,
    /// Its shards that are added; may be empty for a spare.
    pub shards: ShardRange,
}

/// A hop as the rank at one of its ends sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopEnd {
    /// The hop.
    pub hop: HopId,
    /// The rank at its other end.
    pub peer: Rank,
}

/// What one rank does in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// It adds its shards to the running sum when that comes by.
    Ordered(OrderedPart),
    /// It takes part in a ring reduce-scatter and all-gather.
    Ring(RingPart),
    /// It sends its shards' gradients to the owners of their chunks, or is one of these.
    Direct(DirectPart),
}

/// What one rank does in the ordered plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedPart {
    /// The visits of the running sum to it, in shard order.
    pub visits: Vec<VisitPart>,
    /// Whence the finished sum comes; none at the rank that closes it.
    pub sum_from: Option<HopEnd>,
    /// Where it sends the finished sum; none at the end of the way back.
    pub sum_to: Option<HopEnd>,
}

/// A visit as the visited rank sees it: the running sum comes, the shards are added one by one in order, it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisitPart {
    /// What is added; empty for a spare.
    pub shards: ShardRange,
    /// Whence it comes; none when it starts here, with shard 0.
    pub from: Option<HopEnd>,
    /// Where it goes; none when it is finished here.
    pub to: Option<HopEnd>,
}

/// What one rank does in the ring plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingPart {
    /// The shards that it brings; it adds them all before anything else.
    pub shards: Vec<ShardRange>,
    /// From the rank before and to the rank after; none when it is alone.
    pub hops: Option<(HopEnd, HopEnd)>,
}

/// What one rank does in a direct plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectPart {
    /// Its runs of shards, in order. Of a spare one without shards: it says by it that it is at this step.
    pub brings: Vec<ShardRange>,
    /// Those that own chunks, in the order of their turns. The first one closes.
    pub owners: Vec<Owner>,
}

/// A rank that adds up some of the chunks, as a rank sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// It is this rank.
    Here(Adding),
    /// It is another one.
    There {
        /// Where this rank sends its gradients of that one's chunks.
        to: HopEnd,
        /// Whence the finished chunks come.
        sum_from: HopEnd,
    },
}

/// What an owner does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adding {
    /// What it adds, in shard order.
    pub adds: Vec<Brought>,
    /// Where it sends the finished chunks: to every other rank.
    pub sums_to: Vec<HopEnd>,
}

/// A run of shards whose gradients are brought to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brought {
    /// The shards; none of a spare.
    pub shards: ShardRange,
    /// Whence they come; none for the owner's own.
    pub from: Option<HopEnd>,
}

impl Brought {
    /// How many gradients of a chunk come for it, one after the other: that of each shard; those from shard 0 on are one, as their sum is
    /// known where they are.
    #[must_use]
    pub const fn gradients(shards: ShardRange) -> u32 {
        if shards.start() == 0 && !shards.is_empty() {
            1
        } else {
            shards.len()
        }
    }
}

/// Why a part cannot be executed. Its generation is wrong as a whole: its coordinator is of another version or at fault, and the
/// worker takes no place in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// See [`PartError`].
    #[error("a job adds in {expected:?} order, found a part of a plan for another one")]
    Order {
        /// Of the job.
        expected: Order,
    },
    /// See [`PartError`].
    #[error("a generation has 1 to {MAX_WORKERS} workers, found {found}")]
    WorldSize {
        /// How many it has.
        found: u32,
    },
    /// See [`PartError`].
    #[error("ranks are below {world_size}, found {found} (GEN-2)")]
    UnknownRank {
        /// How many ranks there are.
        world_size: u32,
        /// The rank beyond.
        found: Rank,
    },
    /// See [`PartError`].
    #[error("a rank has runs of shards in order within 0..{shards}, found {found:?} (GEN-2)")]
    Shards {
        /// K.
        shards: u32,
        /// What it has.
        found: Vec<ShardRange>,
    },
    /// See [`PartError`].
    #[error("the hops of {rank} among {world_size} ranks do not lead from shard 0 to the sum and back: {reason}")]
    Hops {
        /// The rank.
        rank: Rank,
        /// How many ranks there are.
        world_size: u32,
        /// What is wrong.
        reason: &'static str,
    },
}

impl Part {
    /// The runs of shards whose gradients the rank brings, in order. None are empty.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardRange> {
        self.runs().into_iter().filter(|run| !run.is_empty()).collect()
    }

    pub(super) fn runs(&self) -> Vec<ShardRange> {
        match self {
            Self::Ordered(part) => part.visits.iter().map(|visit| visit.shards).collect(),
            Self::Ring(part) => part.shards.clone(),
            Self::Direct(part) => part.brings.clone(),
        }
    }

    /// The hops on which the rank sends, and those from which it receives.
    #[must_use]
    pub fn ends(&self) -> (Vec<HopEnd>, Vec<HopEnd>) {
        match self {
            Self::Ordered(part) => {
                let onwards = part.visits.iter().filter_map(|visit| visit.to);
                let backwards = part.visits.iter().filter_map(|visit| visit.from);
                (onwards.chain(part.sum_to).collect(), backwards.chain(part.sum_from).collect())
            }
            Self::Ring(part) => part.hops.iter().map(|&(from, to)| (to, from)).unzip(),
            Self::Direct(part) => part.ends(),
        }
    }

    /// The ranks at the other ends of its hops, in order.
    #[must_use]
    pub fn peers(&self) -> BTreeSet<Rank> {
        let (onwards, backwards) = self.ends();
        onwards.into_iter().chain(backwards).map(|end| end.peer).collect()
    }

    /// In which order it adds.
    #[must_use]
    pub const fn order(&self) -> Order {
        match self {
            Self::Ordered(_) | Self::Direct(_) => Order::Exact,
            Self::Ring(_) => Order::Fast,
        }
    }

    /// Whether `rank` of `world_size` can execute it, in a job that adds `shards` shards in this order: it came from outside.
    ///
    /// # Errors
    /// See [`PartError`].
    pub fn check(&self, order: Order, rank: Rank, world_size: u32, shards: u32) -> Result<(), PartError> {
        if self.order() != order {
            return Err(PartError::Order { expected: order });
        }
        if !(1..=MAX_WORKERS).contains(&world_size) {
            return Err(PartError::WorldSize { found: world_size });
        }
        let (onwards, backwards) = self.ends();
        let ends = || onwards.iter().chain(&backwards);
        let mut ranks = ends().map(|end| end.peer).chain([rank]);
        if let Some(found) = ranks.find(|rank| rank.get() >= world_size) {
            return Err(PartError::UnknownRank { world_size, found });
        }
        let runs = self.runs();
        let in_order = runs.is_sorted_by(|run, next| run.end() <= next.start());
        if !in_order || runs.last().is_some_and(|run| run.end() > shards) {
            return Err(PartError::Shards { shards, found: runs });
        }
        let wrong = |reason| {
            Err(PartError::Hops {
                rank,
                world_size,
                reason,
            })
        };
        let once = |ends: &[HopEnd]| ends.iter().map(|end| end.hop).collect::<BTreeSet<_>>().len() == ends.len();
        if ends().any(|end| end.peer == rank) {
            return wrong("one leads nowhere");
        }
        if !once(&onwards) || !once(&backwards) {
            return wrong("one is named twice");
        }
        match self {
            Self::Ordered(part) => part.flaw().map_or(Ok(()), wrong),
            Self::Ring(part) => part.flaw(rank, world_size).map_or(Ok(()), wrong),
            Self::Direct(part) => part.flaw(world_size, shards).map_or(Ok(()), wrong),
        }
    }
}

impl OrderedPart {
    fn flaw(&self) -> Option<&'static str> {
        let begins = |visit: &VisitPart| visit.shards.start() == 0 && !visit.shards.is_empty();
        let Some((last, before)) = self.visits.split_last() else {
            return Some("the running sum never comes by");
        };
        if self.visits.iter().any(|visit| visit.from.is_none() && !begins(visit)) {
            return Some("a running sum begins with shard 0");
        }
        if before.iter().any(|visit| visit.to.is_none()) {
            return Some("a sum is finished once");
        }
        (last.to.is_none() != self.sum_from.is_none()).then_some("a finished sum is closed here or comes from elsewhere")
    }
}

impl RingPart {
    fn flaw(&self, rank: Rank, world_size: u32) -> Option<&'static str> {
        let neighbours = |(from, to): (HopEnd, HopEnd)| {
            let (before, after) = (from.peer.get(), to.peer.get());
            before == (rank.get() + world_size - 1) % world_size && after == (rank.get() + 1) % world_size
        };
        match self.hops {
            None => (world_size > 1).then_some("a ring of several has links"),
            Some(hops) => (!neighbours(hops)).then_some("a ring leads from each rank to the next"),
        }
    }
}

impl DirectPart {
    fn ends(&self) -> (Vec<HopEnd>, Vec<HopEnd>) {
        let (mut onwards, mut backwards) = (Vec::new(), Vec::new());
        for owner in &self.owners {
            match owner {
                Owner::Here(adding) => {
                    // Several runs may come over one.
                    let froms: BTreeMap<HopId, HopEnd> = adding.froms().map(|end| (end.hop, end)).collect();
                    onwards.extend(&adding.sums_to);
                    backwards.extend(froms.into_values());
                }
                &Owner::There { to, sum_from } => {
                    onwards.push(to);
                    backwards.push(sum_from);
                }
            }
        }
        (onwards, backwards)
    }

    fn flaw(&self, world_size: u32, shards: u32) -> Option<&'static str> {
        if self.brings.is_empty() {
            return Some("a rank brings something, if only that it has no shards");
        }
        let (mut here, mut there) = (0, BTreeSet::new());
        for owner in &self.owners {
            match owner {
                Owner::Here(adding) => {
                    here += 1;
                    let flaw = adding.flaw(&self.brings, world_size, shards);
                    if flaw.is_some() {
                        return flaw;
                    }
                }
                Owner::There { to, sum_from } if to.peer != sum_from.peer => return Some("a sum comes from its owner"),
                Owner::There { to, .. } => drop(there.insert(to.peer)),
            }
        }
        let each_once = here <= 1 && !self.owners.is_empty() && here + there.len() == self.owners.len();
        (!each_once).then_some("chunks have owners, each of which has one turn")
    }
}

impl Adding {
    /// The hops over which others' shards come, each as often as runs do.
    fn froms(&self) -> impl Iterator<Item = HopEnd> {
        self.adds.iter().filter_map(|brought| brought.from)
    }

    fn flaw(&self, brings: &[ShardRange], world_size: u32, shards: u32) -> Option<&'static str> {
        let end = self.adds.iter().try_fold(0, |next, brought| {
            let follows = brought.shards.start() == next && brought.shards.end() >= next;
            follows.then_some(brought.shards.end())
        });
        if end != Some(shards) {
            return Some("an owner adds every shard once, in order");
        }
        let own = self.adds.iter().filter(|brought| brought.from.is_none());
        if !own.map(|brought| brought.shards).eq(brings.iter().copied()) {
            return Some("an owner adds what it brings");
        }
        let ways: BTreeSet<(HopId, Rank)> = self.froms().map(|end| (end.hop, end.peer)).collect();
        let hops: BTreeSet<HopId> = ways.iter().map(|&(hop, _)| hop).collect();
        let peers: BTreeSet<Rank> = ways.iter().map(|&(_, peer)| peer).collect();
        let told: BTreeSet<Rank> = self.sums_to.iter().map(|end| end.peer).collect();
        let each_once = hops.len() == ways.len() && peers.len() == ways.len() && told.len() == self.sums_to.len();
        let all = u32::try_from(told.len()).is_ok_and(|told| told + 1 == world_size);
        (!each_once || !all || peers != told).then_some("an owner has one hop from every other rank, and one to it")
    }
}
