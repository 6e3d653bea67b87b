//! One run with peers that lie, among honest ones on healthy hosts: as the one number that replays it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sardana_protocol::admission::{Acquaintance, admit};
use sardana_protocol::job::{Fingerprint, JobIdentity, Order};
use sardana_protocol::messages::{Call, Introduction, WorkerHello};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{JobId, Step, WorkerId};

use super::Liars;
use crate::dice::{Dice, mix};
use crate::simulation::invariants::Violation;
use crate::simulation::story::{Story, Telling};
use crate::simulation::swarm::Swarm;
use crate::simulation::world::World;

/// Within this the job ends, however much is said.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);

/// For so long workers are killed, where they are.
const TROUBLE: Duration = Duration::from_secs(1_800);

/// Between two looks at how large the coordinator's machine is, so many things happen.
const LOOK_EVERY: u64 = 500;

/// Checks of what a coordinator does by the word of a depot that it has a checkpoint, or of an agent that a process is stopped. All others hold
/// also where some peers lie.
const BY_THEIR_WORD: &[&str] = &[
    "CKPT-1, committed",
    "CKPT-1, deleting",
    "CKPT-2, resuming",
    "the last state is saved",
    "who works is not left out as one who hangs",
];

/// A cluster, and which of its peers lie.
#[derive(Debug, Clone, Copy)]
pub struct Siege {
    seed: u64,
    workers: u32,
    /// How many workers lie at once: the honest are more, but for those that were just killed.
    liars: usize,
    /// One in so many of their words is a lie.
    rarity: u64,
    steps: u64,
    order: Order,
    /// Whether workers are killed, and return: those that join are handed states and sums.
    loses: bool,
    lies: Lies,
}

/// Who lies, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// Workers, of anything.
    Workers,
    /// Workers, only of the sums that they hand to joiners.
    Keepers,
    /// A depot, and an agent.
    Others,
}

/// How a siege went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withstood {
    /// How the job ended.
    pub end: End,
    /// How large the coordinator's machine was at most, in bytes as text.
    pub largest: usize,
    /// How often a keeper handed a joiner a sum and lied of it.
    pub misled: u64,
}

/// How the run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With the right state.
    Well,
    /// The job failed, or does not begin, by the word of a peer that lies.
    Failed(String),
    /// As it must not.
    Violated(Violation),
}

impl Siege {
    /// Of a seed: one or two workers lie.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let workers = 3 + u32::try_from(seed % 4).unwrap_or(0);
        Self {
            seed,
            workers,
            liars: if workers > 4 && (seed >> 8) % 2 == 1 { 2 } else { 1 },
            rarity: [2, 5, 20, 80][usize::try_from((seed >> 16) % 4).unwrap_or(0)],
            steps: 10 + (seed >> 24) % 30,
            order: if (seed >> 40).is_multiple_of(3) {
                Order::Fast
            } else {
                Order::Exact
            },
            loses: (seed >> 48).is_multiple_of(2),
            lies: Lies::Workers,
        }
    }

    /// With no worker that lies, but with a depot that does, and the agent of one worker. None is lost: a depot can keep a job whose state is lost from
    /// going on, as it can keep one from beginning.
    #[must_use]
    pub fn of_others(seed: u64) -> Self {
        Self {
            liars: 0,
            loses: false,
            lies: Lies::Others,
            ..Self::drawn(seed)
        }
    }

    /// With workers that lie only of the sums that they hand to joiners; and joiners all the time.
    #[must_use]
    pub fn of_keepers(seed: u64) -> Self {
        Self {
            loses: true,
            rarity: 1 + (seed >> 16) % 4,
            lies: Lies::Keepers,
            ..Self::drawn(seed)
        }
    }

    /// In which order the job adds its gradients.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }

    /// Plays it to its end.
    #[must_use]
    pub fn play(self, telling: Telling) -> Withstood {
        let mut world = self.world(telling);
        let mut largest = 0;
        let mut goes_on = true;
        while goes_on {
            world.lie();
            if self.loses && !world.healed && world.now() >= TROUBLE {
                world.heal();
            }
            goes_on = world.happen() && !world.is_over() && world.now() < PATIENCE;
            if !goes_on || world.story.events.is_multiple_of(LOOK_EVERY) {
                largest = largest.max(format!("{:?}", world.coordinator.machine).len());
            }
        }
        let misled = world.liars.as_ref().map_or(0, |liars| liars.misled);
        Withstood {
            end: world.outcome(),
            largest,
            misled,
        }
    }

    fn world(self, telling: Telling) -> World {
        let Self { seed, workers, .. } = self;
        let mut dice = Dice::new(mix(seed));
        let depots = if self.lies == Lies::Others { 3 } else { 2 };
        let swarm = Swarm {
            order: self.order,
            ..Swarm::besieged(&mut dice, workers, self.steps, depots)
        };
        let swarm = if self.loses { swarm.losing_workers() } else { swarm };
        let mut world = World::of(swarm, dice, seed, Story::new(telling));
        let liars = Liars::new(self.liars, self.rarity);
        world.law.doubts.uncountable = true;
        world.liars = Some(match self.lies {
            Lies::Workers => liars,
            Lies::Keepers => liars.only_to_joiners(),
            Lies::Others => liars.and_others(world.depots[0].id),
        });
        world
    }
}

impl World {
    /// Whether what was found only says that the coordinator believes a depot that lies, or an agent.
    pub(crate) fn is_by_a_lie(&self, violation: &Violation) -> bool {
        let others_lie = self.liars.as_ref().is_some_and(|liars| liars.depot().is_some());
        others_lie && BY_THEIR_WORD.contains(&violation.invariant)
    }

    /// What a shell asks first of a worker whose hello says this.
    pub(crate) fn admits(&self, worker: WorkerId, introduction: &Introduction) -> bool {
        let Some(machine) = &self.coordinator.machine else {
            return false;
        };
        let hash = StateHash::of(b"x");
        let hello = WorkerHello {
            job: JobId::new([1; 16]),
            worker,
            identity: JobIdentity {
                spec: self.spec.clone(),
                state_zero: hash,
                fingerprint: Fingerprint {
                    program: hash,
                    tensors: hash,
                    settings: hash,
                    processor: String::new(),
                    device: String::new(),
                    libraries: String::new(),
                    probe: hash,
                },
            },
            introduction: introduction.clone(),
            shard_capacity: self.swarm.capacity,
            memory: self.swarm.memory,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            auxiliary: Vec::new(),
            call: Call {
                process: [1; 16],
                count: 1,
            },
            device_memory: None,
            host_hash: None,
        };
        let newest = machine.generation();
        admit(hello.job, Some(&hello.identity), newest, Acquaintance::Greeted, &hello).is_ok()
    }

    /// Peers that lie say something that they were not asked for, now and then.
    fn lie(&mut self) {
        let Some(liars) = &mut self.liars else { return };
        let dice = &mut self.dice;
        let invented = liars.invents(|worker| self.processes.contains_key(worker), dice);
        let of_depot = liars.depot_invents(dice);
        let comes = liars.depot_comes(dice);
        // Workers that are on their way, and one that never was.
        let machine = self.coordinator.machine.as_ref();
        let knows = |worker: &WorkerId| machine.is_some_and(|machine| machine.knows(*worker));
        let here = self.processes.keys().copied().filter(|worker| !knows(worker));
        let absent: Vec<WorkerId> = here.chain([WorkerId::new(1 << 20)]).collect();
        let of_agent = liars.agent_invents(&absent, dice);
        if let Some((worker, message)) = invented {
            self.send_up(worker, message);
        }
        let place = |world: &Self, depot| world.depots.iter().position(|one| one.id == depot);
        if let Some((depot, message)) = of_depot
            && let Some(place) = place(self, depot)
        {
            self.depot_says(place, message);
        }
        if let Some(place) = comes.and_then(|depot| place(self, depot)) {
            self.depot_comes_anew(place);
        }
        if let Some(event) = of_agent {
            self.decide(event);
        }
    }

    fn outcome(self) -> End {
        let Some(liars) = &self.liars else { unreachable!("some lie") };
        let told = match (&self.broken, &liars.failed) {
            (Some(violation), _) => return End::Violated(violation.clone()),
            (None, Some(reason)) => reason.clone(),
            (None, None) if self.done.is_some() => return End::Well,
            // A depot that lies can keep a job from beginning, by checkpoints that no worker can load: they are tried, or waited for.
            (None, None) => match liars.depot() {
                Some(depot) if self.high == Step::ZERO => {
                    format!("{depot} tells of checkpoints again and again, none of which can be resumed from")
                }
                Some(_) | None => return End::Violated(Violation::new("LIVE-1", "the job does not end")),
            },
        };
        if liars.named_in(&told) {
            End::Failed(told)
        } else {
            End::Violated(Violation::new("only by the word of who lies a job fails", told))
        }
    }
}
