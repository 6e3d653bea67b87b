//! A worker's machine and its training thread: events in, commands done, work that takes time.

use std::mem::take;
use std::time::Duration;

use sardana_protocol::limits::HEARTBEAT;
use sardana_protocol::member::{Command, Event, Heartbeat, NetworkCommand};
use sardana_protocol::membership::Balance;
use sardana_protocol::messages::{Trailer, WorkerMessage};
use sardana_protocol::words::{Generation, Pace, ShardRange, Step, WorkerId};

use super::World;
use super::process::{Data, Fetching, Process, RingEnd};
use super::saving::Saves;
use crate::simulation::calendar::{Beat, Happening, Mail};
use crate::simulation::invariants::Violation;
use crate::simulation::model;

impl World {
    /// Gives a worker's machine an event, and does what it commands.
    pub(super) fn member(&mut self, worker: WorkerId, event: Event, mut data: Data) {
        let now = self.now();
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let (step, before) = (process.member.step(), process.member.phases());
        let summed = if let Event::Summed { generation, .. } = &event {
            Some(*generation)
        } else {
            None
        };
        let copied = matches!(event, Event::Loaded) && ["none", "halting"].contains(&before.seat);
        let only_speaks = matches!(event, Event::Beat { .. } | Event::Moved { .. });
        if !only_speaks {
            self.story.tell(now, || format!("{worker} at {step}: {event:?}"));
        }
        let commands = process.member.handle(event);
        self.coverage.member_moved(before, process.member.phases());
        let after = process.member.step();
        let memory = self.swarm.memory;
        let pieces = memory.is_known().then(|| process.member.introduction().standing.kept);
        let held = self.law.grows(worker, step, after, copied);
        self.require(held);
        if let Some(pieces) = pieces {
            let held = self.law.holds(worker, &pieces, memory);
            self.require(held);
        }
        for command in commands {
            self.story.tell(now, || format!("  {worker} commands {command:?}"));
            self.obey(worker, command, &mut data, summed);
        }
        if !only_speaks {
            self.look_at_joiner(worker);
            self.push_ring(worker);
            self.wake(worker);
        }
    }

    /// The ring, or what makes links, has something for a worker's machine. Other things may come to the machine before it, as several
    /// tasks of a process share it; but nothing that is left for it overtakes what was left before.
    pub(super) fn leave_for(&mut self, worker: WorkerId, event: Event, data: Data) {
        let pause = match self.dice.below(16) {
            0 => self.within(self.swarm.held_up),
            _ => Duration::from_micros(20),
        };
        let now = self.now();
        if let Some(process) = self.processes.get_mut(&worker) {
            process.mailed = process.mailed.max(now + pause);
            let mail = Box::new(Mail { event, data });
            self.calendar.at(process.mailed, Happening::Mail { worker, mail });
        }
    }

    fn obey(&mut self, worker: WorkerId, command: Command, data: &mut Data, summed: Option<Generation>) {
        self.coverage.commanded(&command);
        let held = self.law.obeys(worker, &command, summed);
        self.require(held);
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        match command {
            Command::Send(message) => self.say(worker, message),
            Command::Connect(form) => {
                process.next = None;
                self.connect(worker, *form);
            }
            Command::Prepare(form) => self.prepare(worker, *form),
            Command::Begin { step } => self.begin(worker, step),
            Command::Offer { piece } => self.offer(worker, piece),
            Command::Retain { pieces } => process.buffers.retain(|piece, _| pieces.contains(piece)),
            Command::SumAlone { pieces, trailer } => process.add_up_alone(self.swarm.order, &pieces, trailer),
            Command::Accept { trailer } => process.accepted = Some(closed_with(take(data), trailer)),
            Command::LayAside => process.joining.aside = take(data),
            Command::AcceptAside { trailer } => {
                process.accepted = Some(closed_with(take(&mut process.joining.aside), trailer));
            }
            Command::CloseWith { trailer } => match &mut process.ring {
                Some(ring) => ring.closing = ring.closing.and(trailer),
                None => self.senseless(worker, "a closer has a ring"),
            },
            Command::Snapshot { snapshot, shares } => self.take_snapshot(worker, snapshot, shares),
            Command::KeepSum { step } => self.keep_sum(worker, step),
            Command::LetGo { shares, sums_before } => process.keeping.let_go(shares, sums_before),
            Command::Save(save) => self.save(worker, *save),
            Command::Network(command) => self.obey_over_the_network(worker, command),
        }
    }

    fn obey_over_the_network(&mut self, worker: WorkerId, command: NetworkCommand) {
        let now = self.now();
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        match command {
            NetworkCommand::Abort { generation } => {
                process.fetching = None;
                process.restoring = None;
                let ring = process.ring_members().filter(|(ring, _)| *ring == generation);
                process.ring = None;
                self.reset_links(worker, ring);
            }
            NetworkCommand::Switch { generation, step } => switch(process, generation, step),
            NetworkCommand::Unprepare => process.next = None,
            NetworkCommand::MakeRoom { shares } => self.make_room(worker, !shares.is_empty()),
            NetworkCommand::Admit { joiners } => process.keeping.admitted = joiners,
            NetworkCommand::Fetch { generation, what, donor } => self.fetch(
                worker,
                Fetching {
                    serial: 0,
                    since: now,
                    generation,
                    donor,
                    what,
                },
            ),
            NetworkCommand::Copy(snapshot) => self.copy(worker, *snapshot),
            NetworkCommand::Follow { sum, snapshot } => self.follow(worker, sum, *snapshot),
            NetworkCommand::EndCopy => process.joining.end(),
            NetworkCommand::EndSave => process.saves = Saves::default(),
            NetworkCommand::Restore { generation, restore, .. } => self.restore(worker, generation, *restore),
            // What a member has read, it has told the others at once.
            NetworkCommand::EndRestore => {}
        }
    }

    fn say(&mut self, worker: WorkerId, message: WorkerMessage) {
        if let (WorkerMessage::Halted { .. }, Some(process)) = (&message, self.processes.get(&worker)) {
            let held = self.law.halts(worker, process.member.phases().update);
            self.require(held);
        }
        self.send_up(worker, message);
    }

    fn begin(&mut self, worker: WorkerId, step: Step) {
        match self.processes.get_mut(&worker).and_then(|process| process.ring.as_mut()) {
            Some(ring) => {
                ring.begun = Some(step);
                ring.offered.clear();
            }
            None => self.senseless(worker, "a ring begins only once it is connected"),
        }
    }

    pub(super) fn offer(&mut self, worker: WorkerId, piece: ShardRange) {
        let process = self.processes.get_mut(&worker);
        let held = process.and_then(|process| Some((process.buffers.get(&piece)?.clone(), process.ring.as_mut()?)));
        match held {
            Some((gradients, ring)) => {
                ring.offered.insert(piece, gradients);
            }
            None => self.senseless(worker, "what is offered is held, and a ring is there"),
        }
    }

    pub(super) fn senseless(&mut self, worker: WorkerId, what: &'static str) {
        self.require(Err(Violation::new("commands make sense", format!("{worker}: {what}"))));
    }

    /// The host asks a worker to leave.
    pub(crate) fn signal(&mut self, worker: WorkerId) {
        let now = self.now();
        let frozen = |process: &Process| process.frozen_until.is_some_and(|thaw| thaw > now);
        if self.processes.get(&worker).is_some_and(frozen) {
            // It would hear of it when it wakes, as likely as not too late.
            return;
        }
        let reason = "SIGTERM".to_owned();
        self.member(worker, Event::Leave { reason }, Data::None);
    }

    pub(super) fn beat(&mut self, worker: WorkerId, beat: Beat) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let heartbeat = match beat {
            Beat::Heart => {
                let next = HEARTBEAT.mul_f64(1_000.0 / process.rate.max(1) as f64);
                let heartbeat = Beat::Heart;
                self.calendar.after(next, Happening::Beat { worker, heartbeat });
                self.count_moved(worker);
                Heartbeat::Due(self.pace(worker))
            }
            Beat::Reports => {
                process.reports_due = false;
                Heartbeat::NotDue
            }
        };
        self.member(worker, Event::Beat { heartbeat }, Data::None);
    }

    /// How fast a worker is, as it has measured. Figures wander a little.
    fn pace(&mut self, worker: WorkerId) -> Option<Pace> {
        let process = self
            .processes
            .get(&worker)
            .filter(|process| process.member.tally().total > 0)?;
        if self.swarm.balance == Balance::Off {
            return None;
        }
        let each = self.swarm.gradient * process.slow;
        let wander = 950 + u32::try_from(self.dice.below(100)).unwrap_or(0);
        Some(Pace::new(each * wander / 1_000))
    }
}

/// A sum that is closed with this trailer.
fn closed_with(data: Data, trailer: Trailer) -> Data {
    match data {
        Data::Sum(sum) => Data::Sum(model::Sum { trailer, ..sum }),
        Data::None | Data::State(_) => data,
    }
}

/// The ring that was prepared begins; the one before has closed its last sum, and passed it on already.
fn switch(process: &mut Process, generation: Generation, step: Step) {
    process.joining.end();
    let begins = |mut next: RingEnd| {
        next.form.step = step;
        next
    };
    let next = process.next.take();
    process.ring = next.filter(|next| next.form.generation == generation).map(begins);
}
