//! What the members of a generation that starts from a checkpoint are told: which of them read it from depots, and from which of these the
//! others get it.

use super::CheckpointManager;
use crate::checkpoint::{DepotAddress, Head, ManifestKey};
use crate::limits::RESTORE_TOGETHER;
use crate::messages::{MemberAddress, Peer, Restore};
use crate::words::Rank;

/// What the members of a generation that starts from a checkpoint are told.
#[derive(Debug, Clone)]
pub(crate) struct Restores {
    pub(crate) key: ManifestKey,
    depots: Vec<DepotAddress>,
    groups: Vec<Group>,
}

/// Members that load a checkpoint together.
#[derive(Debug, Clone, Default)]
struct Group {
    /// In rank order.
    members: Vec<Peer>,
    readers: Vec<Rank>,
}

impl Restores {
    /// What the member of this rank is told.
    pub(crate) fn of(&self, rank: Rank) -> Option<Box<Restore>> {
        let is_in = |group: &&Group| group.members.binary_search_by_key(&rank, |peer| peer.rank).is_ok();
        let group = self.groups.iter().find(is_in)?;
        Some(Box::new(Restore {
            key: self.key,
            depots: self.depots.clone(),
            members: group.members.clone(),
            readers: group.readers.clone(),
        }))
    }
}

/// Groups of about [`RESTORE_TOGETHER`], each with some readers. The readers of a group are neighbours, as far as that goes: ranks of one
/// host are.
fn groups(readers: &[Peer], others: &[Peer]) -> Vec<Group> {
    let count = (readers.len() + others.len()).div_ceil(RESTORE_TOGETHER);
    let count = count.min(readers.len()).max(1);
    let mut groups = vec![Group::default(); count];
    for (index, &peer) in readers.iter().enumerate() {
        let group = &mut groups[index * count / readers.len()];
        group.members.push(peer);
        group.readers.push(peer.rank);
    }
    for (index, &peer) in others.iter().enumerate() {
        groups[index % count].members.push(peer);
    }
    for group in &mut groups {
        group.members.sort_unstable_by_key(|peer| peer.rank);
    }
    groups
}

impl CheckpointManager {
    /// What the members of a generation that starts from this checkpoint are told.
    pub(crate) fn restores_of(&self, head: &Head, members: &[MemberAddress]) -> Restores {
        let unable = &self.restoring.unable;
        let peers = (0..).map(Rank::new).zip(members);
        let peers = peers.map(|(rank, &member)| Peer { rank, member });
        let (unable, able): (Vec<Peer>, Vec<Peer>) = peers.partition(|peer| unable.contains(&peer.member.worker));
        Restores {
            key: head.key,
            depots: self.depot_addresses(),
            groups: if able.is_empty() {
                groups(&unable, &[])
            } else {
                groups(&able, &unable)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::words::WorkerId;

    fn peers(ranks: impl Iterator<Item = u32>) -> Vec<Peer> {
        let member = |rank| MemberAddress {
            worker: WorkerId::new(u64::from(rank)),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        };
        let peer = |rank| Peer {
            rank: Rank::new(rank),
            member: member(rank),
        };
        ranks.map(peer).collect()
    }

    #[test]
    fn each_member_is_in_one_group_of_few_with_some_who_can_read() {
        for (able, unable) in [(1, 0), (64, 0), (65, 0), (1_000, 24), (500, 500), (3, 1_000), (1, 100)] {
            let groups = groups(&peers(unable..unable + able), &peers(0..unable));
            let mut all: Vec<u32> = groups
                .iter()
                .flat_map(|group| group.members.iter().map(|peer| peer.rank.get()))
                .collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..able + unable), "{able} and {unable}");
            for group in &groups {
                assert!(!group.readers.is_empty(), "{able} and {unable}");
                assert!(group.members.is_sorted_by_key(|peer| peer.rank));
                let enough = able as usize * RESTORE_TOGETHER >= (able + unable) as usize;
                let most = RESTORE_TOGETHER + 1;
                assert!(
                    !enough || group.members.len() <= most,
                    "{} of {able} and {unable}",
                    group.members.len()
                );
            }
        }
    }

    #[test]
    fn as_many_as_load_together_are_one_group() {
        let groups = groups(&peers(0..64), &[]);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].readers.len(), 64);
    }
}
