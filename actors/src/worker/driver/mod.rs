//! The step driver between a worker's training thread and its actor: the machine, and the buffers that its commands speak of.
//!
//! Both sides hand in what happened and the machine decides; nothing here blocks but [`StepDriver::next`], which only the training
//! thread calls. What needs the network goes to the actor as an [`ActorCommand`]; what is said goes to the coordinator. Must not know
//! the model.

mod arrival;
mod buffers;
mod changed;
mod copies;
mod device_memory;
mod for_others;
mod inner;
mod keeping;
mod meter;
mod moved;
mod outbox;
mod present_ring;
mod tasks;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use sardana_collectives::gradient::{GradientBuffer, WriteMode};
use sardana_collectives::helped::Helped;
use sardana_collectives::layout::Layout;
use sardana_collectives::ring::CompletedSum;
use sardana_protocol::job::JobSpec;
use sardana_protocol::member::{Event, Heartbeat, Member};
use sardana_protocol::memory::{DeviceMemory, sums_kept};
use sardana_protocol::messages::{Introduction, StepReport, WorkerMessage};
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Pace, ShardRange, Step};
use tokio::sync::mpsc;

use super::tally::TallyFile;
use crate::room::{Reserve, Room};
pub use arrival::{Arrival, Mismatch, SavedState};
use changed::Changed;
pub use copies::CopyReply;
use inner::Inner;
pub(crate) use keeping::names_watched;
pub use keeping::{Closed, HeldShare, KeptSum};
pub use moved::Moved;
pub use outbox::{ActorCommand, Outbox};
use present_ring::{PresentRing, Summed};

/// What the training thread does next.
#[derive(Debug)]
pub enum Task {
    /// Compute the gradient of `shard` into `buffer`, then [`StepDriver::computed`].
    Gradient {
        /// The step.
        step: Step,
        /// The buffer's piece.
        piece: ShardRange,
        /// The shard.
        shard: u32,
        /// Where the gradient goes.
        buffer: GradientBuffer,
        /// How it is written there.
        mode: WriteMode,
    },
    /// Apply the mean of `sum`, then [`StepDriver::applied`].
    Apply {
        /// The sum of the step.
        sum: KeptSum,
    },
    /// Load this saved state, then [`StepDriver::loaded`].
    Load {
        /// The step that it stands at.
        step: Step,
        /// The state.
        state: SavedState,
    },
    /// Copy shares of the state, for others, and send them here in this order.
    Copy {
        /// The shares.
        shares: Vec<Share>,
        /// What to copy them into, one after the other, if it was made before and has room for as many.
        room: Option<Room>,
        /// Where to.
        reply: CopyReply,
    },
    /// Hash the state and evaluate the model, then [`StepDriver::concluded`].
    Conclude {
        /// Updates applied.
        step: Step,
    },
    /// The worker ends.
    End,
}

/// The gradient of a [`Task::Gradient`].
#[derive(Debug)]
pub struct Gradient {
    /// The step.
    pub step: Step,
    /// The buffer's piece.
    pub piece: ShardRange,
    /// The shard.
    pub shard: u32,
    /// Where it is. None once the next shard of the same piece is added there.
    pub buffer: Option<GradientBuffer>,
}

/// The step driver. Shared by the training thread and the worker's actor.
#[derive(Debug)]
pub struct StepDriver {
    inner: Mutex<Inner>,
    changed: Changed,
    ring: PresentRing,
    layout: Arc<Layout>,
    moved: Moved,
    reserve: Reserve,
    device_memory: Mutex<Option<DeviceMemory>>,
}

impl StepDriver {
    /// A step driver for a worker of `job`, and what leaves it. Counts gradients in `tally`, if there is one.
    #[must_use]
    pub fn new(job: &JobSpec, layout: Arc<Layout>, tally: Option<TallyFile>) -> (Arc<Self>, Outbox) {
        let member = Member::new(job, sums_kept(layout.bytes() as u64));
        let (inner, outbox) = Inner::new(member, Arc::clone(&layout), tally);
        let driver = Self {
            inner: Mutex::new(inner),
            changed: Changed::default(),
            ring: PresentRing::default(),
            layout,
            moved: Moved::default(),
            reserve: Reserve::default(),
            device_memory: Mutex::default(),
        };
        (Arc::new(driver), outbox)
    }

    /// How a gradient's bytes are laid out.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Memory for a state that comes, and for copies of the state.
    #[must_use]
    pub const fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic on the other side ends the worker anyway, or a ring that the training thread met while it helped; what it left is still the truth.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the machine.
    pub fn read<T>(&self, look: impl FnOnce(&Member) -> T) -> T {
        look(&self.lock().member)
    }

    /// From now on no more gradients are held at once than these, beside the sums.
    pub fn hold_at_most(&self, pieces: u32) {
        self.lock().member.hold_at_most(pieces);
    }

    /// What a hello says of this worker; called for each hello, right before it is sent.
    pub fn introduce(&self) -> Introduction {
        let mut inner = self.lock();
        inner.handle(Event::Introducing);
        let introduction = inner.member.introduction();
        drop(inner);
        self.changed.notify_all();
        introduction
    }

    /// How fast the training thread computes gradients, as last measured. None before it has computed some.
    #[must_use]
    pub fn pace(&self) -> Option<Pace> {
        self.lock().meter.pace()
    }

    /// So many more bytes of a state or sum are fetched, loaded, hashed or compared. Others may wait for that: the coordinator is told with the next
    /// heartbeat, and takes no worker that moves something for one that hangs.
    pub fn moved(&self, bytes: usize) {
        self.moved.add(bytes);
    }

    /// The same for a thread that may outlive what the training thread does next: so that it tells of what it copies.
    #[must_use]
    pub fn mover(&self) -> Moved {
        self.moved.clone()
    }

    /// It is time for reports, and perhaps for a heartbeat.
    pub fn beat(&self, heartbeat: Heartbeat) {
        let bytes = self.moved.bytes();
        let mut inner = self.lock();
        inner.handle(Event::Moved { bytes });
        inner.handle(Event::Beat { heartbeat });
        drop(inner);
        self.changed.notify_all();
    }

    /// Hands in an event that brings no sum and no state; an event that does is an [`Arrival`].
    pub fn handle(&self, event: Event) {
        let mut inner = self.lock();
        inner.handle(event);
        drop(inner);
        self.changed.notify_all();
    }

    /// Hands in what has come.
    pub fn arrived(&self, arrival: Arrival) {
        let mut inner = self.lock();
        let unwanted = inner.arrived(arrival);
        drop(inner);
        self.changed.notify_all();
        // It may be as large as the model.
        drop(unwanted);
    }

    /// Says this to the coordinator, after all that was said before.
    pub fn say(&self, message: WorkerMessage) {
        self.lock().say(message);
    }

    /// A connection to the coordinator is lost, with all of its queue that was not sent. What is said from now on comes here: the machine
    /// says again what matters.
    #[must_use]
    pub fn hang_up(&self) -> mpsc::UnboundedReceiver<WorkerMessage> {
        self.lock().hang_up()
    }

    /// Hands in a sum that the ring has finished.
    pub fn summed(&self, done: CompletedSum) {
        self.arrived(Arrival::Summed {
            generation: done.generation,
            trailer: done.trailer,
            sum: done.sum,
        });
    }

    /// From now on a copy does not keep the training thread from its gradients: another thread makes it, and the training thread
    /// waits for that before the state changes.
    pub fn copies_beside(&self) {
        self.lock().copies.are_made_beside();
    }

    /// The next task of the training thread. Waits until there is one.
    #[must_use]
    pub fn next(&self) -> Task {
        loop {
            let (mut inner, mut found) = self.task(self.lock());
            if found.is_none() {
                drop(inner);
                self.ring.help(|| !self.lock().has_long_work());
                self.changed.looks();
                (inner, found) = self.task(self.lock());
            }
            if let Some(task) = found {
                self.share_ring(&inner, &task);
                return task;
            }
            drop(inner);
            if !self.ring.wait() && !self.changed.has() {
                thread::park();
            }
        }
    }

    /// A ring that hands its sums in here, to be awaited. The training thread carries on with it where it has nothing else to do; if the ring is `waited_for`, also once the
    /// ring has waited for other ranks. What comes over a network is taken in by the network's thread, which goes on with a ring that is not.
    pub fn helps(&self, ring: impl Future<Output = Summed> + Send + 'static, waited_for: bool) -> Helped<Summed> {
        let ring = self.ring.begin(ring, waited_for);
        // It waits for this one now.
        self.changed.notify_all();
        ring
    }

    /// The same where training is a task, and not a thread of its own: see [`sardana_net::environment`].
    pub async fn coming(&self) -> Task {
        loop {
            let changed = self.changed.task().notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            let found = self.task(self.lock()).1;
            if let Some(task) = found {
                return task;
            }
            changed.await;
        }
    }

    /// The next task, if there is one. What a worker adds up that is alone is added first, while others have the lock: it may wait for a device. So it is with memory
    /// that is given back, which a system takes its time for.
    fn task<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> (MutexGuard<'a, Inner>, Option<Task>) {
        let gone = inner.buffers.gone();
        if !gone.is_empty() {
            drop(inner);
            drop(gone);
            inner = self.lock();
        }
        while let Some(alone) = inner.alone() {
            drop(inner);
            self.ring.hand_over();
            let sum = alone.add_up(&self.layout);
            inner = self.lock();
            inner.added_up(sum);
        }
        let task = inner.task();
        (inner, task)
    }

    /// The next gradient of the training thread, if it may begin one before `before` is [`computed`](Self::computed), which is the only one that is not. One of
    /// the same piece takes the buffer with it.
    pub fn next_beside(&self, before: &mut Gradient) -> Option<Task> {
        let mut inner = self.lock();
        let task = inner.task_beside(before);
        if let Some(task) = &task {
            self.share_ring(&inner, task);
        }
        task
    }

    /// While the training thread does something that takes long, the ring's task hears of all that it does, such as chunks of a gradient that are written.
    fn share_ring(&self, inner: &Inner, next: &Task) {
        if inner.is_brief(next) {
            self.ring.come_back();
        } else {
            self.ring.hand_over();
        }
    }

    /// The gradient of a [`Task::Gradient`] is in its buffer, and [computed](GradientBuffer::wait_computed). They are told in the order in which they were handed
    /// out.
    pub fn computed(&self, gradient: Gradient) {
        self.lock().computed(gradient);
    }

    /// The sum of [`Task::Apply`] is applied.
    pub fn applied(&self, report: StepReport) {
        self.lock().applied(report);
    }

    /// The state of [`Task::Load`] is loaded.
    pub fn loaded(&self) {
        self.lock().loaded();
    }

    /// The model is evaluated.
    pub fn concluded(&self, hash: StateHash, results: Vec<(String, f64)>) {
        self.handle(Event::Concluded { hash, results });
    }

    /// Ends the training thread at its next task. No worker is given a state any more.
    pub fn end(&self) {
        self.lock().end();
        self.changed.notify_all();
    }
}

#[cfg(test)]
impl StepDriver {
    /// Bytes of which [`StepDriver::moved`] was told.
    pub(crate) fn moved_so_far(&self) -> u64 {
        self.moved.bytes()
    }

    /// Does what the machine would want.
    pub(crate) fn execute(&self, command: sardana_protocol::member::Command) {
        self.execute_with(command, None);
    }

    /// Likewise, with what has come.
    fn execute_with(&self, command: sardana_protocol::member::Command, mut payload: Option<arrival::Payload>) {
        self.lock().execute(command, &mut payload);
        self.changed.notify_all();
    }

    /// How many wait for a sum.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().keeping.waiting()
    }
}
