//! The coordinator's machine alone, told anything by workers, agents and depots.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sardana_protocol::checkpoint::DepotId;
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::lineage::Lineage;
use sardana_protocol::membership::{Arrival, Balance, Command, Config, DepotEvent, Event, Loss, Membership};
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{CoordinatorMessage, DepotMessage, HostHash, Standing, Tally, Trailer, WorkerMessage};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::status::Stage;
use sardana_protocol::words::{Incarnation, Step, WorkerId};

use super::changing::Ear;
use super::{corpus, saves};
use crate::dice::Dice;
use crate::simulation::world::{BUILD, TASK};

/// How many workers speak to the coordinator.
const WORKERS: u64 = 6;
const DEPOTS: u64 = 3;

fn config() -> Config {
    Config {
        min: 1,
        expected: 3,
        max: 4,
        shards: 8,
        steps: Step::new(40),
        order: Order::Exact,
        compression: Compression::None,
        balance: Balance::default(),
        task: TASK,
        build: BUILD,
        saves: Some(saves()),
    }
}

/// A coordinator among peers that all lie.
struct Besieged {
    dice: Dice,
    ear: Ear,
    of_worker: Vec<WorkerMessage>,
    of_depot: Vec<DepotMessage>,
    now: Duration,
    life: u64,
    machine: Membership,
    /// What some of the workers will answer.
    answers: Vec<(WorkerId, WorkerMessage)>,
    largest: usize,
}

/// A coordinator is told so many things. Returns how large it was at most, as text.
#[must_use]
pub fn besiege_coordinator(seed: u64, events: u32) -> usize {
    let mut besieged = Besieged {
        dice: Dice::new(seed),
        ear: Ear::default(),
        of_worker: corpus::of_worker(),
        of_depot: corpus::of_depot(TASK, BUILD),
        now: Duration::ZERO,
        life: 1,
        machine: Membership::new(config(), Incarnation::new(1), Duration::ZERO),
        answers: Vec::new(),
        largest: 0,
    };
    for number in 0..events {
        besieged.event();
        if number % 500 == 499 {
            besieged.largest = besieged.largest.max(format!("{:?}", besieged.machine).len());
        }
    }
    besieged.largest
}

impl Besieged {
    fn event(&mut self) {
        let (worker, depot) = (
            WorkerId::new(1 + self.dice.below(WORKERS)),
            DepotId::new(1 + self.dice.below(DEPOTS)),
        );
        match self.dice.below(16) {
            0 => self.arrives(worker),
            1 if self.dice.once_in(4) => self.is_lost(worker),
            2 if self.dice.once_in(300) => self.tell(Event::StopRequested),
            2 => self.tell(Event::LeaveRequested {
                worker,
                reason: "test".to_owned(),
            }),
            3 | 4 => self.pass_time(),
            5..=7 => self.depot(depot),
            8..=11 if !self.answers.is_empty() => {
                let index = self.dice.index(self.answers.len());
                let (worker, message) = self.answers.swap_remove(index);
                let message = if self.dice.once_in(3) {
                    self.ear.changed(&message, &mut self.dice)
                } else {
                    message
                };
                self.tell(Event::Said { worker, message });
            }
            _ => {
                let all = &self.of_worker;
                let message = self.ear.changed(&all[self.dice.index(all.len())], &mut self.dice);
                self.tell(Event::Said { worker, message });
            }
        }
        // A job that is over, or a coordinator that dies: its next life reads what this one has written down.
        if self.machine.stage() == Stage::Done || self.dice.once_in(5_000) {
            self.life += 1;
            let kept = self.dice.below(3) > 0;
            let record = kept.then(|| self.machine.record());
            self.machine = Membership::resume(config(), Incarnation::new(self.life), self.now, record);
        }
    }

    fn arrives(&mut self, worker: WorkerId) {
        let introduction = self.ear.changed(&corpus::introduction(), &mut self.dice);
        let memory = GradientMemory {
            gradient: self.dice.below(1 << 41),
            room: self.dice.below(1 << 52),
            links: 0,
        };
        let capacity = u32::try_from(1 + self.dice.below(1 << 32)).unwrap_or(u32::MAX);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        self.tell(Event::Arrived(Box::new(Arrival {
            worker,
            address,
            capacity,
            memory,
            // They share memory in every second life.
            host_hash: self.life.is_multiple_of(2).then_some(HostHash::new([1; 16])),
            on_device: false,
            introduction,
        })));
    }

    fn is_lost(&mut self, worker: WorkerId) {
        let tally = Some(Tally {
            total: 9,
            ..Tally::default()
        });
        let cause = match self.dice.below(3) {
            0 => Loss::Exited {
                how: "signal 9".to_owned(),
                tally: self.ear.changed(&tally, &mut self.dice),
            },
            1 => Loss::Exited {
                how: "signal 9".to_owned(),
                tally: None,
            },
            _ => Loss::ConnectionLost { why: "cut".to_owned() },
        };
        self.tell(Event::Lost { worker, cause });
    }

    fn depot(&mut self, depot: DepotId) {
        let event = match self.dice.below(24) {
            0 => DepotEvent::Lost { why: "cut".to_owned() },
            1..=3 => DepotEvent::Arrived {
                host: format!("host{depot}"),
                certified: depot.get(),
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            },
            _ => {
                let all = &self.of_depot;
                let said = self.ear.changed(&all[self.dice.index(all.len())], &mut self.dice);
                DepotEvent::Said(Box::new(said))
            }
        };
        self.tell(Event::Depot { depot, event });
    }

    fn pass_time(&mut self) {
        let most = if self.dice.once_in(40) { 40_000 } else { 400 };
        self.now += Duration::from_millis(self.dice.below(most));
        self.tell(Event::Tick);
    }

    fn tell(&mut self, event: Event) {
        for command in self.machine.handle(self.now, event) {
            match command {
                Command::Send { worker, message } => self.hears(worker, &message),
                Command::Order { order, .. } => self.ear.hear(&*order),
                Command::Commit { contents, .. } => {
                    let (depot, mut head) = (contents.depots.first().copied(), corpus::head(TASK, BUILD));
                    head.key.step = contents.snapshot.step;
                    (head.snapshot, head.placing, head.depots) =
                        (contents.snapshot, contents.placing, contents.depots.clone());
                    let snapshot = contents.snapshot;
                    let said = DepotMessage::Committed { snapshot, head };
                    self.ear.hear(&said);
                    if let Some(depot) = depot.filter(|_| self.answers.len() < 64) {
                        let event = DepotEvent::Said(Box::new(said));
                        let _ = self.machine.handle(self.now, Event::Depot { depot, event });
                    }
                }
                Command::Kill { .. } | Command::Tell(_) => {}
            }
        }
    }

    /// Some workers do as they are told, so that the machine gets anywhere.
    fn hears(&mut self, worker: WorkerId, message: &CoordinatorMessage) {
        self.ear.hear(message);
        let step = self.machine.reached();
        let mut answer = |worker, message| self.answers.push((worker, message));
        if let CoordinatorMessage::Halt { generation } = message {
            let standing = Standing {
                step,
                lineage: Lineage::default(),
                kept: Vec::new(),
                sum: step.previous(),
                stop_at: None,
                tally: Tally {
                    step,
                    ..Tally::default()
                },
            };
            let generation = *generation;
            answer(worker, WorkerMessage::Halted { generation, standing });
        } else if let CoordinatorMessage::Form(form) | CoordinatorMessage::Prepare(form) = message {
            let generation = form.generation;
            answer(worker, WorkerMessage::Ready { generation });
            let progress = WorkerMessage::Progress {
                generation,
                step: form.step.next(),
                tally: Tally::default(),
                pace: None,
                moved: 0,
                reports: Vec::new(),
            };
            answer(worker, progress);
        } else if let CoordinatorMessage::Serve(serve) = message
            && serve.snapshot.is_none()
        {
            let generation = self.machine.generation();
            answer(worker, WorkerMessage::RoomMade { generation });
        } else if let CoordinatorMessage::CloseWith { generation, trailer } = message
            && *trailer == Trailer::Snapshot
        {
            let (generation, step) = (*generation, step.next());
            for worker in (1..=WORKERS).map(WorkerId::new) {
                let (snapshot, shares) = (SnapshotId { generation, step }, Vec::new());
                answer(worker, WorkerMessage::Snapshotted { snapshot, shares });
            }
        }
        self.answers.truncate(64);
    }
}
