//! The model's socket. A ring orders memory only for an end that sleeps already, since the model checker's waking does; one that is found there
//! says nothing of what was done before. The end of a process comes after all that the process did.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use loom::sync::atomic::AtomicU32;
use loom::thread::{self, Thread};

use super::memory::{End, Fault, View};
use crate::links::shared_memory::counters::{Doorbell, Gone};

const RUNG: u32 = 1;
const CLOSED: u32 = 2;

/// What has come to an end.
#[derive(Default)]
pub(super) struct Socket {
    /// [`RUNG`] and [`CLOSED`].
    came: AtomicU32,
    /// The thread that sleeps. No step of the model: threads change places only at its own integers.
    sleeper: Mutex<Option<Thread>>,
}

/// One end's socket.
pub(super) struct Bell<const FRAMES: usize, const SLOTS: usize> {
    view: View<FRAMES, SLOTS>,
    /// Its process does not come to ringing any more.
    killed: Cell<bool>,
}

impl Socket {
    fn receives(&self, what: u32, ordering: Ordering) {
        self.came.fetch_or(what, ordering);
        if let Some(sleeper) = self.sleeper.lock().expect("nobody panics with it").take() {
            sleeper.unpark();
        }
    }
}

impl<const FRAMES: usize, const SLOTS: usize> Bell<FRAMES, SLOTS> {
    pub(super) fn new(view: View<FRAMES, SLOTS>) -> Self {
        let killed = Cell::new(false);
        Self { view, killed }
    }

    /// Whatever the end does from now on, it does not come to ringing.
    pub(super) fn kill(&self) {
        self.killed.set(true);
    }

    /// The end's process is gone.
    pub(super) fn close(&self) {
        self.other().receives(CLOSED, Ordering::Release);
    }

    fn own(&self) -> &Socket {
        &self.view.shared.sockets[self.view.end as usize]
    }

    fn other(&self) -> &Socket {
        match self.view.end {
            End::Sender => &self.view.shared.sockets[End::Receiver as usize],
            End::Receiver => &self.view.shared.sockets[End::Sender as usize],
        }
    }
}

impl<const FRAMES: usize, const SLOTS: usize> Doorbell for Bell<FRAMES, SLOTS> {
    fn ring(&self) {
        if !self.killed.get() && !self.view.has(Fault::Silent(self.view.end)) {
            self.other().receives(RUNG, Ordering::Relaxed);
        }
    }

    async fn heard(&self) -> Result<(), Gone> {
        let own = self.own();
        loop {
            match own.came.fetch_and(!RUNG, Ordering::Acquire) {
                0 => {
                    *own.sleeper.lock().expect("nobody panics with it") = Some(thread::current());
                    thread::park();
                }
                CLOSED => return Err(Gone),
                _ => return Ok(()),
            }
        }
    }

    async fn lingers(&self, _since: Instant) -> bool {
        false
    }
}
