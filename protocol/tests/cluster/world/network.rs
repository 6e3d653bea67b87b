//! Everything that travels: messages, which arrive in any order or never, finished sums, and what donors deliver.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use sardana_protocol::admission::{Acquaintance, admit};
use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::member;
use sardana_protocol::membership::{Arrival, Command, DepotEvent, Event, GenerationEvent, JobEvent, Loss};
use sardana_protocol::messages::{CoordinatorMessage, DepotMessage, Introduction, WorkerMessage};
use sardana_protocol::words::{Step, WorkerId};

use super::law::Count;
use super::process::{Data, Process};
use super::{Operator, Story, World};
use crate::ring::{Delivery, RingEnd, Sum};

/// A message on its way.
pub(super) enum Mail {
    ToWorker(WorkerId, CoordinatorMessage),
    ToCoordinator(WorkerId, WorkerMessage),
    Hello(WorkerId),
    Lost(WorkerId, Loss),
    OfDepot(DepotId, DepotMessage),
}

impl Mail {
    /// Whether it ends the coordinator's interest in `worker`: if it is lost, the worker looks for the coordinator again.
    pub(super) fn dismisses(&self, worker: WorkerId) -> bool {
        match self {
            Self::ToWorker(other, CoordinatorMessage::Dismiss { .. } | CoordinatorMessage::Released { .. }) => {
                *other == worker
            }
            Self::ToWorker(_, _) | Self::ToCoordinator(_, _) | Self::Hello(_) | Self::Lost(_, _) | Self::OfDepot(..) => {
                false
            }
        }
    }

    /// Whether it is lost with the control connection of `worker`.
    pub(super) fn travels_with(&self, worker: WorkerId) -> bool {
        match self {
            Self::ToWorker(other, _) | Self::ToCoordinator(other, _) => *other == worker,
            Self::Hello(_) | Self::Lost(_, _) | Self::OfDepot(..) => false,
        }
    }
}

impl World {
    pub(super) fn deliver(&mut self) {
        if self.mail.is_empty() {
            return;
        }
        let index = self.dice.index(self.mail.len());
        let mail = self.mail.swap_remove(index);
        let lost = self.dice.below(1000) < u64::from(self.losses);
        match mail {
            // A dismissal closes the connection as well, which the worker notices.
            Mail::ToWorker(worker, CoordinatorMessage::Dismiss { .. } | CoordinatorMessage::Released { .. }) if lost => {
                self.mail.push(Mail::Hello(worker));
            }
            Mail::ToWorker(_, _) | Mail::ToCoordinator(_, _) if lost => self.count = Count::Unknown,
            Mail::ToWorker(worker, message) => self.tell_worker(worker, message),
            Mail::ToCoordinator(worker, message) => self.coordinate(Event::Said { worker, message }),
            Mail::Lost(worker, cause) => self.coordinate(Event::Lost { worker, cause }),
            Mail::Hello(worker) => self.hello(worker),
            Mail::OfDepot(depot, said) => {
                let event = DepotEvent::Said(Box::new(said));
                self.coordinate(Event::Depot { depot, event });
            }
        }
    }

    fn hello(&mut self, worker: WorkerId) {
        self.member(worker, member::Event::Introducing, None);
        let Some(process) = self.processes.get(&worker) else { return };
        let mut introduction = process.member.introduction();
        if let Some(liars) = &mut self.liars {
            introduction = liars.introduces(worker, introduction, &mut self.dice);
            // What the shell asks first; a worker that is not admitted ends.
            if !self.admits(worker, &introduction) {
                self.end(worker, "exit code 1");
                return self.start();
            }
        }
        let arrival = Arrival {
            worker,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            capacity: self.law.shards,
            memory: self.law.memory,
            introduction,
        };
        let welcome = member::Event::Welcomed {
            incarnation: self.incarnation,
            report_from: self.coordinator.next_report(),
        };
        self.member(worker, welcome, None);
        self.coordinate(Event::Arrived(Box::new(arrival)));
    }

    fn admits(&self, worker: WorkerId, introduction: &Introduction) -> bool {
        let hello = self.law.hello(worker, introduction.clone());
        let newest = self.coordinator.generation();
        admit(hello.job, Some(&hello.identity), newest, Acquaintance::Greeted, &hello).is_ok()
    }

    fn tell_worker(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        if let CoordinatorMessage::Halt { .. } = message {
            self.drop_overtaken_copies(worker);
        }
        if let CoordinatorMessage::Released { .. } = message {
            self.end(worker, "exit code 0");
        } else if let CoordinatorMessage::Dismiss { .. } = message {
            if self.end(worker, "exit code 1").is_some() {
                self.start();
            }
        } else {
            self.member(worker, member::Event::Ordered(message), None);
        }
    }

    /// One connection delivers in order, so a `Copy` never comes after a `Halt` that was said later. The machines bear that it does,
    /// which runs with losses show; but a worker that moves on after it has said where it stands takes gradients along that are
    /// counted as lost.
    fn drop_overtaken_copies(&mut self, halted: WorkerId) {
        if self.count == Count::Exact {
            let copy =
                |mail: &Mail| matches!(mail, Mail::ToWorker(worker, CoordinatorMessage::Copy(_)) if *worker == halted);
            self.mail.retain(|mail| !copy(mail));
        }
    }

    pub(super) fn coordinate(&mut self, event: Event) {
        if self.story == Story::Told && !is_routine(&event) {
            println!("coordinator: {event:?}");
        }
        for command in self.coordinator.handle(self.now, event) {
            if self.story == Story::Told {
                println!("coordinator says {command:?}");
            }
            if let (Some(liars), Command::Send { message, .. }) = (&mut self.liars, &command) {
                liars.hear(message);
            }
            match command {
                Command::Send { worker, message } => {
                    if let CoordinatorMessage::Form(form) | CoordinatorMessage::Prepare(form) = &message {
                        self.law.well_formed(form);
                    }
                    self.mail.push(Mail::ToWorker(worker, message));
                }
                Command::Kill { worker } => {
                    if self.end(worker, "signal 9").is_some() {
                        self.start();
                    }
                }
                Command::Order { depot, order } => {
                    if let Some(liars) = &mut self.liars {
                        liars.hear(&*order);
                    }
                    self.obey_at_depot(depot, *order);
                }
                Command::Commit { to, contents } => self.commit(&to, *contents),
                Command::Tell(event) => self.told(event),
            }
        }
    }

    fn told(&mut self, event: JobEvent) {
        match event {
            JobEvent::Generation(event) => self.told_of_generation(event),
            JobEvent::Done(summary) => self.summary = Some(summary),
            JobEvent::Failed { reason } => self.failed(reason),
            JobEvent::Steps(reports) => {
                let newest = reports.last().map(|report| report.step.next());
                self.reached = self.reached.max(newest.unwrap_or(Step::ZERO));
            }
            JobEvent::StateLost { from, .. } => self.reached = from,
            JobEvent::Worker(_)
            | JobEvent::Checkpoint(_)
            | JobEvent::Snapshot { .. }
            | JobEvent::Waiting { .. }
            | JobEvent::Fenced { .. }
            | JobEvent::NotRecorded { .. }
            | JobEvent::RecordedAgain { .. } => {}
        }
    }

    /// By the word of one that lies; or since it was to stop, and none that is connected has its state.
    fn failed(&mut self, reason: String) {
        if let Some(liars) = &mut self.liars {
            liars.failed = Some(reason);
            return;
        }
        let seed = self.law.seed;
        assert!(self.operator == Operator::HasAsked, "seed {seed}: {reason}");
        let least = self.reached.max(Step::new(1));
        let has_it =
            |(worker, process): &(&WorkerId, &Process)| self.coordinator.knows(**worker) && process.member.step() >= least;
        let holder = self.processes.iter().find(has_it).map(|(worker, _)| *worker);
        assert_eq!(holder, None, "it has the state, which is given up, seed {seed}: {reason}");
        self.stopped_in_vain = true;
    }

    fn told_of_generation(&mut self, event: GenerationEvent) {
        match event {
            GenerationEvent::Forming { generation, members, .. } => {
                self.law.newer(generation);
                self.members = members;
            }
            GenerationEvent::Switched { generation, members, .. } => {
                self.law.newer(generation);
                self.moved += u32::from(self.members == members);
                self.members = members;
            }
            GenerationEvent::Adopted { generation, members, .. } => {
                self.law.adopted(generation, self.memory);
                self.members = members;
            }
            GenerationEvent::Halting { .. } | GenerationEvent::Formed { .. } | GenerationEvent::Resumed { .. } => {}
        }
    }

    /// A finished sum reaches one more member.
    pub(super) fn pass_sums(&mut self) {
        let Some(worker) = self.pick() else { return };
        let rings = self.processes.iter();
        let ends: BTreeMap<WorkerId, &RingEnd> = rings
            .filter_map(|(&id, process)| Some((id, process.ring.as_ref()?)))
            .collect();
        let processes = &self.processes;
        let passes_on = |worker: WorkerId, generation| processes.get(&worker).is_some_and(|one| one.passes_on(generation));
        let Some(delivery) = self.sums.next(worker, &ends, passes_on) else {
            return;
        };
        let Delivery {
            generation,
            step,
            sum,
            closed_by,
        } = delivery;
        let closer = closed_by.and_then(|closer| self.processes.get_mut(&closer)?.ring.as_mut());
        if let Some(closer) = closer {
            closer.closing = closer.closing.after_closing();
        }
        let Sum {
            comes,
            gradients,
            trailer,
        } = sum;
        if !comes {
            return;
        }
        if let Some(ring) = self.processes.get_mut(&worker).and_then(|process| process.ring.as_mut()) {
            ring.delivered = Some(step);
        }
        let summed = member::Event::Summed {
            generation,
            step,
            trailer,
        };
        self.member(worker, summed, Some(Data::Sum(step, gradients, trailer)));
    }

    /// Links come up, or break because a peer is gone; donors deliver.
    pub(super) fn link_and_fetch(&mut self) {
        let Some(worker) = self.pick() else { return };
        match self.dice.below(4) {
            3 if self.liars.is_some() => self.save_or_restore(worker),
            0 if self.link(worker) => {}
            0 => self.fetch(worker),
            1 => self.tell_snapshot(worker),
            _ => self.copy(worker),
        }
    }

    /// Whether there were links to make.
    fn link(&mut self, worker: WorkerId) -> bool {
        let Some(process) = self.processes.get_mut(&worker) else {
            return false;
        };
        let Some((generation, ring)) = process.next_links() else {
            return false;
        };
        let peers: Vec<WorkerId> = ring.form.peers.iter().map(|peer| peer.member.worker).collect();
        let event = match peers.into_iter().find(|peer| !self.processes.contains_key(peer)) {
            Some(peer) => member::Event::LinkBroken { generation, peer },
            None => member::Event::LinksReady { generation },
        };
        self.member(worker, event, None);
        true
    }

    fn fetch(&mut self, worker: WorkerId) {
        let Some(wanted) = self.processes.get_mut(&worker).and_then(|process| process.fetching.take()) else {
            return;
        };
        let (generation, step, peer) = (wanted.generation, wanted.step, wanted.donor.worker);
        let delivered = self.processes.get(&peer).and_then(|donor| donor.donate(&wanted));
        let event = match delivered {
            Some(_) => member::Event::Fetched { generation, step },
            None => member::Event::LinkBroken { generation, peer },
        };
        self.member(worker, event, delivered);
    }
}

/// What happens all the time and is left out of a story.
fn is_routine(event: &Event) -> bool {
    match event {
        Event::Tick | Event::Motion { .. } => true,
        Event::Said { message, .. } => matches!(message, WorkerMessage::Progress { .. }),
        Event::Arrived(_)
        | Event::Lost { .. }
        | Event::LeaveRequested { .. }
        | Event::StopRequested
        | Event::Depot { .. } => false,
    }
}
