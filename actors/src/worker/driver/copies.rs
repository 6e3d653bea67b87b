//! Copies of the state that are wanted of the training thread: when it makes which.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    /// The copy that is being made at once, of the state as it still is.
    making: Option<(Step, Vec<Share>, Weak<Waiting>)>,
    /// Whether copies do not keep the training thread from its gradients.
    beside: bool,
}

/// Who waits for a copy. None once it was sent.
type Waiting = Mutex<Option<Vec<oneshot::Sender<Vec<Bytes>>>>>;

/// Where a copy of the state is sent: to all that wanted the same before it was there. Dropped, it tells them that none comes.
#[derive(Debug)]
pub struct CopyReply(Arc<Waiting>);

impl CopyReply {
    /// A reply, and where the first that waits gets it.
    #[must_use]
    pub fn new() -> (Self, oneshot::Receiver<Vec<Bytes>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(vec![sender])))), receiver)
    }

    /// Sends the copies, in the order of the shares, to all that still wait. They have the same memory.
    pub fn send(self, copies: Vec<Bytes>) {
        let senders = waiting(&self.0).take();
        for sender in senders.into_iter().flatten() {
            // The task that asked may have given up.
            let _ = sender.send(copies.clone());
        }
    }

    fn is_wanted(&self) -> bool {
        waiting(&self.0).iter().flatten().any(|sender| !sender.is_closed())
    }
}

/// One more waits for a copy, if it was not sent yet.
fn join(reply: &Waiting) -> Option<oneshot::Receiver<Vec<Bytes>>> {
    let (sender, receiver) = oneshot::channel();
    waiting(reply).as_mut()?.push(sender);
    Some(receiver)
}

fn waiting(reply: &Waiting) -> MutexGuard<'_, Option<Vec<oneshot::Sender<Vec<Bytes>>>>> {
    reply.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shares that are wanted of the state at a step.
#[derive(Debug)]
struct WantedCopy {
    step: Step,
    shares: Vec<Share>,
    haste: Haste,
    reply: CopyReply,
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
        if haste == Haste::AtOnce
            && let Some(receiver) = self.join(step, &shares)
        {
            return receiver;
        }
        let (reply, receiver) = CopyReply::new();
        self.wanted.push_back(WantedCopy {
            step,
            shares,
            haste,
            reply,
        });
        receiver
    }

    /// Waits for the same copy as others do, of which there is one, however large the state and however many want it.
    fn join(&self, step: Step, shares: &[Share]) -> Option<oneshot::Receiver<Vec<Bytes>>> {
        let same = |copy: &&WantedCopy| copy.haste == Haste::AtOnce && copy.step == step && copy.shares == shares;
        if let Some(copy) = self.wanted.iter().find(same) {
            return join(&copy.reply.0);
        }
        let (of, made, reply) = self.making.as_ref()?;
        if *of == step && made == shares {
            join(reply.upgrade()?.as_ref())
        } else {
            None
        }
    }

    /// The state is about to be changed: what is copied now is not what is copied from then on.
    pub(super) fn state_changes(&mut self) {
        self.making = None;
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
        self.wanted.retain(|copy| copy.step == step && copy.reply.is_wanted());
        let computing = member.is_computing();
        let due = |copy: &WantedCopy| copy.haste == Haste::AtOnce || self.beside || !computing;
        let place = self.wanted.iter().position(due)?;
        let WantedCopy {
            shares, haste, reply, ..
        } = self.wanted.remove(place)?;
        let room = match haste {
            Haste::AtOnce => {
                self.making = Some((step, shares.clone(), Arc::downgrade(&reply.0)));
                None
            }
            Haste::BeforeUpdate => keeping.take_room(),
        };
        Some(Task::Copy { shares, room, reply })
    }
}
