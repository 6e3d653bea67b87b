//! How the state of a worker changes: gradients become a sum, the sum is applied, the next step begins.

use super::Member;
use super::command::{Command, NetworkCommand};
use super::event::Heartbeat;
use super::pieces::Credit;
use super::seat::Seat;
use crate::lineage::{Lineage, WantedSum};
use crate::messages::{CatchUp, StepReport, Tally, Trailer};
use crate::planted::{Bug, bites};
use crate::words::{Generation, ShardRange, Step};

/// How far the state's next change is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Update {
    /// Gradients are being computed, or nothing happens.
    None,
    /// The whole sum is there, closed with these orders.
    Summed(Trailer),
    /// The trainer applies it.
    Applying(Trailer),
    /// A donor's state at this step is there.
    Fetched(Step),
    /// The trainer loads it.
    Loading(Step),
}

impl Member {
    /// Starts the step that the state stands at, in the seat's generation.
    pub(super) fn begin(&mut self, out: &mut Vec<Command>) {
        if self.is_over() {
            self.pieces.clear();
            out.push(Command::Retain { pieces: Vec::new() });
            self.take_last_snapshot(out);
            return self.finished(out);
        }
        let Some(seat) = &self.seat else { return };
        self.pieces.assign(seat.assigned(self.step));
        out.push(Command::Retain {
            pieces: self.pieces.ranges(),
        });
        if !bites(Bug::OfferedToAnotherRing) {
            self.pieces.forget_offers();
        }
        if seat.alone() {
            return self.sum_alone(out);
        }
        out.push(Command::Begin { step: self.step });
        if !bites(Bug::KeptNotOffered) {
            out.extend(self.pieces.complete().map(|piece| Command::Offer { piece }));
        }
    }

    pub(super) fn computed(&mut self, step: Step, piece: ShardRange, shard: u32, out: &mut Vec<Command>) {
        self.tally.total += 1;
        if step != self.step {
            return;
        }
        if !self.awaits_another_state() {
            self.tally.this_step += 1;
        }
        let Credit::Complete { offered } = self.pieces.computed(piece, shard) else {
            return;
        };
        if self.sums_in_ring() {
            out.extend((!offered).then_some(Command::Offer { piece }));
        } else if self.seat.as_ref().is_some_and(|seat| seat.catching_up == CatchUp::None) {
            self.sum_alone(out);
        }
    }

    /// Whether another state of the step that it stands at is to come: a gradient that is still computed with this one is in vain, and none of work there.
    fn awaits_another_state(&self) -> bool {
        let comes = |seat: &Seat| matches!(seat.catching_up, CatchUp::State { .. }) && seat.form.step == self.step;
        self.seat.as_ref().is_some_and(comes)
    }

    fn sum_alone(&mut self, out: &mut Vec<Command>) {
        let Some(seat) = &mut self.seat else { return };
        if self.update == Update::None && self.pieces.all_complete() {
            let trailer = seat.closing;
            seat.closing = trailer.after_closing();
            out.push(Command::SumAlone {
                pieces: self.pieces.ranges(),
                trailer,
            });
            let generation = seat.form.generation;
            self.comes(Update::Summed(trailer), self.led_on_by(generation));
        }
    }

    /// What the state's next change is, and which generations' sums will have led to it then.
    pub(super) fn comes(&mut self, update: Update, lineage: Lineage) {
        (self.update, self.coming) = (update, lineage);
    }

    /// Of the state that the update under way leads to.
    #[must_use]
    pub const fn coming_lineage(&self) -> Lineage {
        self.coming
    }

    /// The sum of `step`, which is to be added to the state that is here, or to the one that the update under way leads to.
    pub(super) fn wanted(&self, step: Step) -> WantedSum {
        let state = if step > self.step { self.coming } else { self.lineage };
        let before = state.last;
        WantedSum { step, before }
    }

    /// After an update by a sum of this generation.
    pub(super) fn led_on_by(&self, generation: Generation) -> Lineage {
        self.lineage.led_on(self.job.order, generation)
    }

    pub(super) fn summed(&mut self, generation: Generation, step: Step, trailer: Trailer, out: &mut Vec<Command>) {
        let current = self.step == step && self.update == Update::None;
        if self.seated(generation).is_some_and(|seat| seat.catching_up == CatchUp::None) && current {
            out.push(Command::Accept { trailer });
            self.comes(Update::Summed(trailer), self.led_on_by(generation));
        }
    }

    pub(super) fn fetched(&mut self, generation: Generation, step: Step, out: &mut Vec<Command>) {
        let (mine, idle) = (self.step, self.update == Update::None);
        let Some(seat) = self.seated(generation).filter(|_| idle) else {
            return;
        };
        let theirs = seat.form.lineage;
        let (update, lineage) = match seat.catching_up {
            CatchUp::Sum { .. } if step == mine => (Update::Summed(Trailer::Continue), self.led_on_by(theirs.last)),
            CatchUp::State { .. } | CatchUp::Checkpoint if step == seat.form.step => (Update::Fetched(step), theirs),
            CatchUp::None | CatchUp::Sum { .. } | CatchUp::State { .. } | CatchUp::Checkpoint => return,
        };
        self.comes(update, lineage);
        out.push(Command::Accept {
            trailer: Trailer::Continue,
        });
    }

    pub(super) fn applied(&mut self, report: StepReport, out: &mut Vec<Command>) {
        let Update::Applying(trailer) = self.update else { return };
        let summed = self.step;
        self.sum = Some(summed);
        self.advance(summed.next(), self.tally.this_step);
        self.keep_report(report);
        self.keep_sum(summed, out);
        self.progress(out);
        match trailer {
            Trailer::Continue => {}
            Trailer::Stop => self.ending.stop_at = Some(self.step),
            Trailer::Snapshot => self.take_snapshot(out),
            // What was promised since then outranks it.
            Trailer::Switch(generation) if generation <= self.promise.generation => {}
            Trailer::Switch(generation) => return self.switch(generation, out),
        }
        self.go_on(out);
    }

    pub(super) fn loaded(&mut self, out: &mut Vec<Command>) {
        let Update::Loading(step) = self.update else { return };
        self.sum = None;
        // It has missed sums that were its turn to keep.
        self.drop_snapshot(out);
        self.forget_reports_from(step);
        self.advance(if bites(Bug::LoadedOneAhead) { step.next() } else { step }, 0);
        self.go_on(out);
    }

    fn advance(&mut self, step: Step, previous_step: u32) {
        self.step = step;
        self.lineage = self.coming;
        self.update = Update::None;
        // What was found at an earlier boundary, where the others did not stop after all, says nothing of this one; nor does what
        // was found in another state at this one.
        self.ending.concluding = None;
        self.ending.concluded = None;
        self.tally = Tally {
            total: self.tally.total,
            step,
            this_step: 0,
            previous_step,
        };
    }

    /// After the state has changed: into the next step, or into the halt that waited for it.
    pub(super) fn go_on(&mut self, out: &mut Vec<Command>) {
        if !bites(Bug::StaleGradients) {
            self.pieces.clear();
        }
        if self.promise.owed.is_some() {
            let shards = std::mem::take(&mut self.promise.next_shards);
            if !self.is_over() {
                self.pieces.assign(&shards);
            }
            out.push(Command::Retain { pieces: Vec::new() });
            return self.settle(out);
        }
        let Some(seat) = &mut self.seat else {
            return self.follow_on(out);
        };
        seat.catching_up = CatchUp::None;
        self.begin(out);
    }

    /// The first update of a generation is told at once.
    fn progress(&mut self, out: &mut Vec<Command>) {
        let step = self.step;
        let news = |seat: &&mut Seat| !seat.progressed && step > seat.form.step;
        if let Some(seat) = self.seat.as_mut().filter(news) {
            seat.progressed = true;
            if seat.form.catch_up == CatchUp::Checkpoint {
                out.push(Command::Network(NetworkCommand::EndRestore));
            }
            self.beat(Heartbeat::Due(None), out);
        }
    }
}
