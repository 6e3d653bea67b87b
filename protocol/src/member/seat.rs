//! A worker's seat in a generation: taking it, leaving it, and catching up with the others.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::Member;
use super::command::{Command, Lacking, NetworkCommand};
use super::event::Heartbeat;
use super::update::Update;
use crate::job::Order;
use crate::messages::{CatchUp, Form, Ring, Seated, Trailer, WorkerMessage};
use crate::plan::Part;
use crate::planted::{Bug, bites};
use crate::snapshot::{holders_among, place_of};
use crate::words::{Generation, Rank, ShardRange, Step, WorkerId};

/// A place in a generation.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    pub(super) form: Form,
    /// The runs of shards that it computes in the first step, and in each later one.
    first: Vec<ShardRange>,
    steady: Vec<ShardRange>,
    /// What is still missing before the first step can begin.
    pub(super) catching_up: CatchUp,
    pub(super) links: Links,
    /// What this worker says when it closes the next sum.
    pub(super) closing: Trailer,
    /// Whether an update of this generation is applied, and the coordinator was told: it knows that the generation works.
    pub(super) progressed: bool,
}

/// Whether the links of the generation that end here are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Links {
    /// Being made.
    Pending,
    /// All made.
    Ready,
    /// The links with these workers could not be made, or have broken.
    Broken(BTreeSet<WorkerId>),
}

impl Seat {
    pub(super) fn new(form: Form) -> Self {
        Self {
            catching_up: form.catch_up,
            links: Links::Pending,
            closing: Trailer::Continue,
            progressed: false,
            first: form.first.shards(),
            steady: form.steady.shards(),
            form,
        }
    }

    /// What it computes in every step but the first.
    pub(super) fn steady_shards(&self) -> ShardRange {
        self.steady.first().copied().unwrap_or(ShardRange::new(0, 0))
    }

    /// As it is told to a coordinator.
    pub(super) fn told(&self) -> Seated {
        let whole = self.links == Links::Ready && self.catching_up == CatchUp::None;
        let peers = self.form.peers.iter();
        Seated {
            rank: self.form.rank,
            world_size: self.form.world_size,
            digest: self.form.digest,
            peers: peers.map(|peer| (peer.rank, peer.member.worker)).collect(),
            shards: self.steady_shards(),
            ring: if whole { Ring::Whole } else { Ring::Broken },
        }
    }

    /// Says how its links stand, if there is news. Said again when the coordinator asks again: it may not have heard.
    fn say_links(&self, out: &mut Vec<Command>) {
        out.extend(self.links_said().map(Command::Send));
    }

    /// How its links stand, if there is news.
    pub(super) fn links_said(&self) -> impl Iterator<Item = WorkerMessage> + use<'_> {
        let generation = self.form.generation;
        let ready = (self.links == Links::Ready).then_some(WorkerMessage::Ready { generation });
        ready.into_iter().chain(self.broken_said())
    }

    /// Which links are broken, if some are.
    pub(super) fn broken_said(&self) -> impl Iterator<Item = WorkerMessage> + use<'_> {
        let generation = self.form.generation;
        let peers = if let Links::Broken(peers) = &self.links {
            Some(peers)
        } else {
            None
        };
        let said = move |&peer: &WorkerId| WorkerMessage::LinkBroken { generation, peer };
        peers.into_iter().flatten().map(said)
    }

    /// Says which links are broken, if some are. Said again with each heartbeat: the coordinator does not ask for it.
    pub(super) fn say_broken(&self, out: &mut Vec<Command>) {
        out.extend(self.broken_said().map(Command::Send));
    }

    /// A link with `peer` is broken: said at once, but not with the others that were said before.
    fn breaks(&mut self, peer: WorkerId, out: &mut Vec<Command>) {
        out.push(Command::Send(self.broken_with(peer)));
    }

    /// A link with `peer` is broken: what is said of it.
    pub(super) fn broken_with(&mut self, peer: WorkerId) -> WorkerMessage {
        if let Links::Broken(peers) = &mut self.links {
            peers.insert(peer);
        } else {
            self.links = Links::Broken([peer].into());
        }
        let generation = self.form.generation;
        WorkerMessage::LinkBroken { generation, peer }
    }

    /// Its place among the holders of a snapshot, and how many they are; none if it is not one.
    pub(super) fn place(&self) -> Option<(u32, u32)> {
        let of = self.form.world_size;
        Some((place_of(self.form.rank, of)?, holders_among(of)))
    }

    pub(super) fn assigned(&self, step: Step) -> &[ShardRange] {
        if step == self.form.step { &self.first } else { &self.steady }
    }

    pub(super) fn alone(&self) -> bool {
        self.form.world_size == 1
    }
}

impl Member {
    /// The seat in `generation`, if it is still taken.
    pub(super) fn seated(&mut self, generation: Generation) -> Option<&mut Seat> {
        self.seat.as_mut().filter(|seat| seat.form.generation == generation)
    }

    pub(super) fn form(&mut self, form: Form, out: &mut Vec<Command>) {
        if let Some(seat) = self.seated(form.generation) {
            seat.say_links(out);
            return;
        }
        let old = form.generation < self.promise.generation && !bites(Bug::OldForm);
        if old || self.promise.owed.is_some() || self.update != Update::None || self.seat.is_some() {
            return;
        }
        // What no sound coordinator sends is not answered.
        if !self.is_sound(&form) {
            return;
        }
        self.promise.generation = form.generation;
        // It was meant for where this worker stood before (STEP-2).
        if !self.fits(&form) {
            self.promise.owed = Some(form.generation);
            return self.settle(out);
        }
        self.ending.stop_at = form.stop_at;
        self.reports.from = form.report_from;
        self.unprepare(out);
        self.end_copy(out);
        match form.catch_up {
            // What it has computed with another state of this step is in vain. It is not told as kept, as it does not count any more.
            CatchUp::State { .. } if self.step == form.step => {
                self.tally.this_step = 0;
                self.pieces.clear();
                out.push(Command::Retain { pieces: Vec::new() });
            }
            CatchUp::None | CatchUp::State { .. } | CatchUp::Checkpoint | CatchUp::Sum { .. } => {}
        }
        let seat = Seat::new(form.clone());
        let alone = seat.alone();
        self.seat = Some(seat);
        if alone {
            self.links_ready(form.generation, out);
        } else {
            out.push(Command::Connect(Box::new(form.clone())));
        }
        self.catch_up(&form, out);
    }

    /// The others have begun the generation that this joiner has prepared. If its state is beyond the boundary of the switch, it had
    /// the sum before that from a generation whose other holders died, closed with other orders than the sum that was computed again.
    fn begun_without_it(&mut self, generation: Generation, step: Step, out: &mut Vec<Command>) {
        match self.step.cmp(&step) {
            // The trailer comes with a later sum. A stop that this worker was told of with an earlier one is none: the others go on beyond it.
            Ordering::Less if !bites(Bug::StaleJoiner) => {
                self.ending.stop_at = None;
                self.follow_on(out);
            }
            Ordering::Less | Ordering::Equal => self.switch(generation, out),
            Ordering::Greater => {
                let reason = format!("{generation} begins at {step}, this worker's state is at {}", self.step);
                self.give_up(reason, out);
            }
        }
    }

    /// Takes a seat in a generation to come, beside the present one.
    pub(super) fn prepare(&mut self, form: Form, out: &mut Vec<Command>) {
        let generation = form.generation;
        if let Some(next) = self.next.as_ref().filter(|next| next.form.generation == generation) {
            let idle = self.seat.is_none() && self.update == Update::None;
            if idle && form.step > Step::ZERO {
                self.begun_without_it(generation, form.step, out);
            } else {
                next.say_links(out);
            }
            return;
        }
        let newer = self.next.as_ref().is_none_or(|next| next.form.generation < generation);
        let takes_part = self.seat.is_some() || self.joining.follow.is_some();
        if let (false, Some(given_up)) = (takes_part, &self.joining.given_up) {
            return given_up.say(out);
        }
        if generation <= self.promise.generation
            || self.promise.owed.is_some()
            || !newer
            || !takes_part
            || !self.is_sound(&form)
        {
            return;
        }
        self.unprepare(out);
        let seat = Seat::new(form.clone());
        let alone = seat.alone();
        self.next = Some(seat);
        if alone {
            self.links_ready(generation, out);
        } else {
            out.push(Command::Prepare(Box::new(form)));
        }
    }

    pub(super) fn is_prepared(&self, generation: Generation) -> bool {
        self.next.as_ref().is_some_and(|next| next.form.generation == generation)
    }

    pub(super) fn unprepare(&mut self, out: &mut Vec<Command>) {
        if self.next.take().is_some_and(|next| !next.alone()) {
            out.push(Command::Network(NetworkCommand::Unprepare));
        }
    }

    /// A trailer has ended this generation at the boundary where the state stands now.
    pub(super) fn switch(&mut self, generation: Generation, out: &mut Vec<Command>) {
        let joins = self.seat.is_none();
        if let Some(next) = self.next.as_ref().filter(|next| next.form.generation == generation) {
            let step = self.step;
            if joins && !self.lineage.is_same(next.form.lineage) {
                let reason = format!("{generation} begins with another state of {step} than this worker's");
                self.give_up(reason, out);
                return self.go_on(out);
            }
            self.seat = self.next.take().map(|mut seat| {
                seat.form.step = step;
                self.reports.from = self.reports.from.max(seat.form.report_from);
                seat
            });
            self.joining.follow = None;
            // A joiner may have heard of a stop that nothing came of.
            self.ending.stop_at = None;
            if !bites(Bug::SwitchNotPromised) {
                self.promise.generation = generation;
            }
            out.push(Command::Network(NetworkCommand::Switch { generation, step }));
            out.push(Command::Send(WorkerMessage::Switched { generation, step }));
            return self.go_on(out);
        }
        // A joiner that follows sees the trailers of others, too.
        if !joins {
            // If all halt here, this is what they leave behind.
            self.take_last_snapshot(out);
            // A joiner that comes in its place does not have the reports of the steps before its snapshot.
            self.beat(Heartbeat::NotDue, out);
            self.seat = None;
            // The ring has yet to send the last sum on, and ends by itself.
            self.unprepare(out);
            self.promise.generation = generation;
            self.pieces.clear();
            out.push(Command::Retain { pieces: Vec::new() });
            self.promise.owed = Some(generation);
            return self.settle(out);
        }
        self.go_on(out);
    }

    /// Whether this worker has what the form takes it to have.
    fn fits(&self, form: &Form) -> bool {
        match form.catch_up {
            CatchUp::None if bites(Bug::StaleMember) => self.step.next() >= form.step,
            CatchUp::None => self.step == form.step && self.lineage.is_same(form.lineage),
            CatchUp::Sum { .. } => self.step.next() == form.step && form.lineage.leads_on_from(self.lineage.last),
            CatchUp::State { .. } | CatchUp::Checkpoint => self.step <= form.step,
        }
    }

    /// Whether this member's parts can be executed, by the members that it knows (GEN-2).
    fn is_sound(&self, form: &Form) -> bool {
        let restores = form.catch_up == CatchUp::Checkpoint;
        form.catch_up.donor().is_none_or(|donor| form.peer(donor).is_some())
            && (!restores || form.restore.as_ref().is_some_and(|restore| restore.is_sound(form)))
            && form.step <= self.job.end
            && can_be_executed(form, self.job.order, self.job.shards)
    }

    fn catch_up(&mut self, form: &Form, out: &mut Vec<Command>) {
        let (what, from) = match form.catch_up {
            CatchUp::None => return self.begin(out),
            CatchUp::Sum { from } => (Lacking::Sum(self.wanted(self.step)), from),
            CatchUp::State { from } => (Lacking::State(form.step), from),
            CatchUp::Checkpoint => return self.restore(form, out),
        };
        if let Some(donor) = form.peer(from) {
            out.push(Command::Network(NetworkCommand::Fetch {
                generation: form.generation,
                what,
                donor,
            }));
        }
    }

    pub(super) fn links_ready(&mut self, generation: Generation, out: &mut Vec<Command>) {
        if let Some(seat) = self.seat_of(generation) {
            // What is broken by now stays so.
            if seat.links == Links::Pending {
                seat.links = Links::Ready;
            }
            seat.say_links(out);
        }
    }

    pub(super) fn link_broken(&mut self, generation: Generation, peer: WorkerId, out: &mut Vec<Command>) {
        if let Some(seat) = self.seat_of(generation) {
            seat.breaks(peer, out);
        }
    }

    /// The seat in `generation`, taken or prepared.
    fn seat_of(&mut self, generation: Generation) -> Option<&mut Seat> {
        let mut seats = [&mut self.seat, &mut self.next].into_iter().flatten();
        seats.find(|seat| seat.form.generation == generation)
    }

    pub(super) fn close_with(&mut self, generation: Generation, trailer: Trailer, out: &mut Vec<Command>) {
        if let Some(seat) = self.seated(generation) {
            seat.closing = seat.closing.and(trailer);
            if !seat.alone() {
                out.push(Command::CloseWith { trailer });
            }
        }
    }
}

/// Whether the receiver's parts of both plans can be executed in a job with so many shards, by the members that it knows (GEN-2).
pub(super) fn can_be_executed(form: &Form, order: Order, shards: u32) -> bool {
    let knows = |rank: Rank| rank == form.rank || form.peer(rank).is_some();
    let executes = |part: &Part| {
        let checked = part.check(order, form.rank, form.world_size, shards);
        checked.is_ok() && part.peers().into_iter().all(knows)
    };
    executes(&form.first) && executes(&form.steady)
}
