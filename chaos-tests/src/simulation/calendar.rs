//! What is going to happen, and when: virtual time goes from one entry to the next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sardana_protocol::member::Event;
use sardana_protocol::messages::{CoordinatorMessage, Introduction, Tally, WorkerMessage};
use sardana_protocol::plan::HopId;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{Generation, Incarnation, Step, WorkerId};

use super::faults::{Fault, Later};
use super::model::{Gradients, Sum};
use super::world::{AtDepot, Data, Finished, OfCheckpoint};

/// One thing that happens to one party. One list, as long as it is: all that may happen waits in one calendar, and comes in the order of time.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    /// The coordinator's clock, in this life of it.
    Tick { life: Incarnation },
    /// A message reaches the coordinator over this session.
    ToCoordinator {
        worker: WorkerId,
        session: u64,
        message: Box<WorkerMessage>,
    },
    /// A message reaches a worker over this session.
    ToWorker {
        worker: WorkerId,
        session: u64,
        message: Box<CoordinatorMessage>,
    },
    /// A worker looks for the coordinator.
    Dial { worker: WorkerId },
    /// A worker's hello reaches the coordinator.
    Hello {
        worker: WorkerId,
        session: u64,
        introduction: Box<Introduction>,
    },
    /// The coordinator's answer to a worker's hello.
    Greeting {
        worker: WorkerId,
        session: u64,
        incarnation: Incarnation,
        report_from: Step,
    },
    /// No greeting has come to a worker.
    Unanswered { worker: WorkerId, session: u64 },
    /// An agent is told to kill its child.
    Kill { worker: WorkerId },
    /// An agent says that its child has ended.
    Exited {
        worker: WorkerId,
        how: &'static str,
        tally: Tally,
    },
    /// The coordinator notices that a session is over.
    SessionLost { worker: WorkerId, session: u64 },
    /// A worker notices that its session is over.
    ControlLost { worker: WorkerId, session: u64 },
    /// A worker's clock.
    Beat { worker: WorkerId, heartbeat: Beat },
    /// A training thread has done what it was doing.
    Worked { worker: WorkerId },
    /// A worker looks whether its links are made.
    Link { worker: WorkerId, generation: Generation },
    /// A link to `peer` has broken.
    LinkBroken {
        worker: WorkerId,
        generation: Generation,
        peer: WorkerId,
    },
    /// The running sum comes to a rank.
    Visit {
        worker: WorkerId,
        generation: Generation,
        step: Step,
        hop: HopId,
        gradients: Gradients,
    },
    /// The finished sum comes to a rank.
    Summed {
        worker: WorkerId,
        generation: Generation,
        sum: Sum,
    },
    /// What an owner has finished comes to a rank.
    ChunkCame {
        worker: WorkerId,
        generation: Generation,
        finished: Finished,
    },
    /// A worker's machine comes to an event that its ring or its links have left for it.
    Mail { worker: WorkerId, mail: Box<Mail> },
    /// What a member fetches may be there.
    Fetched { worker: WorkerId, serial: u64 },
    /// What a joiner copies may be there.
    Transferred { worker: WorkerId, serial: u64 },
    /// There is room for shares.
    RoomMade { worker: WorkerId },
    /// Shares are hashed, or some of them are.
    Hashed { worker: WorkerId, snapshot: SnapshotId },
    /// Something happens at a depot, or on its connection.
    Depot { place: usize, what: AtDepot },
    /// What a worker does for a checkpoint is as far as this.
    Checkpoint {
        worker: WorkerId,
        serial: u64,
        what: OfCheckpoint,
    },
    /// The coordinator is started again.
    Revive,
    /// A worker process starts.
    Start,
    /// It is time for a fault of this kind.
    Strike(Fault),
    /// A later part of a fault.
    Later(Later),
}

/// An event of a worker's machine, with its data.
#[derive(Debug, Clone)]
pub(crate) struct Mail {
    pub(crate) event: Event,
    pub(crate) data: Data,
}

/// What a worker's clock is due for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// A heartbeat, and so on.
    Heart,
    /// Reports, once.
    Reports,
}

/// The party that something happens to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    Coordinator,
    Worker(WorkerId),
    World,
}

impl Happening {
    /// The party whose process must run for it to happen.
    pub(crate) fn party(&self) -> Party {
        match self {
            Self::Tick { .. } | Self::ToCoordinator { .. } | Self::Hello { .. } | Self::SessionLost { .. } => {
                Party::Coordinator
            }
            Self::Depot { what, .. } => what.party(),
            Self::ToWorker { worker, .. }
            | Self::Dial { worker }
            | Self::Greeting { worker, .. }
            | Self::Unanswered { worker, .. }
            | Self::ControlLost { worker, .. }
            | Self::Beat { worker, .. }
            | Self::Worked { worker }
            | Self::Link { worker, .. }
            | Self::LinkBroken { worker, .. }
            | Self::Visit { worker, .. }
            | Self::Summed { worker, .. }
            | Self::ChunkCame { worker, .. }
            | Self::Mail { worker, .. }
            | Self::Fetched { worker, .. }
            | Self::Transferred { worker, .. }
            | Self::RoomMade { worker }
            | Self::Checkpoint { worker, .. }
            | Self::Hashed { worker, .. } => Party::Worker(*worker),
            Self::Kill { .. } | Self::Exited { .. } | Self::Revive | Self::Start | Self::Strike(_) | Self::Later(_) => {
                Party::World
            }
        }
    }
}

/// When something happens, and where it waits until then. Small, as a heap moves its entries all the time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// In nanoseconds, which is as exact as a duration.
    at: u64,
    /// Of two entries for one time, the one that was entered first comes first.
    serial: u64,
    place: usize,
}

/// Virtual time, and all that is going to happen.
#[derive(Default)]
pub(crate) struct Calendar {
    now: Duration,
    serial: u64,
    heap: BinaryHeap<Reverse<Entry>>,
    /// What waits, by place; none where a place is free.
    waiting: Vec<Option<Happening>>,
    free: Vec<usize>,
}

impl Calendar {
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// At this time, or now if that is over.
    pub(crate) fn at(&mut self, at: Duration, what: Happening) {
        self.serial += 1;
        self.enter(at, self.serial, what);
    }

    pub(crate) fn after(&mut self, delay: Duration, what: Happening) {
        self.at(self.now + delay, what);
    }

    /// The next thing that happens; time goes on to it.
    pub(crate) fn next(&mut self) -> Option<(u64, Happening)> {
        loop {
            let Reverse(Entry { at, serial, place }) = self.heap.pop()?;
            self.free.push(place);
            // It may have been forgotten.
            if let Some(what) = self.waiting.get_mut(place).and_then(Option::take) {
                self.now = Duration::from_nanos(at);
                return Some((serial, what));
            }
        }
    }

    /// At this time. What could not happen yet keeps its serial: it comes later, and in the same order as all else that had to wait.
    pub(crate) fn enter(&mut self, at: Duration, serial: u64, what: Happening) {
        let at = u64::try_from(at.max(self.now).as_nanos()).unwrap_or(u64::MAX);
        let place = match self.free.pop() {
            Some(place) => {
                self.waiting[place] = Some(what);
                place
            }
            None => {
                self.waiting.push(Some(what));
                self.waiting.len() - 1
            }
        };
        self.heap.push(Reverse(Entry { at, serial, place }));
    }

    pub(crate) fn forget(&mut self, wanted: impl Fn(&Happening) -> bool) {
        for what in &mut self.waiting {
            what.take_if(|what| wanted(what));
        }
    }
}
