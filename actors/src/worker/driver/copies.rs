//! Copies of the state that are wanted of the training thread: when it makes which.

use std::collections::VecDeque;

use bytes::Bytes;
use sardana_protocol::member::Member;
use sardana_protocol::snapshot::Share;
use sardana_protocol::words::Step;
use tokio::sync::oneshot;

use super::Task;
use super::keeping::Keeping;

/// The copies that are wanted, in this order.
#[derive(Debug, Default)]
pub(super) struct Copies {
    wanted: VecDeque<WantedCopy>,
    /// Whether copies do not keep the training thread from its gradients.
    beside: bool,
}

/// Shares that are wanted of the state at a step.
#[derive(Debug)]
struct WantedCopy {
    step: Step,
    shares: Vec<Share>,
    haste: Haste,
    reply: oneshot::Sender<Vec<Bytes>>,
}

/// When the training thread copies the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Haste {
    /// Another worker waits for it.
    AtOnce,
    /// When it has nothing to compute: gradients only read the state, and others wait for them.
    BeforeUpdate,
}

impl Copies {
    pub(super) fn are_made_beside(&mut self) {
        self.beside = true;
    }

    pub(super) fn want(&mut self, step: Step, shares: Vec<Share>, haste: Haste) -> oneshot::Receiver<Vec<Bytes>> {
        let (reply, receiver) = oneshot::channel();
        self.wanted.push_back(WantedCopy {
            step,
            shares,
            haste,
            reply,
        });
        receiver
    }

    pub(super) fn are_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.wanted.clear();
    }

    /// The copy that is made next, if one is due.
    pub(super) fn next(&mut self, member: &Member, keeping: &mut Keeping) -> Option<Task> {
        // A task that waits for an older state is told by the end of its channel.
        let step = member.step();
        self.wanted.retain(|copy| copy.step == step && !copy.reply.is_closed());
        let computing = member.is_computing();
        let due = |copy: &WantedCopy| copy.haste == Haste::AtOnce || self.beside || !computing;
        let place = self.wanted.iter().position(due)?;
        let WantedCopy {
            shares, haste, reply, ..
        } = self.wanted.remove(place)?;
        let room = match haste {
            Haste::AtOnce => None,
            Haste::BeforeUpdate => keeping.take_room(),
        };
        Some(Task::Copy { shares, room, reply })
    }
}
