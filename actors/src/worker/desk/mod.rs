//! The desk between a worker's training thread and its actor: the machine, and the buffers that its commands speak of.
//!
//! Both sides hand in what happened and the machine decides; nothing here blocks but [`Desk::next`], which only the training
//! thread calls. What needs the network goes to the actor as an [`Errand`]. Must not know the model.

mod inner;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bytes::Bytes;
use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::ring::{CompletedSum, RingInput};
use sardana_protocol::job::JobSpec;
use sardana_protocol::member::{Event, Member};
use sardana_protocol::messages::{CatchUp, Form, MemberAddress, StepReport, WorkerMessage};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, ShardRange, Step};
use tokio::sync::{mpsc, oneshot};

use super::tally::TallyFile;
use inner::Inner;

/// What the training thread does next.
#[derive(Debug)]
pub enum Task {
    /// Compute the gradient of `shard` into `buffer`, then [`Desk::computed`].
    Gradient {
        /// The step.
        step: Step,
        /// The buffer's piece.
        piece: ShardRange,
        /// The shard.
        shard: u32,
        /// Where to.
        buffer: GradientBuffer,
        /// How.
        mode: WriteMode,
    },
    /// Apply the mean of `sum`, then [`Desk::applied`].
    Apply {
        /// The sum of the step.
        sum: Arc<Sum>,
    },
    /// Load this saved state, then [`Desk::loaded`].
    Load {
        /// The step that it stands at.
        step: Step,
        /// The state.
        state: Vec<u8>,
    },
    /// Save the state for a member that lacks it, and send it here.
    Save {
        /// Where to.
        reply: oneshot::Sender<Bytes>,
    },
    /// Hash the state and evaluate the model, then [`Desk::concluded`].
    Conclude {
        /// Updates applied.
        step: Step,
    },
    /// The worker ends.
    End,
}

/// What the machine wants from the network.
#[derive(Debug)]
pub enum Errand {
    /// Tell the coordinator.
    Send(WorkerMessage),
    /// Make the links of this generation and run its ring.
    Connect {
        /// The generation.
        form: Box<Form>,
        /// What the ring is to be told.
        inbox: mpsc::UnboundedReceiver<RingInput>,
    },
    /// End the ring of this generation.
    Abort {
        /// Which.
        generation: Generation,
    },
    /// Fetch a sum or state.
    Fetch {
        /// For which generation.
        generation: Generation,
        /// Sum or state.
        what: CatchUp,
        /// The step of the sum, or of the state.
        step: Step,
        /// The donor.
        donor: MemberAddress,
    },
}

/// Data that comes with an event.
#[derive(Debug)]
pub enum Data {
    /// The event says it all.
    None,
    /// A finished sum.
    Sum(Sum),
    /// A saved state.
    State(Vec<u8>),
}

/// The desk. Shared by the training thread and the worker's actor.
#[derive(Debug)]
pub struct Desk {
    inner: Mutex<Inner>,
    changed: Condvar,
    layout: Arc<Layout>,
}

impl Desk {
    /// A desk for a worker of `job`. The errands go to whoever holds the receiver. Counts gradients in `tally`, if there is one.
    #[must_use]
    pub fn new(
        job: &JobSpec,
        layout: Arc<Layout>,
        tally: Option<TallyFile>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Errand>) {
        let (errands, receiver) = mpsc::unbounded_channel();
        let inner = Inner::new(Member::new(job, 8), Arc::clone(&layout), errands, tally);
        (
            Arc::new(Self {
                inner: Mutex::new(inner),
                changed: Condvar::new(),
                layout,
            }),
            receiver,
        )
    }

    /// How a gradient's bytes are laid out.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic on the other side ends the process anyway; what it left is still the truth.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Reads the machine.
    pub fn read<T>(&self, look: impl FnOnce(&Member) -> T) -> T {
        look(&self.lock().member)
    }

    /// Hands in an event, with the data that came with it.
    pub fn handle(&self, event: Event, data: Data) {
        let mut inner = self.lock();
        inner.handle(event, data);
        drop(inner);
        self.changed.notify_all();
    }

    /// Hands in a sum that the ring has finished.
    pub fn summed(&self, done: CompletedSum) {
        let event = Event::Summed {
            generation: done.generation,
            step: done.step,
            trailer: done.trailer,
        };
        self.handle(event, Data::Sum(done.sum));
    }

    /// The next task of the training thread. Waits until there is one.
    #[must_use]
    pub fn next(&self) -> Task {
        let mut inner = self.lock();
        loop {
            if let Some(task) = inner.task() {
                return task;
            }
            inner = self.changed.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// The gradient of [`Task::Gradient`] is in its buffer.
    pub fn computed(&self, step: Step, piece: ShardRange, shard: u32, buffer: GradientBuffer) {
        self.lock().computed(step, piece, shard, buffer);
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
        self.handle(Event::Concluded { hash, results }, Data::None);
    }

    /// Ends the training thread at its next task. Nobody is given a state any more.
    pub fn end(&self) {
        self.lock().end();
        self.changed.notify_all();
    }

    /// The sum of `step`, if it is still here.
    #[must_use]
    pub fn sum_of(&self, step: Step) -> Option<Arc<Sum>> {
        self.lock().sum_of(step)
    }

    /// The state at `step`, saved by the training thread as soon as it is free. None if the state stands elsewhere by then, or the
    /// worker ends.
    pub async fn state_at(&self, step: Step) -> Option<Bytes> {
        let receiver = self.lock().save(step)?;
        self.changed.notify_all();
        receiver.await.ok()
    }
}
