//! The desk between a worker's training thread and its actor: the machine, and the buffers that its commands speak of.
//!
//! Both sides hand in what happened and the machine decides; nothing here blocks but [`Desk::next`], which only the training
//! thread calls. What needs the network goes to the actor as an [`Errand`]. Must not know the model.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bytes::Bytes;
use sardana_collectives::alone;
use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::ring::{CompletedSum, RingInput};
use sardana_protocol::job::JobSpec;
use sardana_protocol::member::{Command, Event, Member, Work};
use sardana_protocol::messages::{CatchUp, Form, MemberAddress, StepReport, WorkerMessage};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, ShardRange, Step};
use tokio::sync::{mpsc, oneshot};

use super::tally::TallyFile;
use crate::fault::{self, Point};

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

#[derive(Debug)]
struct Inner {
    member: Member,
    layout: Arc<Layout>,
    /// Buffers of pieces that lack shards.
    partial: BTreeMap<ShardRange, GradientBuffer>,
    /// Buffers of complete pieces. A ring may hold them as well, to read.
    whole: BTreeMap<ShardRange, Arc<GradientBuffer>>,
    /// Buffers for re-use.
    free: Vec<GradientBuffer>,
    /// What the machine has accepted and the training thread has not taken yet.
    accepted: Data,
    /// The newest sum; kept for members that are behind.
    sum: Option<Arc<Sum>>,
    ring: Option<mpsc::UnboundedSender<RingInput>>,
    saves: Vec<oneshot::Sender<Bytes>>,
    errands: mpsc::UnboundedSender<Errand>,
    tally: Option<TallyFile>,
    over: Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    No,
    Yes,
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
        let inner = Inner {
            member: Member::new(job),
            layout: Arc::clone(&layout),
            partial: BTreeMap::new(),
            whole: BTreeMap::new(),
            free: Vec::new(),
            accepted: Data::None,
            sum: None,
            ring: None,
            saves: Vec::new(),
            errands,
            tally,
            over: Over::No,
        };
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
        let mut inner = self.lock();
        if shard + 1 == piece.end() {
            inner.whole.insert(piece, Arc::new(buffer));
        } else {
            inner.partial.insert(piece, buffer);
        }
        inner.handle(Event::Computed { step, piece, shard }, Data::None);
        inner.write_tally();
    }

    /// The sum of [`Task::Apply`] is applied.
    pub fn applied(&self, report: StepReport) {
        let mut inner = self.lock();
        inner.handle(Event::Applied { report }, Data::None);
        inner.write_tally();
    }

    /// The state of [`Task::Load`] is loaded.
    pub fn loaded(&self) {
        let mut inner = self.lock();
        inner.sum = None;
        inner.handle(Event::Loaded, Data::None);
        inner.write_tally();
    }

    /// The model is evaluated.
    pub fn concluded(&self, hash: StateHash, results: Vec<(String, f64)>) {
        self.handle(Event::Concluded { hash, results }, Data::None);
    }

    /// Ends the training thread at its next task.
    pub fn end(&self) {
        self.lock().over = Over::Yes;
        self.changed.notify_all();
    }

    /// The sum of `step`, if it is still here.
    #[must_use]
    pub fn sum_of(&self, step: Step) -> Option<Arc<Sum>> {
        self.lock().sum.clone().filter(|sum| sum.step() == step)
    }

    /// The state at `step`, saved by the training thread as soon as it is free. None if the state stands elsewhere.
    pub async fn state_at(&self, step: Step) -> Option<Bytes> {
        let receiver = {
            let mut inner = self.lock();
            if inner.member.step() != step {
                return None;
            }
            let (reply, receiver) = oneshot::channel();
            inner.saves.push(reply);
            receiver
        };
        self.changed.notify_all();
        let state = receiver.await.ok()?;
        self.read(Member::step).eq(&step).then_some(state)
    }
}

impl Inner {
    fn task(&mut self) -> Option<Task> {
        if self.over == Over::Yes {
            return Some(Task::End);
        }
        if let Some(reply) = self.saves.pop() {
            return Some(Task::Save { reply });
        }
        match self.member.next_work() {
            Work::Wait => None,
            Work::Gradient { step, piece, shard } => {
                let (buffer, mode) = if shard == piece.start() {
                    (self.buffer(), WriteMode::Store)
                } else {
                    (self.partial.remove(&piece)?, WriteMode::Add)
                };
                Some(Task::Gradient {
                    step,
                    piece,
                    shard,
                    buffer,
                    mode,
                })
            }
            Work::Apply { step } => match std::mem::replace(&mut self.accepted, Data::None) {
                Data::Sum(sum) => {
                    debug_assert_eq!(sum.step(), step, "the machine accepts only the sum of its step");
                    let sum = Arc::new(sum);
                    if let Some(old) = self.sum.replace(Arc::clone(&sum)) {
                        self.recycle(old);
                    }
                    Some(Task::Apply { sum })
                }
                Data::None | Data::State(_) => None,
            },
            Work::Load { step } => match std::mem::replace(&mut self.accepted, Data::None) {
                Data::State(state) => Some(Task::Load { step, state }),
                Data::None | Data::Sum(_) => None,
            },
            Work::Conclude { step } => Some(Task::Conclude { step }),
        }
    }

    fn buffer(&mut self) -> GradientBuffer {
        self.free.pop().unwrap_or_else(|| GradientBuffer::zeros(&self.layout))
    }

    fn recycle(&mut self, sum: Arc<Sum>) {
        if let Ok(sum) = Arc::try_unwrap(sum) {
            self.free.push(sum.into_buffer());
        }
    }

    fn handle(&mut self, event: Event, data: Data) {
        let mut data = data;
        for command in self.member.handle(event) {
            self.execute(command, &mut data);
        }
    }

    fn execute(&mut self, command: Command, data: &mut Data) {
        match command {
            Command::Send(message) => self.errand(Errand::Send(message)),
            Command::Connect(form) => {
                let (sender, inbox) = mpsc::unbounded_channel();
                self.ring = Some(sender);
                self.errand(Errand::Connect { form, inbox });
            }
            Command::Abort { generation } => {
                self.ring = None;
                self.errand(Errand::Abort { generation });
            }
            Command::Begin { step } => {
                let into = self.buffer();
                self.tell_ring(RingInput::Begin { step, into });
            }
            Command::Offer { piece } => {
                let step = self.member.step();
                if let Some(gradient) = self.whole.get(&piece).cloned() {
                    self.tell_ring(RingInput::Piece {
                        step,
                        shards: piece,
                        gradient,
                    });
                }
            }
            Command::Retain { pieces } => self.retain(&pieces),
            Command::SumAlone { pieces } => {
                let held = pieces.iter().filter_map(|piece| self.whole.remove(piece)).collect();
                self.accepted = Data::Sum(alone::add_up(&self.layout, self.member.step(), held));
            }
            Command::Accept => self.accepted = std::mem::replace(data, Data::None),
            Command::CloseWithStop => self.tell_ring(RingInput::CloseWithStop),
            Command::Fetch {
                generation,
                what,
                step,
                donor,
            } => {
                self.errand(Errand::Fetch {
                    generation,
                    what,
                    step,
                    donor,
                });
            }
        }
    }

    /// Lets go of all pieces but these. A buffer that a ring still reads is left to it; others are used again.
    fn retain(&mut self, pieces: &[ShardRange]) {
        self.partial.retain(|piece, _| pieces.contains(piece));
        let whole = std::mem::take(&mut self.whole);
        for (piece, buffer) in whole {
            if pieces.contains(&piece) {
                self.whole.insert(piece, buffer);
            } else if let Ok(buffer) = Arc::try_unwrap(buffer) {
                self.free.push(buffer);
            }
        }
    }

    fn errand(&self, errand: Errand) {
        // The receiver is gone only when the worker ends.
        let _ = self.errands.send(errand);
    }

    fn tell_ring(&self, input: RingInput) {
        if let Some(ring) = &self.ring {
            // A ring that has ended says so by itself.
            let _ = ring.send(input);
        }
    }

    fn write_tally(&self) {
        if let Some(file) = &self.tally {
            file.write(self.member.tally());
        }
        fault::reached(Point::Tallied, self.member.step());
    }
}
