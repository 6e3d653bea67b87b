//! A group of a thousand, of the machines that ship on both sides: it forms, loses members, takes some in and is found by a later life of its
//! coordinator. What is said and looked at for that is counted; no time passes, so that nothing waits for a clock.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use super::*;
use crate::codec::encode;
use crate::member::{GroupCommand, GroupEvent, GroupMember};

/// As many as there may be, and a fifth of them: what is said for each is compared.
const MANY: u64 = 1_000;
const FEW: u64 = 200;

/// What all of them were told of the links of one generation, and their answers.
const FORMS: u64 = 2;
const HALTS: u64 = 2;

/// Bytes of the longest message that a group's members and their coordinator exchange here.
const LONGEST: u64 = 256;

/// Records that the coordinator looks at for one event, on average.
const EACH: u64 = 16;

/// What something has cost.
#[derive(Debug, Default)]
struct Cost {
    /// What was said, both ways.
    messages: u64,
    bytes: u64,
    /// What the coordinator was told, and how many records it looked at for that.
    events: u64,
    looks: u64,
}

/// A coordinator and the machines of a group's workers, which answer at once.
struct Crowd {
    job: Job,
    workers: BTreeMap<WorkerId, GroupMember>,
    events: VecDeque<Event>,
    cost: Cost,
}

fn length<T: serde::Serialize>(message: &T) -> u64 {
    encode(message, 1 << 20).expect("it is bounded").len() as u64
}

impl Crowd {
    /// A group of workers 1 to `many`, in g1.1.
    fn of(many: u64) -> Self {
        let job = Job::new(Config {
            expected: u32::try_from(many).expect("a few"),
            max: 1_000,
            ..group()
        });
        let mut crowd = Self {
            job,
            workers: BTreeMap::new(),
            events: VecDeque::new(),
            cost: Cost::default(),
        };
        crowd.come(1..=many);
        crowd
    }

    /// New workers come.
    fn come(&mut self, workers: RangeInclusive<u64>) {
        self.workers
            .extend(workers.clone().map(|worker| (w(worker), GroupMember::default())));
        self.call(workers);
    }

    /// Workers say hello to the coordinator that is there.
    fn call(&mut self, workers: RangeInclusive<u64>) {
        for worker in workers {
            let introduction = self.workers[&w(worker)].introduction();
            let arrived = Box::new(arrival(worker, introduction));
            self.events.push_back(Event::Arrived(arrived));
        }
    }

    /// Processes end, as their agents see, and all that had links with them give their generation up.
    fn lose(&mut self, workers: RangeInclusive<u64>) {
        for worker in workers {
            self.workers.remove(&w(worker));
            let how = "signal 9".to_owned();
            let cause = Loss::Exited { how, tally: None };
            self.events.push_back(Event::Lost {
                worker: w(worker),
                cause,
            });
        }
    }

    /// Something happens at all workers.
    fn all(&mut self, event: &GroupEvent) {
        for worker in self.workers.keys().copied().collect::<Vec<_>>() {
            self.happens(worker, event.clone());
        }
    }

    fn happens(&mut self, worker: WorkerId, event: GroupEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let member = self.workers.get_mut(&worker).map(|member| member.handle(event));
            for command in member.into_iter().flatten() {
                match command {
                    GroupCommand::Send(message) => {
                        self.counts(length(&message));
                        self.events.push_back(Event::Said { worker, message });
                    }
                    GroupCommand::Connect(form) => events.push_back(GroupEvent::LinksReady {
                        generation: form.generation,
                    }),
                    GroupCommand::Abort { .. } => {}
                }
            }
        }
    }

    fn counts(&mut self, bytes: u64) {
        assert!(bytes <= LONGEST, "a message of {bytes} bytes");
        self.cost.messages += 1;
        self.cost.bytes += bytes;
    }

    /// All answer until nothing is left to be said: what that has cost.
    fn settle(&mut self) -> Cost {
        while let Some(event) = self.events.pop_front() {
            self.cost.events += 1;
            for command in self.job.event(event) {
                match command {
                    Command::Send { worker, message } => {
                        self.counts(length(&message));
                        self.happens(worker, GroupEvent::Ordered(message));
                    }
                    Command::Tell(_) => {}
                    Command::Kill { .. } | Command::Order { .. } | Command::Commit { .. } => {
                        panic!("expected no {command:?}")
                    }
                }
            }
        }
        self.cost.looks = self.job.membership.members.take_visited() as u64;
        std::mem::take(&mut self.cost)
    }

    /// All that are there are in one generation, which works.
    fn is_whole(&self) {
        let membership = &self.job.membership;
        assert_eq!(membership.stage(), Stage::Running);
        let ranks: Vec<u32> = self
            .workers
            .values()
            .map(|member| {
                let (told, seat) = (member.introduction().generation, member.introduction().seat);
                let seat = seat.expect("all have a seat");
                assert_eq!((told, seat.ring), (membership.formed, Ring::Whole));
                assert_eq!(seat.world_size as usize, self.workers.len());
                seat.rank.get()
            })
            .collect();
        // Who comes later has a higher id, and comes last.
        assert!(ranks.iter().copied().eq(0..ranks.len() as u32), "{ranks:?}");
    }
}

/// What `happens` costs a group of few and one of many: so many messages for each of them, and no more bytes for each where there are many.
fn linear(each: u64, happens: impl Fn(&mut Crowd)) {
    let costs = [FEW, MANY].map(|many| {
        let mut crowd = Crowd::of(many);
        crowd.settle();
        happens(&mut crowd);
        let cost = crowd.settle();
        crowd.is_whole();
        assert!(cost.messages > 0 && cost.messages <= each * many, "{cost:?} of {many}");
        assert!(cost.looks <= EACH * cost.events, "{cost:?} of {many}");
        cost
    });
    let [few, many] = &costs;
    // Numbers are longer where there are more of them.
    assert!(many.bytes <= MANY / FEW * few.bytes * 3 / 2, "{few:?}, {many:?}");
}

#[test]
fn a_thousand_form_a_group() {
    let mut crowd = Crowd::of(MANY);
    let cost = crowd.settle();
    crowd.is_whole();
    assert_eq!(cost.messages, FORMS * MANY);
    assert!(cost.looks <= EACH * cost.events, "{cost:?}");
}

#[test]
fn a_thousand_that_lose_some_form_again() {
    linear(HALTS + FORMS, |crowd| crowd.lose(5..=7));
}

/// Each member says that its operation has failed, and only the first is news.
#[test]
fn a_thousand_whose_operation_fails_form_again_once() {
    linear(1 + HALTS + FORMS, |crowd| {
        let generation = g(1);
        crowd.all(&GroupEvent::GivenUp { generation });
    });
    let mut crowd = Crowd::of(MANY);
    crowd.settle();
    crowd.all(&GroupEvent::GivenUp { generation: g(1) });
    crowd.settle();
    assert_eq!(crowd.job.membership.formed, g(2));
}

/// The first one ends the generation; the others come by the time all have halted.
#[test]
fn a_thousand_take_a_tenth_in_at_once() {
    linear(HALTS + FORMS, |crowd| {
        let tenth = crowd.workers.len() as u64 / 10;
        crowd.lose(1..=tenth);
        crowd.settle();
        crowd.come(2_001..=2_000 + tenth);
    });
}

#[test]
fn a_later_life_of_the_coordinator_finds_a_thousand_as_they_are() {
    let mut crowd = Crowd::of(MANY);
    crowd.settle();
    let record: JobRecord = crowd.job.membership.record();
    let config = Config { max: 1_000, ..group() };
    crowd.job.membership = Membership::resume(config, Incarnation::new(2), Duration::ZERO, Some(record));
    crowd.call(1..=MANY);
    let cost = crowd.settle();
    crowd.is_whole();
    assert_eq!((cost.messages, cost.events), (0, MANY));
    assert_eq!(crowd.job.membership.formed, g(1), "adopted");
    assert!(cost.looks <= EACH * MANY, "{cost:?}");
}

/// While hosts that have failed cool down, their newcomers are asked for with every message.
#[test]
fn a_heartbeat_costs_the_same_for_many_also_while_newcomers_cool_down() {
    let mut crowd = Crowd::of(MANY);
    crowd.settle();
    for worker in 1..=4 {
        crowd.workers.remove(&w(worker));
        let silence = Duration::from_secs(30);
        crowd.events.push_back(Event::Lost {
            worker: w(worker),
            cause: Loss::Silent { silence },
        });
        crowd.settle();
    }
    crowd.is_whole();
    let formed = crowd.job.membership.formed;
    crowd.come(2_001..=2_003);
    crowd.settle();
    crowd.all(&GroupEvent::Beat);
    let cost = crowd.settle();
    assert!(cost.looks <= EACH * cost.events, "{cost:?}");
    assert_eq!(crowd.job.membership.formed, formed, "they cool down");
    crowd.job.now += 4 * COOL;
    crowd.all(&GroupEvent::Beat);
    crowd.settle();
    crowd.is_whole();
}
