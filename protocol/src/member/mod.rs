//! A worker's machine: what it computes, accepts, applies and says.
//!
//! ```text
//!             Form                   Summed            Applied
//!  halted ─────────────▶ computing ──────────▶ summed ─────────▶ computing the next step, in this generation or in the one
//!   ▲  │  (catching up)     │                                     that the trailer begins; or concluding
//!   ├──┼────────────────────┘ Halt, or a trailer that begins a generation without this worker
//!   │  │ Copy         Loaded            a trailer that begins a generation with this worker
//!   │  └─────▶ copying ─────▶ following ───────────────────────▶ computing
//!   └─────────────┴───────────────┘ Halt
//! ```
//! `Halted` is a promise: nothing of an older generation is accepted afterwards (GEN-3). Gradients that are under way go on, an
//! update that is under way ends first (STEP-1). A joiner applies the same sums with the same trailers as the members, only later
//! and by another way; a member whose turn it is keeps them for the joiner.

mod command;
mod event;
mod following;
mod group;
mod halting;
mod keeping;
mod phases;
mod pieces;
mod reporting;
mod saving;
mod seat;
#[cfg(test)]
mod tests;
mod update;

pub use command::{Command, Lacking, NetworkCommand};
pub use event::{Event, Followed, Heartbeat, Work};
use following::Joining;
pub use group::{GroupCommand, GroupEvent, GroupMember};
use halting::Promise;
use keeping::Keeping;
pub use phases::Phases;
use pieces::Pieces;
pub(crate) use pieces::pieces_held;
use reporting::{Ending, Reports};
pub use saving::SavedShare;
use seat::Seat;
use update::Update;

use crate::job::{JobSpec, Order};
use crate::lineage::Lineage;
use crate::messages::{CatchUp, CoordinatorMessage, Introduction, Standing, Tally, WorkerMessage};
use crate::planted::{Bug, bites};
use crate::words::{Generation, Incarnation, ShardRange, Step};

/// A worker's machine.
#[derive(Debug, Clone)]
pub struct Member {
    job: Job,
    /// Updates applied.
    step: Step,
    /// The step whose sum is still held.
    sum: Option<Step>,
    promise: Promise,
    seat: Option<Seat>,
    /// The seat in the generation that a trailer may switch to.
    next: Option<Seat>,
    pieces: Pieces,
    update: Update,
    /// Which generations' sums have led to the state, and will have led to it after the update.
    lineage: Lineage,
    coming: Lineage,
    ending: Ending,
    tally: Tally,
    /// Bytes fetched, loaded or hashed.
    moved: u64,
    keeping: Keeping,
    joining: Joining,
    /// Why the checkpoint that this generation starts from cannot be loaded.
    unrestored: Option<(Generation, String)>,
    /// Why it wants to leave, if it does.
    leaving: Option<String>,
    reports: Reports,
}

/// What this machine knows of its job.
#[derive(Debug, Clone, Copy)]
struct Job {
    /// The last step.
    end: Step,
    /// K.
    shards: u32,
    order: Order,
}

impl Member {
    /// A worker of `job` with the initial state. `keeps`: how many sums it may keep for joiners that follow.
    #[must_use]
    pub fn new(job: &JobSpec, keeps: u32) -> Self {
        Self {
            job: Job {
                end: job.steps,
                shards: job.shards,
                order: job.order,
            },
            step: Step::ZERO,
            sum: None,
            promise: Promise::default(),
            seat: None,
            next: None,
            pieces: Pieces::new(job.order),
            update: Update::None,
            lineage: Lineage::default(),
            coming: Lineage::default(),
            ending: Ending::default(),
            tally: Tally::default(),
            moved: 0,
            keeping: Keeping::of(keeps),
            joining: Joining::default(),
            unrestored: None,
            leaving: None,
            reports: Reports::default(),
        }
    }

    /// From now on it has no more pieces at once than these; what it is assigned fits into as many.
    pub fn hold_at_most(&mut self, pieces: u32) {
        self.pieces.most = pieces;
    }

    /// What a hello says of this worker must still hold when it is heard. A worker that has no seat by then takes none that was prepared
    /// before: the coordinator takes it to have no part in that.
    fn introducing(&mut self, out: &mut Vec<Command>) {
        if self.seat.is_none() {
            self.unprepare(out);
        }
    }

    /// What a hello says of this worker. [`Event::Introducing`] comes before, with nothing between.
    #[must_use]
    pub fn introduction(&self) -> Introduction {
        Introduction {
            generation: self.promise.generation,
            incarnation: self.promise.incarnation,
            seat: self.seat.as_ref().map(Seat::told),
            training: self.seat.is_some() || self.promise.owed.is_some(),
            standing: self.standing(),
        }
    }

    /// From now on no coordinator's life before this one counts. A worker that trains goes on; one that was on its way in begins anew, as
    /// the new coordinator does not know of it.
    fn welcomed(&mut self, incarnation: Incarnation, report_from: Step, out: &mut Vec<Command>) {
        self.reports.from = report_from;
        if incarnation > self.promise.incarnation {
            self.promise.incarnation = incarnation;
            // It knows of no checkpoint that is under way.
            self.end_saving(out);
            if self.seat.is_none() {
                self.unprepare(out);
                self.end_copy(out);
            }
        }
    }

    /// Whether an order for this generation comes from a coordinator's life that is over.
    fn is_fenced(&self, generation: Generation) -> bool {
        generation.incarnation() < self.promise.incarnation
    }

    /// The shards that it computes in each step of its generation but perhaps the first. None while it has no seat.
    #[must_use]
    pub fn coming_shards(&self) -> ShardRange {
        self.seat.as_ref().map_or(ShardRange::new(0, 0), Seat::steady_shards)
    }

    /// Whether it holds this piece, or goes on computing it.
    #[must_use]
    pub fn has_piece(&self, piece: ShardRange) -> bool {
        self.pieces.has(piece)
    }

    /// Updates applied.
    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// K.
    #[must_use]
    pub fn shards(&self) -> u32 {
        self.job.shards
    }

    /// The newest generation that this worker is a member of or has promised to.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.promise.generation
    }

    /// Gradients computed.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes in one event.
    #[must_use]
    pub fn handle(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.handle_into(event, &mut out);
        out
    }

    /// The same. What it wants done comes at the end of `out`, whose memory its owner keeps from event to event.
    pub fn handle_into(&mut self, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Introducing => self.introducing(out),
            Event::Welcomed {
                incarnation,
                report_from,
            } => self.welcomed(incarnation, report_from, out),
            Event::Ordered(message) => self.ordered(message, out),
            Event::Saved(saved) => self.saved(*saved, out),
            Event::NotSaved {
                snapshot,
                attempt,
                depot,
                reason,
            } => out.push(Command::Send(WorkerMessage::NotSaved {
                snapshot,
                attempt,
                depot,
                reason,
            })),
            Event::NotRestored { generation, reason } => self.not_restored(generation, reason, out),
            Event::Leave { reason } => self.leave(reason, out),
            Event::RoomMade => self.room_made(out),
            Event::Hashing { snapshot } => self.hashing(snapshot, out),
            Event::Snapshotted { snapshot, shares } => self.snapshotted(snapshot, shares, out),
            Event::Copied { snapshot } => self.copied(snapshot, out),
            Event::Followed(sum) => self.followed(sum, out),
            Event::CopyFailed { snapshot, reason } => self.copy_failed(snapshot, reason, out),
            Event::LinksReady { generation } => self.links_ready(generation, out),
            Event::LinkBroken { generation, peer } => self.link_broken(generation, peer, out),
            Event::Summed {
                generation,
                step,
                trailer,
            } => self.summed(generation, step, trailer, out),
            Event::Fetched { generation, step } => self.fetched(generation, step, out),
            Event::Computed { step, piece, shard } => self.computed(step, piece, shard, out),
            Event::Applied { report } => self.applied(report, out),
            Event::Loaded => self.loaded(out),
            Event::Concluded { hash, results } => self.concluded(hash, results, out),
            Event::Moved { bytes } => self.moved = self.moved.max(bytes),
            Event::Beat { heartbeat } => {
                self.beat(heartbeat, out);
                if let Heartbeat::Due(_) = heartbeat {
                    self.finished(out);
                }
            }
        }
    }

    /// Does what the coordinator orders.
    fn ordered(&mut self, message: CoordinatorMessage, out: &mut Vec<Command>) {
        match message {
            CoordinatorMessage::Halt { generation } if self.is_fenced(generation) => {}
            CoordinatorMessage::Form(form) | CoordinatorMessage::Prepare(form) if self.is_fenced(form.generation) => {}
            CoordinatorMessage::Halt { generation } => self.halt(generation, out),
            CoordinatorMessage::Form(form) => self.form(*form, out),
            CoordinatorMessage::Prepare(form) => self.prepare(*form, out),
            CoordinatorMessage::CloseWith { generation, trailer } => self.close_with(generation, trailer, out),
            CoordinatorMessage::Serve(serve) => self.serve(serve, out),
            CoordinatorMessage::Save(save) => self.save(*save, out),
            CoordinatorMessage::SaveOver { snapshot } => self.save_over(snapshot, out),
            CoordinatorMessage::Copy(snapshot) => self.copy(*snapshot, out),
            // The process is renewed or ended around the machine.
            CoordinatorMessage::Released { .. }
            | CoordinatorMessage::Renewed { .. }
            | CoordinatorMessage::Complete { .. }
            | CoordinatorMessage::Dismiss { .. } => {}
        }
    }

    /// Whether a gradient is what the trainer does next.
    #[must_use]
    pub fn is_computing(&self) -> bool {
        self.update == Update::None && !self.is_catching_up() && !self.is_over() && self.pieces.next().is_some()
    }

    /// What the trainer does next. Asking commits: whatever is handed out is done, and then told.
    #[must_use]
    pub fn next_work(&mut self) -> Work {
        match self.update {
            Update::Summed(trailer) => {
                self.update = Update::Applying(trailer);
                return Work::Apply { step: self.step };
            }
            Update::Fetched(step) => {
                self.update = Update::Loading(step);
                return Work::Load { step };
            }
            Update::Applying(_) | Update::Loading(_) => return Work::Wait,
            Update::None => {}
        }
        if self.is_catching_up() {
            return Work::Wait;
        }
        if self.is_over() {
            if self.ending.concluding == Some(self.step) {
                return Work::Wait;
            }
            self.ending.concluding = Some(self.step);
            return Work::Conclude { step: self.step };
        }
        let next = self.pieces.next();
        next.map_or(Work::Wait, |(piece, shard)| self.gradient(piece, shard))
    }

    /// What the trainer may begin before it tells that the gradient of `shard` into `piece` is computed, the only one that was handed out and not told of: the
    /// gradient after it, if the step has one for this worker, and else [`Work::Wait`].
    #[must_use]
    pub fn next_work_beside(&mut self, step: Step, piece: ShardRange, shard: u32) -> Work {
        let next = self
            .pieces
            .after(piece, shard)
            .filter(|_| step == self.step && self.is_computing());
        next.map_or(Work::Wait, |(piece, shard)| self.gradient(piece, shard))
    }

    /// Hands out this gradient.
    fn gradient(&mut self, piece: ShardRange, shard: u32) -> Work {
        let completes = shard + 1 == piece.end();
        let offered = completes && self.sums_in_ring();
        if offered {
            self.pieces.offered(piece);
        }
        Work::Gradient {
            step: self.step,
            piece,
            shard,
            offered,
        }
    }

    /// Whether the step under way is summed by a ring that this worker is in.
    fn sums_in_ring(&self) -> bool {
        self.seat
            .as_ref()
            .is_some_and(|seat| seat.catching_up == CatchUp::None && !seat.alone())
    }

    fn is_catching_up(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.catching_up != CatchUp::None)
    }

    /// Whether the job ends at the step that the state stands at.
    fn is_over(&self) -> bool {
        (self.step >= self.job.end && !bites(Bug::OneStepTooMany))
            || self.step > self.job.end
            || self.ending.stop_at.is_some_and(|stop| self.step >= stop)
    }

    fn standing(&self) -> Standing {
        Standing {
            step: self.step,
            kept: self.pieces.ranges(),
            lineage: self.lineage,
            sum: self.sum,
            stop_at: self.ending.stop_at,
            tally: self.tally,
        }
    }
}
