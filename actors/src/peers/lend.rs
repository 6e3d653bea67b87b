//! What the members of a generation give each other of the checkpoint that all of them load: each has read one share of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sardana_protocol::messages::MemberAddress;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Step, WorkerId};

use super::fetch::{FetchError, Request};
use super::{Circle, Peers};
use crate::worker::HeldShare;

/// The share that this worker has read, or will have.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// The generation that loads the checkpoint.
    generation: Generation,
    held: Option<HeldShare>,
}

impl Peers {
    /// This worker is about to read a share for `generation`: these members may have it then.
    pub(crate) fn will_lend(&self, generation: Generation, members: impl IntoIterator<Item = WorkerId>) {
        let members: BTreeSet<WorkerId> = members.into_iter().collect();
        self.name(Circle::Restoring, members);
        self.lent.replace(Lent { generation, held: None });
    }

    /// It has read it.
    pub(crate) fn lend(&self, generation: Generation, held: HeldShare) {
        self.lent.modify(|lent| {
            if lent.generation == generation {
                lent.held = Some(held);
            }
        });
    }

    /// All have what they need, or the generation is given up.
    pub(crate) fn end_lending(&self) {
        self.lent.replace(Lent::default());
        self.name(Circle::Restoring, []);
    }

    /// The share that this worker has read for `generation`, as soon as it has. None if it is another one, or for another generation.
    pub(super) async fn lent(&self, generation: Generation, share: Share) -> Option<HeldShare> {
        let look = |lent: &Lent| {
            if lent.generation > generation {
                return Some(None);
            }
            // An order may reach another member first.
            let held = lent.held.as_ref().filter(|_| lent.generation == generation)?;
            Some((held.share == share).then(|| held.clone()))
        };
        self.lent.find(look).await
    }

    /// Receives the share that `member` reads for `generation` into `into`, which is as long as it. Returns the hash that the member says
    /// it has; to compare it is the caller's.
    pub(crate) async fn borrow(
        self: &Arc<Self>,
        member: MemberAddress,
        (generation, step): (Generation, Step),
        share: Share,
        into: &mut [u8],
    ) -> Result<StateHash, FetchError> {
        let request = Request::Lent { generation, step, share };
        self.receive_share(member, request, into).await
    }
}
