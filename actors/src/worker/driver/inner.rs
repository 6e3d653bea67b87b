//! What lies on a step driver: the machine, and what its commands speak of. Behind the step driver's lock; must not block.

use std::sync::Arc;

use bytes::Bytes;
use sardana_collectives::layout::Layout;
use sardana_collectives::ring::RingInput;
use sardana_protocol::lineage::WantedSum;
use sardana_protocol::member::{Command, Event, Member, NetworkCommand};
use sardana_protocol::messages::{StepReport, Trailer, WorkerMessage};
use sardana_protocol::snapshot::{Share, SnapshotId};
use sardana_protocol::words::{ShardRange, Step};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::arrival::{Accepted, Alone, Mismatch, Payload};
use super::buffers::Buffers;
use super::copies::{Copies, Haste};
use super::keeping::{HeldShare, Keeping, KeptSum};
use super::meter::Meter;
use super::outbox::{ActorCommand, Outbox};
use super::{Arrival, Gradient, Task};
use crate::fault::{self, Point};
use crate::worker::TallyFile;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) member: Member,
    pub(super) buffers: Buffers,
    pub(super) accepted: Accepted,
    pub(super) keeping: Keeping,
    pub(super) meter: Meter,
    ring: Option<mpsc::UnboundedSender<RingInput>>,
    /// The ring that a trailer will switch to.
    prepared: Option<mpsc::UnboundedSender<RingInput>>,
    pub(super) copies: Copies,
    commands: mpsc::UnboundedSender<ActorCommand>,
    /// What is said to the coordinator.
    messages: mpsc::UnboundedSender<WorkerMessage>,
    tally: Option<TallyFile>,
    pub(super) over: bool,
    /// Memory for what the machine commands, between two events.
    room: Vec<Command>,
}

impl Inner {
    pub(super) fn new(member: Member, layout: Arc<Layout>, tally: Option<TallyFile>) -> (Self, Outbox) {
        let (commands, for_actor) = mpsc::unbounded_channel();
        let (messages, for_coordinator) = mpsc::unbounded_channel();
        let outbox = Outbox {
            commands: for_actor,
            messages: for_coordinator,
        };
        let inner = Self {
            member,
            buffers: Buffers::new(layout),
            accepted: Accepted::default(),
            keeping: Keeping::default(),
            meter: Meter::default(),
            ring: None,
            prepared: None,
            copies: Copies::default(),
            commands,
            messages,
            tally,
            over: false,
            room: Vec::new(),
        };
        (inner, outbox)
    }

    pub(super) fn say(&self, message: WorkerMessage) {
        // The receiver is gone only when nothing is said to the coordinator any more.
        let _ = self.messages.send(message);
    }

    pub(super) fn hang_up(&mut self) -> mpsc::UnboundedReceiver<WorkerMessage> {
        let (messages, for_coordinator) = mpsc::unbounded_channel();
        self.messages = messages;
        for_coordinator
    }

    pub(super) fn computed(&mut self, gradient: Gradient) {
        let Gradient {
            step,
            piece,
            shard,
            buffer,
        } = gradient;
        self.meter.ends(Instant::now());
        if let Some(buffer) = buffer {
            if self.member.has_piece(piece) {
                self.buffers.computed(piece, shard, buffer);
            } else {
                self.buffers.reuse(buffer);
            }
        }
        self.handle_counted(Event::Computed { step, piece, shard });
        // A ring that was offered it can end with it from now on, and not before it is counted.
        drop(self.buffers.whole(piece));
    }

    pub(super) fn applied(&mut self, report: StepReport) {
        self.meter.update_ends(Instant::now());
        // The step's gradients are in the state now; their buffers are for the next step's.
        self.buffers.retain(&[]);
        self.handle_counted(Event::Applied { report });
    }

    pub(super) fn loaded(&mut self) {
        self.buffers.retain(&[]);
        self.keeping.forget_newest();
        self.handle_counted(Event::Loaded);
        // The sums that led here are not applied by this worker.
        self.keeping.disappoint(Some(self.member.step()));
    }

    pub(super) fn snapshotted(&mut self, snapshot: SnapshotId, shares: Vec<HeldShare>) {
        let hashes = shares.iter().map(|held| (held.share.index, held.hash)).collect();
        if self.keeping.hold(snapshot, shares) {
            fault::reached(Point::Snapshotted, snapshot.step);
            let shares = hashes;
            self.handle(Event::Snapshotted { snapshot, shares });
        }
    }

    pub(super) fn end(&mut self) {
        self.over = true;
        self.copies.clear();
        self.keeping.disappoint(None);
    }

    /// The sum, or a channel on which it comes. Neither if it cannot come any more.
    pub(super) fn coming_sum(&mut self, wanted: WantedSum) -> Result<KeptSum, Option<oneshot::Receiver<KeptSum>>> {
        match self.keeping.sum(wanted) {
            Some(sum) => Ok(sum),
            None if self.over || wanted.step < self.member.step() => Err(None),
            None => Err(Some(self.keeping.wait(wanted))),
        }
    }

    /// Lets the training thread copy shares of the state, if it stands at `step`.
    pub(super) fn copy(&mut self, step: Step, shares: Vec<Share>, haste: Haste) -> Option<oneshot::Receiver<Vec<Bytes>>> {
        if self.over || self.member.step() != step {
            return None;
        }
        Some(self.copies.want(step, shares, haste))
    }

    /// The worker ends, and says so: otherwise the others would wait for it.
    pub(super) fn fail(&mut self, mismatch: Mismatch) -> Task {
        self.command(ActorCommand::Fail {
            generation: self.member.generation(),
            step: self.member.step(),
            mismatch,
        });
        self.end();
        Task::End
    }

    pub(super) fn handle(&mut self, event: Event) {
        self.handle_with(event, &mut None);
    }

    /// Gives back what came if the machine does not want it.
    pub(super) fn arrived(&mut self, arrival: Arrival) -> Option<Payload> {
        let (event, payload) = arrival.into_parts();
        let mut payload = Some(payload);
        self.handle_with(event, &mut payload);
        payload
    }

    fn handle_with(&mut self, event: Event, payload: &mut Option<Payload>) {
        let mut commands = std::mem::take(&mut self.room);
        self.member.handle_into(event, &mut commands);
        self.execute_all(commands, payload);
    }

    /// What the training thread has done is counted before any other process is told: a worker that uses it may outlive this process.
    fn handle_counted(&mut self, event: Event) {
        let mut commands = std::mem::take(&mut self.room);
        self.member.handle_into(event, &mut commands);
        self.write_tally();
        self.execute_all(commands, &mut None);
    }

    fn execute_all(&mut self, mut commands: Vec<Command>, payload: &mut Option<Payload>) {
        for command in commands.drain(..) {
            self.execute(command, payload);
        }
        self.room = commands;
    }

    /// Does what the machine commands. `payload` came with the event that it commands it for.
    pub(super) fn execute(&mut self, command: Command, payload: &mut Option<Payload>) {
        match command {
            Command::Send(message) => self.say(message),
            Command::Connect(form) => {
                let (sender, inbox) = mpsc::unbounded_channel();
                (self.ring, self.prepared) = (Some(sender), None);
                drop(self.keeping.take_room());
                self.command(ActorCommand::Connect { form, inbox });
            }
            Command::Begin { step } => {
                let into = self.buffers.for_sum(self.keeping.serves());
                if let Some(RingInput::Begin { into, .. }) = self.tell_ring(RingInput::Begin { step, into }) {
                    self.buffers.give_back(into);
                }
            }
            Command::Offer { piece } => self.offer(piece),
            Command::Retain { pieces } => self.buffers.retain_for_step(&pieces),
            Command::SumAlone { pieces, trailer } => self.sum_alone(&pieces, trailer),
            Command::Accept { trailer } => {
                let accepted = self.accepted.accept(payload.take(), trailer);
                self.require(accepted);
            }
            Command::LayAside => {
                let laid = self.accepted.lay_aside(payload.take());
                self.require(laid);
            }
            Command::AcceptAside { trailer } => {
                let accepted = self.accepted.accept_aside(trailer);
                self.require(accepted);
            }
            Command::CloseWith { trailer } => drop(self.tell_ring(RingInput::CloseWith(trailer))),
            Command::Prepare(form) => {
                let (sender, inbox) = mpsc::unbounded_channel();
                self.prepared = Some(sender);
                self.command(ActorCommand::Prepare { form, inbox });
            }
            Command::Snapshot { snapshot, shares } => self.snapshot(snapshot, shares),
            Command::KeepSum { step } => self.keeping.keep(step),
            Command::LetGo { shares, sums_before } => self.let_go(shares, sums_before),
            Command::Save(save) => {
                let held = self.keeping.all_of(save.snapshot);
                self.command(ActorCommand::Save { save, held });
            }
            Command::Network(command) => self.hand_on(command),
        }
    }

    fn require(&mut self, fits: Result<(), Mismatch>) {
        if let Err(mismatch) = fits {
            self.fail(mismatch);
        }
    }

    /// Hands on what takes nothing from here, but may change what lies here.
    fn hand_on(&mut self, command: NetworkCommand) {
        match &command {
            NetworkCommand::Abort { .. } => self.ring = None,
            NetworkCommand::Switch { .. } => self.ring = self.prepared.take(),
            NetworkCommand::Unprepare => self.prepared = None,
            NetworkCommand::MakeRoom { shares } if shares.is_empty() => return drop(self.keeping.take_room()),
            NetworkCommand::MakeRoom { .. } => self.keeping.want_room(),
            NetworkCommand::Admit { .. }
            | NetworkCommand::Fetch { .. }
            | NetworkCommand::Copy(_)
            | NetworkCommand::Follow { .. }
            | NetworkCommand::EndCopy
            | NetworkCommand::EndSave
            | NetworkCommand::Restore { .. }
            | NetworkCommand::EndRestore => {}
        }
        self.command(ActorCommand::Network(command));
    }

    fn offer(&mut self, piece: ShardRange) {
        if let Some(gradient) = self.buffers.whole(piece) {
            drop(self.tell_ring(RingInput::Piece {
                step: self.member.step(),
                shards: piece,
                gradient,
            }));
        }
    }

    fn sum_alone(&mut self, pieces: &[ShardRange], trailer: Trailer) {
        let alone = Alone {
            step: self.member.step(),
            pieces: self.buffers.take_whole(pieces),
        };
        let accepted = self.accepted.accept(Some(Payload::Alone(alone)), trailer);
        self.require(accepted);
    }

    fn let_go(&mut self, shares: bool, sums_before: Option<Step>) {
        if shares {
            self.keeping.let_go_of_shares();
        }
        for sum in self.keeping.let_go_of_sums(sums_before) {
            self.buffers.recycle(sum.into_sum());
        }
    }

    fn snapshot(&mut self, snapshot: SnapshotId, shares: Vec<Share>) {
        fault::reached(Point::Snapshot, snapshot.step);
        for sum in self.keeping.begin(snapshot) {
            self.buffers.recycle(sum.into_sum());
        }
        if let Some(copies) = self.copy(snapshot.step, shares.clone(), Haste::BeforeUpdate) {
            self.command(ActorCommand::Snapshot {
                snapshot,
                shares,
                copies,
            });
        }
    }

    fn command(&self, command: ActorCommand) {
        // The receiver is gone only when the worker ends.
        let _ = self.commands.send(command);
    }

    /// Tells the ring, or gives back what there is none for: one that has ended says so by itself.
    pub(super) fn tell_ring(&self, input: RingInput) -> Option<RingInput> {
        match &self.ring {
            Some(ring) => ring.send(input).err().map(|unheard| unheard.0),
            None => Some(input),
        }
    }

    fn write_tally(&mut self) {
        if let Some(file) = &mut self.tally {
            file.write(self.member.tally());
        }
        fault::reached(Point::Tallied, self.member.step());
    }
}
