//! Which processes a depot serves: those that the coordinator has named last. Not being named is revocation (SEC-1).

use std::collections::BTreeSet;

use sardana_net::trust::{PeerIdentity, Role};
use sardana_protocol::words::WorkerId;

use crate::watched::Watched;

#[derive(Debug, Default)]
struct Named {
    workers: BTreeSet<WorkerId>,
    /// By the ids in their certificates.
    depots: BTreeSet<u64>,
}

impl Named {
    fn has(&self, peer: PeerIdentity) -> bool {
        match peer.role {
            Role::Worker => self.workers.contains(&WorkerId::new(peer.id)),
            Role::Checkpoint => self.depots.contains(&peer.id),
            Role::Coordinator | Role::Agent | Role::Operator => false,
        }
    }
}

/// The processes that are served.
#[derive(Debug, Default)]
pub(super) struct AccessList(Watched<Named>);

impl AccessList {
    /// From now on these, and no other process.
    pub(super) fn name(&self, workers: BTreeSet<WorkerId>, depots: BTreeSet<u64>) {
        self.0.replace(Named { workers, depots });
    }

    /// Waits until `peer` is named.
    pub(super) async fn named(&self, peer: PeerIdentity) {
        self.0.find(|named| named.has(peer).then_some(())).await;
    }

    /// Waits until `peer` is not named any more.
    pub(super) async fn revoked(&self, peer: PeerIdentity) {
        self.0.find(|named| (!named.has(peer)).then_some(())).await;
    }
}
