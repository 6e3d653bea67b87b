//! Which member computes which shards in a step, and along which hops their gradients are added.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::formation::Sums;
use crate::messages::MemberAddress;
use crate::plan::{Hosts, Plan, Visit};
use crate::words::ShardRange;

/// Which shards each rank computes, and what each member is told of that.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    pub(super) visits: Vec<Visit>,
    pub(super) plan: Plan,
    /// The shards that each rank computes: how many, and which it begins with.
    pub(super) shares: Vec<(u32, ShardRange)>,
}

impl Schedule {
    pub(super) fn new(sums: Sums, members: &[MemberAddress], visits: Vec<Visit>) -> Self {
        let mut shares: Vec<Option<(u32, ShardRange)>> = vec![None; members.len()];
        for visit in &visits {
            if let Some(share) = shares.get_mut(visit.rank.index()) {
                let (count, first) = share.unwrap_or((0, visit.shards));
                *share = Some((count.saturating_add(visit.shards.len()), first));
            }
        }
        let none = (0, ShardRange::new(0, 0));
        let world_size = u32::try_from(members.len()).unwrap_or(u32::MAX);
        Self {
            plan: Plan::fastest(sums.order, world_size, &visits, sums.gradient_bytes, hosts_of(members)),
            visits,
            shares: shares.into_iter().map(|share| share.unwrap_or(none)).collect(),
        }
    }

    pub(super) fn len_of(&self, rank: usize) -> u32 {
        self.shares.get(rank).map_or(0, |(count, _)| *count)
    }
}

/// Where members are, as far as their addresses tell.
fn hosts_of(members: &[MemberAddress]) -> Hosts {
    let hosts: BTreeSet<IpAddr> = members.iter().map(|member| member.address.ip()).collect();
    match hosts.len() {
        1 => Hosts::Same,
        several if several == members.len() => Hosts::Apart,
        _ => Hosts::Mixed,
    }
}
