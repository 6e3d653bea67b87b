//! Control connections: hellos, sessions, and what is said over them; agents, which say how their children ended.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sardana_protocol::limits::{GREETING_DEADLINE, RETRY_EVERY};
use sardana_protocol::member;
use sardana_protocol::membership::{Arrival, Event, Loss};
use sardana_protocol::messages::{CoordinatorMessage, HostHash, Introduction, Tally, WorkerMessage};
use sardana_protocol::plan::Hosts;
use sardana_protocol::words::{Incarnation, Step, WorkerId};

use super::World;
use super::process::{Control, Data};
use crate::simulation::calendar::Happening;
use crate::simulation::network::{Node, Transport};

/// An agent that has lost the coordinator looks for it this often.
const AGENT_EVERY: Duration = Duration::from_millis(250);

/// Processes are on so many hosts, unless each has one of its own, or all share one.
const HOSTS: u8 = 6;

/// Whether a connection is closed behind this message.
pub(super) fn is_last(message: &CoordinatorMessage) -> bool {
    matches!(
        message,
        CoordinatorMessage::Dismiss { .. } | CoordinatorMessage::Released { .. }
    )
}

fn address_of(worker: WorkerId, hosts: Hosts) -> SocketAddr {
    let [.., high, middle, low] = worker.get().to_be_bytes();
    let host = match hosts {
        Hosts::Apart => Ipv4Addr::new(10, high, middle, low),
        Hosts::Mixed => Ipv4Addr::new(127, 0, 0, 1 + low % HOSTS),
        Hosts::Same | Hosts::SharingMemory => Ipv4Addr::LOCALHOST,
    };
    SocketAddr::from((host, 1))
}

impl World {
    /// A worker looks for the coordinator.
    pub(super) fn dial(&mut self, worker: WorkerId) {
        let reachable = self.reaches(Node::Worker(worker), Node::Coordinator);
        let here = self.coordinator_listens();
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        if process.control != Control::Dialing {
            return;
        }
        if !reachable || !here {
            let pause = if here { self.within(GREETING_DEADLINE) } else { RETRY_EVERY };
            return self.calendar.after(RETRY_EVERY + pause, Happening::Dial { worker });
        }
        self.member(worker, member::Event::Introducing, Data::None);
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let introduction = Box::new(process.member.introduction());
        self.serial += 1;
        let session = self.serial;
        process.control = Control::Greeting(session);
        let delay = self.network.stream_delay(&mut self.dice);
        process.upstream = self.calendar.now() + delay;
        let hello = Happening::Hello {
            worker,
            session,
            introduction,
        };
        self.calendar.after(delay, hello);
        self.calendar
            .after(GREETING_DEADLINE, Happening::Unanswered { worker, session });
    }

    pub(super) fn unanswered(&mut self, worker: WorkerId, session: u64) {
        let control = self.processes.get(&worker).map(|process| process.control);
        if control == Some(Control::Greeting(session)) {
            self.lose_control(worker);
        }
    }

    fn lose_control(&mut self, worker: WorkerId) {
        if let Some(process) = self.processes.get_mut(&worker) {
            process.control = Control::Dialing;
            self.calendar.after(RETRY_EVERY, Happening::Dial { worker });
        }
    }

    pub(super) fn hello(&mut self, worker: WorkerId, session: u64, introduction: Introduction) {
        let Some(machine) = &self.coordinator.machine else { return };
        if self.coordinator.gone.contains(&worker) {
            return;
        }
        let introduction = match &mut self.liars {
            Some(liars) => liars.introduces(worker, introduction, &mut self.dice),
            None => introduction,
        };
        if self.liars.is_some() && !self.admits(worker, &introduction) {
            return self.exits(worker, "exit code 1");
        }
        let (newest, report_from) = (machine.generation(), machine.next_report());
        if self.liars.is_none() {
            let held = self.law.honest_says_hello(worker, introduction.standing.lineage.last, newest);
            self.require(held);
        }
        // It knows sooner than this side that its last connection is gone.
        if let Some(before) = self.coordinator.session_of(worker) {
            self.session_lost(worker, before);
        }
        let now = self.now();
        let at = now + self.network.stream_delay(&mut self.dice);
        self.coordinator.welcome(worker, session, at);
        self.law.not_missed(worker);
        self.law.introduces(worker, &introduction);
        let greeting = Happening::Greeting {
            worker,
            session,
            incarnation: self.coordinator.incarnation,
            report_from,
        };
        self.calendar.at(at, greeting);
        self.decide(Event::Arrived(Box::new(Arrival {
            worker,
            address: address_of(worker, self.swarm.hosts),
            capacity: self.swarm.capacity,
            memory: self.swarm.memory,
            host_hash: (self.swarm.hosts == Hosts::SharingMemory).then_some(HostHash::new([1; 16])),
            on_device: false,
            introduction,
        })));
    }

    pub(super) fn greeted(&mut self, worker: WorkerId, session: u64, incarnation: Incarnation, report_from: Step) {
        let now = self.now();
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        if process.control != Control::Greeting(session) {
            // The worker has given up waiting, and closes this connection.
            let delay = self.network.delay(&mut self.dice);
            return self.calendar.after(delay, Happening::SessionLost { worker, session });
        }
        process.control = Control::Joined(session);
        process.upstream = now;
        let held = self.law.welcomed(worker, incarnation);
        self.require(held);
        let welcomed = member::Event::Welcomed {
            incarnation,
            report_from,
        };
        self.member(worker, welcomed, Data::None);
        let waiting = self
            .processes
            .get_mut(&worker)
            .map(|process| std::mem::take(&mut process.outbox));
        for message in waiting.into_iter().flatten() {
            self.send_up(worker, message);
        }
    }

    pub(super) fn session_lost(&mut self, worker: WorkerId, session: u64) {
        if self.coordinator.session_of(worker) != Some(session) {
            return;
        }
        self.law.doubts.uncountable = true;
        if self.coordinator.machine.as_ref().is_some_and(|machine| machine.knows(worker)) {
            self.law.cut_off(worker, self.coordinator.clock(self.calendar.now()));
        }
        self.coordinator.forget(worker);
        let cause = Loss::ConnectionLost {
            why: "the connection broke".to_owned(),
        };
        self.decide(Event::Lost { worker, cause });
        // The coordinator drops what is left of it.
        let delay = self.is_noticed_after(Node::Coordinator, Node::Worker(worker));
        self.calendar.after(delay, Happening::ControlLost { worker, session });
    }

    pub(super) fn control_lost(&mut self, worker: WorkerId, session: u64) {
        let process = self.processes.get(&worker);
        if process.is_some_and(|process| process.control.session() == Some(session)) {
            self.lose_control(worker);
            let delay = self.network.delay(&mut self.dice);
            if self.reaches(Node::Worker(worker), Node::Coordinator) {
                self.calendar.after(delay, Happening::SessionLost { worker, session });
            }
        }
    }

    /// What a worker's machine says.
    pub(crate) fn send_up(&mut self, worker: WorkerId, message: WorkerMessage) {
        let message = match &mut self.liars {
            Some(liars) => liars.says(worker, message, &mut self.dice),
            None => message,
        };
        self.coverage.said(&message);
        let (now, cut) = (self.now(), self.cut_until(Node::Worker(worker), Node::Coordinator));
        let Some(process) = self.processes.get_mut(&worker) else {
            return;
        };
        let Control::Joined(session) = process.control else {
            process.outbox.push(message);
            return;
        };
        let make = |message| Happening::ToCoordinator {
            worker,
            session,
            message,
        };
        match self.network.transport {
            Transport::Streams => {
                let delay = self.network.stream_delay(&mut self.dice);
                process.upstream = process.upstream.max(cut.unwrap_or(now) + delay);
                self.calendar.at(process.upstream, make(Box::new(message)));
            }
            Transport::Datagrams => {
                for at in self.copies(cut) {
                    self.calendar.at(at, make(Box::new(message.clone())));
                }
            }
        }
    }

    /// What the coordinator's machine says.
    pub(super) fn send_down(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        let Some(session) = self.coordinator.session_of(worker) else {
            return;
        };
        let (now, cut) = (self.now(), self.cut_until(Node::Coordinator, Node::Worker(worker)));
        let last = is_last(&message);
        let make = |message| Happening::ToWorker {
            worker,
            session,
            message,
        };
        // What is to be kept for a checkpoint must be known before it may be let go: that counts on the order of a stream.
        let of_saving = matches!(
            message,
            CoordinatorMessage::Save(_) | CoordinatorMessage::SaveOver { .. } | CoordinatorMessage::Serve(_)
        );
        let transport = if of_saving && self.swarm.saves.is_some() {
            Transport::Streams
        } else {
            self.network.transport
        };
        let arrives = match transport {
            Transport::Streams => {
                let at = cut.unwrap_or(now) + self.network.stream_delay(&mut self.dice);
                let at = self.coordinator.in_order(worker, at);
                self.calendar.at(at, make(Box::new(message)));
                at
            }
            Transport::Datagrams => {
                let copies = self.copies(cut);
                for &at in &copies {
                    self.calendar.at(at, make(Box::new(message.clone())));
                }
                copies.last().copied().unwrap_or(now) + RETRY_EVERY
            }
        };
        if last {
            // The connection is closed behind the last message.
            self.calendar.at(arrives, Happening::ControlLost { worker, session });
        }
    }

    /// When the copies of a message arrive on a way that keeps no order: none if it is lost.
    fn copies(&mut self, cut: Option<Duration>) -> Vec<Duration> {
        let now = self.now();
        if cut.is_some() || self.dice.below(1_000) < self.network.loss {
            self.counts.messages_lost += 1;
            return Vec::new();
        }
        let mut copies = vec![now + self.network.delay(&mut self.dice)];
        while self.dice.below(1_000) < self.network.replay && copies.len() < 5 {
            self.counts.messages_replayed += 1;
            let late = self.within(Duration::from_secs(2));
            copies.push(now + late);
        }
        copies
    }

    /// A worker's message reaches the coordinator.
    pub(super) fn hear(&mut self, worker: WorkerId, session: u64, message: WorkerMessage) {
        if self.coordinator.session_of(worker) == Some(session) {
            self.decide(Event::Said { worker, message });
        }
    }

    /// The coordinator's message reaches a worker.
    pub(super) fn tell(&mut self, worker: WorkerId, session: u64, message: CoordinatorMessage) {
        let control = self.processes.get(&worker).map(|process| process.control);
        if control == Some(Control::Greeting(session)) {
            // It came before the greeting, which is in the same stream.
            let message = Box::new(message);
            let again = Happening::ToWorker {
                worker,
                session,
                message,
            };
            return self.calendar.after(RETRY_EVERY, again);
        }
        if control != Some(Control::Joined(session)) {
            return;
        }
        if let CoordinatorMessage::Released { .. } = message {
            self.exits(worker, "exit code 0");
        } else if let CoordinatorMessage::Dismiss { .. } = message {
            self.exits(worker, "exit code 1");
        } else {
            self.member(worker, member::Event::Ordered(message), Data::None);
        }
    }

    /// An agent says how a child ended, as soon as the coordinator listens.
    pub(super) fn exited(&mut self, worker: WorkerId, how: &'static str, tally: Tally) {
        if !self.coordinator_listens() || !self.reaches(Node::Worker(worker), Node::Coordinator) {
            return self.calendar.after(AGENT_EVERY, Happening::Exited { worker, how, tally });
        }
        self.law.not_missed(worker);
        self.coordinator.gone.insert(worker);
        self.coordinator.forget(worker);
        let cause = Loss::Exited {
            how: how.to_owned(),
            tally: Some(tally),
        };
        self.decide(Event::Lost { worker, cause });
    }
}
