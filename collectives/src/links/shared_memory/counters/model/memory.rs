//! The model's memory: counters made of the model checker's integers, and slots of one number each. A fault can be planted in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

use super::bell::Socket;
use crate::links::shared_memory::counters::{Atomic, Counters, Memory, Side};

/// What is broken, so that the model must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An end does not order what it says after what it did before.
    Unreleased(Said),
    /// The other end does not order what it does after what it sees of that.
    Unacquired(Said),
    /// An end has no fence.
    Unfenced(End),
    /// An end does not look again once it has said that it sleeps.
    LooksOnce(End),
    /// An end does not ring.
    Silent(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// What the other end relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The writer's count.
    Written,
    /// The reader's count.
    Read,
    /// The writer's state.
    Over,
}

/// What both ends see.
pub(super) struct Shared<const FRAMES: usize, const SLOTS: usize> {
    counters: Counters<Integer<AtomicU64>, Integer<AtomicU32>>,
    slots: [AtomicU64; SLOTS],
    pub(super) sockets: [Socket; 2],
}

/// How an end sees it.
pub(super) struct View<const FRAMES: usize, const SLOTS: usize> {
    pub(super) shared: Arc<Shared<FRAMES, SLOTS>>,
    pub(super) end: End,
    fault: Option<Fault>,
}

/// An integer of which an end may forget the order.
pub(super) struct Integer<A> {
    atomic: A,
    unreleased: bool,
    unacquired: bool,
}

impl<const FRAMES: usize, const SLOTS: usize> View<FRAMES, SLOTS> {
    /// Both ends' views of new memory.
    pub(super) fn pair(fault: Option<Fault>) -> (Self, Self) {
        let counters = Counters {
            sender: side(fault, Some(Said::Written), Some(Said::Over)),
            receiver: side(fault, Some(Said::Read), None),
        };
        let sender = Self {
            shared: Arc::new(Shared {
                counters,
                slots: std::array::from_fn(|_| AtomicU64::default()),
                sockets: [Socket::default(), Socket::default()],
            }),
            end: End::Sender,
            fault,
        };
        let receiver = Self {
            end: End::Receiver,
            ..sender.again()
        };
        (sender, receiver)
    }

    pub(super) fn again(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            ..*self
        }
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// What lies in slot `number`. Nothing orders it but the counts.
    pub(super) fn slot(&self, number: u64) -> u64 {
        self.place(number).load(Ordering::Relaxed)
    }

    pub(super) fn put(&self, number: u64, value: u64) {
        self.place(number).store(value, Ordering::Relaxed);
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.shared.slots[number as usize % SLOTS]
    }

    pub(super) fn own(&self) -> &Side<Integer<AtomicU64>, Integer<AtomicU32>> {
        match self.end {
            End::Sender => &self.shared.counters.sender,
            End::Receiver => &self.shared.counters.receiver,
        }
    }
}

impl<const FRAMES: usize, const SLOTS: usize> Memory for View<FRAMES, SLOTS> {
    type Long = Integer<AtomicU64>;
    type Short = Integer<AtomicU32>;
    const FRAMES: u64 = FRAMES as u64;
    const SLOTS: u64 = SLOTS as u64;

    fn counters(&self) -> &Counters<Self::Long, Self::Short> {
        &self.shared.counters
    }

    fn fence(&self) {
        if !self.has(Fault::Unfenced(self.end)) {
            fence(Ordering::SeqCst);
        }
    }
}

fn side(fault: Option<Fault>, frames: Option<Said>, state: Option<Said>) -> Side<Integer<AtomicU64>, Integer<AtomicU32>> {
    Side {
        frames: Integer::new(fault, frames),
        state: Integer::new(fault, state),
        sleeps: Integer::new(fault, None),
    }
}

impl<A: Default> Integer<A> {
    fn new(fault: Option<Fault>, said: Option<Said>) -> Self {
        Self {
            atomic: A::default(),
            unreleased: said.is_some_and(|said| fault == Some(Fault::Unreleased(said))),
            unacquired: said.is_some_and(|said| fault == Some(Fault::Unacquired(said))),
        }
    }
}

impl<A> Integer<A> {
    fn loads(&self, ordering: Ordering) -> Ordering {
        if self.unacquired { Ordering::Relaxed } else { ordering }
    }

    fn stores(&self, ordering: Ordering) -> Ordering {
        if self.unreleased { Ordering::Relaxed } else { ordering }
    }
}

impl Atomic<u64> for Integer<AtomicU64> {
    fn load(&self, ordering: Ordering) -> u64 {
        self.atomic.load(self.loads(ordering))
    }

    fn store(&self, value: u64, ordering: Ordering) {
        self.atomic.store(value, self.stores(ordering));
    }

    fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        self.atomic.swap(value, ordering)
    }
}

impl Atomic<u32> for Integer<AtomicU32> {
    fn load(&self, ordering: Ordering) -> u32 {
        self.atomic.load(self.loads(ordering))
    }

    fn store(&self, value: u32, ordering: Ordering) {
        self.atomic.store(value, self.stores(ordering));
    }

    fn swap(&self, value: u32, ordering: Ordering) -> u32 {
        self.atomic.swap(value, ordering)
    }
}
