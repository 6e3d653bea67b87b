//! What a worker promises: it halts, says where it stands, and goes on only in a newer generation.

use super::Member;
use super::command::{Command, NetworkCommand};
use super::update::Update;
use crate::lineage::Lineage;
use crate::messages::{CatchUp, Trailer, WorkerMessage};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Incarnation, ShardRange};

/// What was promised, and what is still to be done for it.
#[derive(Debug, Clone, Default)]
pub(super) struct Promise {
    /// The newest generation that was promised to, or joined.
    pub(super) generation: Generation,
    /// The highest incarnation of a coordinator that is known.
    pub(super) incarnation: Incarnation,
    /// The `Halted` that is said once the update under way has ended.
    pub(super) owed: Option<Generation>,
    /// What to compute after the update under way, if a halt waits for that update.
    pub(super) next_shards: Vec<ShardRange>,
}

impl Member {
    pub(super) fn halt(&mut self, generation: Generation, out: &mut Vec<Command>) {
        let again = generation == self.promise.generation && self.seat.is_none() && !bites(Bug::HaltedOnce);
        if generation <= self.promise.generation && !again && !bites(Bug::OldHalt) {
            return;
        }
        self.promise.generation = generation;
        // An update that is under way ends first; the worker then goes on with the shards it would have had. A further halt during
        // the same update finds no seat any more.
        if self.promise.owed.is_none() {
            self.promise.next_shards = self.shards_after_the_update();
        }
        self.unprepare(out);
        self.end_copy(out);
        let seat = if bites(Bug::PromiseBroken) {
            self.seat.clone()
        } else {
            self.seat.take()
        };
        if let Some(seat) = seat {
            out.push(Command::Network(NetworkCommand::Abort {
                generation: seat.form.generation,
            }));
        }
        self.promise.owed = Some(generation);
        self.settle(out);
    }

    fn shards_after_the_update(&self) -> Vec<ShardRange> {
        let ended_by = match self.update {
            Update::Summed(Trailer::Switch(next)) | Update::Applying(Trailer::Switch(next)) => Some(next),
            Update::Summed(_) | Update::Applying(_) | Update::None | Update::Fetched(_) | Update::Loading(_) => None,
        };
        let seat = match ended_by {
            Some(next) => self.next.as_ref().filter(|seat| seat.form.generation == next),
            None => self.seat.as_ref(),
        };
        seat.map_or_else(Vec::new, |seat| {
            let part = if seat.catching_up == CatchUp::None {
                &seat.form.steady
            } else {
                &seat.form.first
            };
            part.shards()
        })
    }

    /// Sends the `Halted` that is owed, unless an update is under way.
    pub(super) fn settle(&mut self, out: &mut Vec<Command>) {
        if self.update != Update::None && !bites(Bug::HaltedTooEarly) {
            return;
        }
        if let Some(generation) = self.promise.owed.take() {
            // No sum of a generation that is yet to begin can have led here: a keeper has said so that lies, and who knows of what.
            if self.lineage.last >= generation {
                self.lineage = Lineage::of(self.job.order, Generation::NONE);
            }
            out.push(Command::Send(WorkerMessage::Halted {
                generation,
                standing: self.standing(),
            }));
        }
    }
}
