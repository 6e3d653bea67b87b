//! What lies on a desk: the machine, and the buffers that its commands speak of. Behind the desk's lock; must not block.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sardana_collectives::alone;
use sardana_collectives::gradient::{GradientBuffer, Sum, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::ring::RingInput;
use sardana_protocol::member::{Command, Event, Member, Work};
use sardana_protocol::messages::StepReport;
use sardana_protocol::words::{ShardRange, Step};
use tokio::sync::{mpsc, oneshot};

use super::{Data, Errand, Task};
use crate::fault::{self, Point};
use crate::worker::TallyFile;

/// Buffers in use besides those of pieces: the sum that is kept, and the one that the ring fills.
const SUMS: usize = 2;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) member: Member,
    layout: Arc<Layout>,
    /// Buffers of pieces that lack shards.
    partial: BTreeMap<ShardRange, GradientBuffer>,
    /// Buffers of complete pieces. A ring may hold them as well, to read.
    whole: BTreeMap<ShardRange, Arc<GradientBuffer>>,
    /// Buffers for re-use, never more than a step needs.
    pub(super) free: Vec<GradientBuffer>,
    /// What the machine has accepted and the training thread has not taken yet.
    accepted: Data,
    /// The newest sum; kept for members that are behind.
    sum: Option<Arc<Sum>>,
    ring: Option<mpsc::UnboundedSender<RingInput>>,
    /// Who waits for the state, and at which step.
    saves: Vec<(Step, oneshot::Sender<Bytes>)>,
    errands: mpsc::UnboundedSender<Errand>,
    tally: Option<TallyFile>,
    over: Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    No,
    Yes,
}

impl Inner {
    pub(super) fn new(
        member: Member,
        layout: Arc<Layout>,
        errands: mpsc::UnboundedSender<Errand>,
        tally: Option<TallyFile>,
    ) -> Self {
        Self {
            member,
            layout,
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
        }
    }

    pub(super) fn computed(&mut self, step: Step, piece: ShardRange, shard: u32, buffer: GradientBuffer) {
        if shard + 1 == piece.end() {
            self.whole.insert(piece, Arc::new(buffer));
        } else {
            self.partial.insert(piece, buffer);
        }
        self.handle_counted(Event::Computed { step, piece, shard });
    }

    pub(super) fn applied(&mut self, report: StepReport) {
        // The step's gradients are in the state now; their buffers are for the next step's.
        self.retain(&[]);
        self.handle_counted(Event::Applied { report });
    }

    pub(super) fn loaded(&mut self) {
        self.retain(&[]);
        self.sum = None;
        self.handle_counted(Event::Loaded);
    }

    pub(super) fn end(&mut self) {
        self.over = Over::Yes;
        self.saves.clear();
    }

    pub(super) fn sum_of(&self, step: Step) -> Option<Arc<Sum>> {
        self.sum.clone().filter(|sum| sum.step() == step)
    }

    /// Lets the training thread save the state, if it stands at `step`.
    pub(super) fn save(&mut self, step: Step) -> Option<oneshot::Receiver<Bytes>> {
        if self.over == Over::Yes || self.member.step() != step {
            return None;
        }
        let (reply, receiver) = oneshot::channel();
        self.saves.push((step, reply));
        Some(receiver)
    }

    /// What the training thread does next. Only that thread changes the state, so that it stands still here.
    pub(super) fn task(&mut self) -> Option<Task> {
        if self.over == Over::Yes {
            return Some(Task::End);
        }
        while let Some((step, reply)) = self.saves.pop() {
            // Whoever waits for an older state is told by the end of its channel.
            if step == self.member.step() {
                return Some(Task::Save { reply });
            }
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

    pub(super) fn handle(&mut self, event: Event, data: Data) {
        let mut data = data;
        for command in self.member.handle(event) {
            self.execute(command, &mut data);
        }
    }

    /// What the training thread has done is counted before anybody is told: whoever uses it may outlive this process.
    fn handle_counted(&mut self, event: Event) {
        let commands = self.member.handle(event);
        self.write_tally();
        for command in commands {
            self.execute(command, &mut Data::None);
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
            Command::Retain { pieces } => {
                self.retain(&pieces);
                self.free.truncate(pieces.len() + SUMS);
            }
            Command::SumAlone { pieces, trailer: _ } => {
                let held = pieces.iter().filter_map(|piece| self.whole.remove(piece)).collect();
                self.accepted = Data::Sum(alone::add_up(&self.layout, self.member.step(), held));
            }
            Command::Accept { trailer: _ } => self.accepted = std::mem::replace(data, Data::None),
            Command::CloseWith { trailer } => self.tell_ring(RingInput::CloseWith(trailer)),
            Command::LayAside
            | Command::AcceptAside { .. }
            | Command::Prepare(_)
            | Command::Switch { .. }
            | Command::Unprepare
            | Command::Snapshot { .. }
            | Command::KeepSum { .. }
            | Command::LetGo { .. }
            | Command::Admit { .. }
            | Command::Copy(_)
            | Command::Follow { .. }
            | Command::EndCopy => {}
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
        let partial = std::mem::take(&mut self.partial);
        for (piece, buffer) in partial {
            if pieces.contains(&piece) {
                self.partial.insert(piece, buffer);
            } else {
                self.free.push(buffer);
            }
        }
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

    fn write_tally(&mut self) {
        if let Some(file) = &mut self.tally {
            file.write(self.member.tally());
        }
        fault::reached(Point::Tallied, self.member.step());
    }
}
