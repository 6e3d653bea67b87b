//! Where two processes cannot pass memory to each other, links to workers of this host are made over QUIC like all others.

use std::sync::Arc;

use quinn::{Connection, Endpoint};
use sardana_collectives::links::LinkSender;
use sardana_protocol::messages::HostHash;
use sardana_protocol::words::{JobId, WorkerId};

use super::Peers;
use super::load::Ticket;
use super::table::LinkKey;

/// What would pass through memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Carries {
    Link(#[expect(dead_code, reason = "there is no such link")] LinkKey),
    Load(#[expect(dead_code, reason = "there is no such link")] Ticket),
}

/// Nothing that could be listened at.
#[derive(Debug, Default)]
pub(super) struct Listening;

impl Listening {
    pub(super) fn of(_: JobId, _: WorkerId, _: &Endpoint) -> Self {
        Self
    }

    pub(super) const fn host_hash(&self) -> Option<HostHash> {
        None
    }

    /// Never ends.
    pub(super) async fn serve(self, _: &Arc<Peers>) {
        std::future::pending().await
    }
}

impl Peers {
    pub(super) async fn open_near(&self, _: Carries, _: (WorkerId, u16), _: &Connection) -> Option<LinkSender> {
        debug_assert!(!self.near || cfg!(not(target_os = "linux")));
        None
    }
}
