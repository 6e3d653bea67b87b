//! What the training thread does next: the machine's work, with the buffers and sums that it speaks of. Behind the step driver's lock; must not block.

use sardana_collectives::gradient::{Sum, WriteMode};
use sardana_collectives::ring::RingInput;
use sardana_protocol::member::Work;
use sardana_protocol::messages::Trailer;
use tokio::time::Instant;

use super::arrival::{Alone, Mismatch};
use super::inner::Inner;
use super::keeping::Closed;
use super::{Gradient, Task};

impl Inner {
    /// What the training thread adds up before its next task, beside this.
    pub(super) fn alone(&mut self) -> Option<Alone> {
        if self.over { None } else { self.accepted.take_alone() }
    }

    /// It has.
    pub(super) fn added_up(&mut self, sum: Result<Sum, Mismatch>) {
        match sum {
            Ok(sum) => self.accepted.added_up(sum),
            Err(mismatch) => drop(self.fail(mismatch)),
        }
    }

    /// What the training thread does next. Only that thread changes the state, so that it stands still here.
    pub(super) fn task(&mut self) -> Option<Task> {
        if self.over {
            return Some(Task::End);
        }
        if let Some(copy) = self.copies.next(&self.member, &mut self.keeping) {
            return Some(copy);
        }
        match self.member.next_work() {
            Work::Wait => None,
            work @ Work::Gradient { .. } => self.begin(work, None),
            Work::Apply { step } => Some(match self.accepted.take_sum(step) {
                Ok((sum, trailer)) => self.apply(sum, trailer),
                Err(mismatch) => self.fail(mismatch),
            }),
            Work::Load { step } => Some(match self.accepted.take_state() {
                Ok(state) => {
                    self.copies.state_changes();
                    Task::Load { step, state }
                }
                Err(mismatch) => self.fail(mismatch),
            }),
            Work::Conclude { step } => Some(Task::Conclude { step }),
        }
    }

    /// The gradient that the training thread may begin before it tells of `before`, whose buffer that takes with it if it is of the same piece. None where a
    /// copy is wanted: what is copied is not computed with meanwhile.
    pub(super) fn task_beside(&mut self, before: &mut Gradient) -> Option<Task> {
        if self.over || self.copies.are_wanted() {
            return None;
        }
        let work = self.member.next_work_beside(before.step, before.piece, before.shard);
        self.begin(work, Some(before))
    }

    /// Hands out a gradient: the first of its piece has a buffer of its own, and others go on with the piece's, which `before` has if it is of the same one. None if
    /// the work is something else.
    fn begin(&mut self, work: Work, before: Option<&mut Gradient>) -> Option<Task> {
        let Work::Gradient {
            step,
            piece,
            shard,
            offered,
        } = work
        else {
            return None;
        };
        let (mut buffer, mode) = if shard == piece.start() {
            (self.buffers.for_gradient(piece), WriteMode::Store)
        } else {
            let before = before.filter(|before| before.piece == piece);
            let begun = match before {
                Some(before) => before.buffer.take(),
                None => self.buffers.begun(piece),
            };
            (begun?, WriteMode::Add)
        };
        if offered {
            let gradient = self.buffers.awaited(&mut buffer);
            drop(self.tell_ring(RingInput::Piece {
                step,
                shards: piece,
                gradient,
            }));
        }
        self.meter.begins(Instant::now());
        Some(Task::Gradient {
            step,
            piece,
            shard,
            buffer,
            mode,
        })
    }

    /// Whether the training thread is wanted for something else than what is left of a small sum.
    pub(super) fn has_long_work(&self) -> bool {
        let small = self.meter.gradients_are_brief() && self.meter.updates_are_brief();
        self.over || self.copies.are_wanted() || (self.accepted.is_there() && !small)
    }

    /// Whether the training thread will soon be back from it.
    pub(super) fn is_brief(&self, task: &Task) -> bool {
        match task {
            Task::Gradient { .. } => self.meter.gradients_are_brief(),
            Task::Apply { .. } => self.meter.updates_are_brief(),
            Task::Load { .. } | Task::Copy { .. } | Task::Conclude { .. } | Task::End => false,
        }
    }

    fn apply(&mut self, sum: Sum, trailer: Trailer) -> Task {
        let closed = Closed {
            trailer,
            lineage: self.member.coming_lineage(),
        };
        self.copies.state_changes();
        let (sum, old) = self.keeping.renew(sum, closed);
        self.buffers.recycle(old);
        self.meter.update_begins(Instant::now());
        Task::Apply { sum }
    }
}
