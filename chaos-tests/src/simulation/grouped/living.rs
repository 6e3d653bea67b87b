//! How processes of a simulated group begin and end, and what they say and hear.

use std::time::Duration;

use sardana_protocol::limits::{HEARTBEAT, RETRY_EVERY};
use sardana_protocol::member::{GroupCommand, GroupEvent};
use sardana_protocol::messages::{CoordinatorMessage, WorkerMessage};
use sardana_protocol::words::{Incarnation, WorkerId};

use super::oracle::Oracle;
use super::process::{Process, Seat};
use super::world::{Happening, World};

impl World {
    pub(super) fn start(&mut self) {
        if self.ending.done {
            return;
        }
        self.ids += 1;
        let worker = WorkerId::new(self.ids);
        self.processes.insert(worker, Process::new());
        self.after(Duration::ZERO, Happening::Dial { worker });
        self.after(HEARTBEAT, Happening::Beat { worker });
    }

    pub(super) fn dial(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.get_mut(&worker).filter(|process| process.session.is_none()) else {
            return;
        };
        process.dialled += 1;
        let introduction = Box::new(process.machine.introduction());
        self.sessions += 1;
        let session = self.sessions;
        if self.coordinator.is_there() {
            let hello = Happening::Hello {
                worker,
                session,
                introduction,
            };
            self.send(session, true, hello);
        }
        // Unless it is greeted by then.
        self.after(RETRY_EVERY * 8, Happening::Dial { worker });
    }

    pub(super) fn greeted(&mut self, worker: WorkerId, session: u64, incarnation: Incarnation) {
        let Some(process) = self.processes.get_mut(&worker).filter(|process| process.session.is_none()) else {
            return;
        };
        process.session = Some(session);
        if !self.coordinator.has(worker, session) {
            // The other end has gone meanwhile.
            let noticed = self.between(1, 8_000);
            self.after(noticed, Happening::ControlLost { worker, session });
        }
        self.handle(worker, GroupEvent::Welcomed { incarnation });
    }

    pub(super) fn told(&mut self, worker: WorkerId, session: u64, message: CoordinatorMessage) {
        if self
            .processes
            .get(&worker)
            .is_none_or(|process| process.session != Some(session))
        {
            return;
        }
        match message {
            CoordinatorMessage::Released { .. } => {
                self.counts.released += 1;
                self.end_process(worker);
            }
            CoordinatorMessage::Dismiss { .. } => self.end_process(worker),
            CoordinatorMessage::Complete { .. } => self.hears_of_the_end(worker),
            message @ (CoordinatorMessage::Halt { .. }
            | CoordinatorMessage::Form(_)
            | CoordinatorMessage::Prepare(_)
            | CoordinatorMessage::CloseWith { .. }
            | CoordinatorMessage::Serve(_)
            | CoordinatorMessage::Save(_)
            | CoordinatorMessage::SaveOver { .. }
            | CoordinatorMessage::Copy(_)
            | CoordinatorMessage::Renewed { .. }) => self.handle(worker, GroupEvent::Ordered(message)),
        }
    }

    pub(super) fn control_lost(&mut self, worker: WorkerId, session: u64) {
        let lost = |process: &&mut Process| process.session == Some(session);
        if let Some(process) = self.processes.get_mut(&worker).filter(lost) {
            process.session = None;
            self.after(RETRY_EVERY, Happening::Dial { worker });
        }
    }

    /// A process ends, and its agent sees it; another is started.
    pub(super) fn end_process(&mut self, worker: WorkerId) {
        self.vanish(worker);
        let seen = self.between(1, 50);
        self.after(seen, Happening::Exited { worker });
    }

    /// A process ends.
    pub(super) fn vanish(&mut self, worker: WorkerId) {
        let Some(process) = self.processes.remove(&worker) else {
            return;
        };
        if let Some(session) = process.session {
            let noticed = self.between(1, 8_000);
            self.after(noticed, Happening::SessionLost { worker, session });
        }
        if let Some(seat) = process.seat {
            self.let_go(&seat);
        }
        let wait = self.between(50, 3_000);
        self.after(wait, Happening::Start);
    }

    /// The others' links with what had this seat break.
    fn let_go(&mut self, seat: &Seat) {
        let generation = seat.form.generation;
        for worker in seat.peers() {
            let noticed = self.delay();
            self.after(noticed, Happening::Breaks { worker, generation });
        }
    }

    /// Hands in an event, and does what the machine says.
    pub(super) fn handle(&mut self, worker: WorkerId, event: GroupEvent) {
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        for command in process.machine.handle(event) {
            match command {
                GroupCommand::Send(message) => self.says(worker, message),
                GroupCommand::Connect(form) => {
                    let held = self.oracle.sits(worker, &form, self.coordinator.most());
                    self.held(held);
                    let (generation, since) = (form.generation, self.now());
                    if let Some(process) = self.processes.get_mut(&worker) {
                        process.seat = Some(Seat::new(*form));
                    }
                    let wait = self.delay();
                    let link = Happening::Link {
                        worker,
                        generation,
                        since,
                    };
                    self.after(wait, link);
                }
                GroupCommand::Abort { next, .. } => {
                    let held = self.oracle.promises(worker, next);
                    self.held(held);
                    let seat = self.processes.get_mut(&worker).and_then(|process| process.seat.take());
                    if let Some(seat) = seat {
                        self.let_go(&seat);
                    }
                }
            }
        }
    }

    fn says(&mut self, worker: WorkerId, message: WorkerMessage) {
        if let WorkerMessage::Halted { generation, .. } = message {
            let seat = self.processes.get(&worker).and_then(|process| process.seat.as_ref());
            self.held(Oracle::halted(worker, generation, seat.map(|seat| seat.form.generation)));
        }
        if let Some(session) = self.processes.get(&worker).and_then(|process| process.session) {
            let message = Box::new(message);
            let said = Happening::ToCoordinator {
                worker,
                session,
                message,
            };
            self.send(session, true, said);
        }
    }
}
