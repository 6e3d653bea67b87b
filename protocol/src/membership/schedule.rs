//! Which member computes which shards in a step, and along which hops their gradients are added.

use super::formation::Sums;
use crate::plan::{Hosts, Plan, Visit};
use crate::words::ShardRange;

/// Which shards each rank computes, and what each member is told of that.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) visits: Vec<Visit>,
    pub(super) plan: Plan,
    /// Whether the plan is one that workers have only where they share memory.
    pub(super) counts_on_memory: bool,
    /// The shards that each rank computes: how many, and which it begins with.
    pub(super) shares: Vec<(u32, ShardRange)>,
}

impl Schedule {
    pub(super) fn new(sums: Sums, members: usize, visits: Vec<Visit>) -> Self {
        let mut shares: Vec<Option<(u32, ShardRange)>> = vec![None; members];
        for visit in &visits {
            if let Some(share) = shares.get_mut(visit.rank.index()) {
                let (count, first) = share.unwrap_or((0, visit.shards));
                *share = Some((count.saturating_add(visit.shards.len()), first));
            }
        }
        let none = (0, ShardRange::new(0, 0));
        let world_size = u32::try_from(members).unwrap_or(u32::MAX);
        let plan_for = |hosts| match hosts {
            Some(_) if sums.on_devices => Plan::fastest_on_devices(sums.order, world_size, &visits, sums.gradient_bytes),
            Some(hosts) => Plan::fastest(sums.order, world_size, &visits, sums.gradient_bytes, hosts),
            None => Plan::new(sums.order, world_size, &visits),
        };
        let plan = plan_for(sums.hosts);
        Self {
            counts_on_memory: sums.hosts == Some(Hosts::SharingMemory) && plan != plan_for(Some(Hosts::Same)),
            plan,
            visits,
            shares: shares.into_iter().map(|share| share.unwrap_or(none)).collect(),
        }
    }

    pub(super) fn len_of(&self, rank: usize) -> u32 {
        self.shares.get(rank).map_or(0, |(count, _)| *count)
    }
}
