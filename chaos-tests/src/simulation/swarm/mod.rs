//! What a seed draws before anything happens: the cluster, the job, the network, and which faults come how often. Swarm testing
//! (Groce and others, 2012): each run leaves most kinds of faults out, so that one kind does not hide what another would show.

mod chosen;

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use sardana_protocol::checkpoint::{Every, Keep};
use sardana_protocol::job::Order;
use sardana_protocol::limits::{CHUNK_BYTES, KEEP_LEAST};
use sardana_protocol::membership::{Balance, Saves};
use sardana_protocol::memory::{GradientMemory, SUMS};
use sardana_protocol::plan::Hosts;

use super::faults::Fault;
use super::network::{Network, Transport};
use crate::dice::{Dice, mix};

/// One run's circumstances. One list, as long as it is: all that a seed draws before the run begins.
#[derive(Debug, Clone)]
pub(crate) struct Swarm {
    /// How many workers the fleet has when nothing is missing.
    pub(crate) workers: u32,
    /// Fewer workers do not train.
    pub(crate) min: u32,
    /// Workers beyond this many are spares.
    pub(crate) max: u32,
    /// K.
    pub(crate) shards: u32,
    /// How many shards fit into one worker's memory.
    pub(crate) capacity: u32,
    /// What each worker has for gradients.
    pub(crate) memory: GradientMemory,
    /// How workers are spread over hosts.
    pub(crate) hosts: Hosts,
    pub(crate) steps: u64,
    /// In which order gradients are added.
    pub(crate) order: Order,
    /// How long one shard's gradient takes.
    pub(crate) gradient: Duration,
    pub(crate) apply: Duration,
    /// Whether workers compute on devices: a gradient may be begun before the one before it is there.
    pub(crate) devices: bool,
    /// How long a state takes from one worker to another.
    pub(crate) transfer: Duration,
    /// How long a sum does, which is smaller.
    pub(crate) sum: Duration,
    /// How many bytes of a state come over a link in a second.
    pub(crate) rate: u64,
    /// How long the training thread takes to load a state.
    pub(crate) load: Duration,
    /// How long memory for a state takes to be found, or a state to be hashed, at most.
    pub(crate) local: Duration,
    /// How many sums a member may keep.
    pub(crate) keeps: u32,
    pub(crate) network: Network,
    /// Between the end of a process and its successor, at most.
    pub(crate) restart: Duration,
    /// A dead process is seen by its agent after this at most.
    pub(crate) seen: Duration,
    /// How long a task of a process may wait for its turn, at most: its host has more to do than processors.
    pub(crate) held_up: Duration,
    /// How long a write to the coordinator's disk takes.
    pub(crate) sync: Duration,
    /// Whether workers tell how fast they are, so that shards move.
    pub(crate) balance: Balance,
    /// When checkpoints are taken, if they are.
    pub(crate) saves: Option<Saves>,
    /// Whether now and then a worker that writes for a checkpoint stands still.
    pub(crate) writes_stand: bool,
    /// The host of each depot.
    pub(crate) depots: Vec<u32>,
    /// Kinds of faults, and how long it is between two of a kind on average.
    pub(crate) faults: Vec<(Fault, Duration)>,
}

/// Scrambles a seed for what has to do with checkpoints.
const SAVES: u64 = 0x5a7e_d000;

/// Scrambles a seed for what has to do with large states.
const HEAVY: u64 = 0x4ea7_1000;

/// One job of so many has a large state on slow links.
const HEAVY_ONE_OF: u64 = 8;

/// Scrambles a seed for what has to do with little memory: chosen so that no seed of `corpus.txt` gets less.
const SCARCE: u64 = 0x5ca2_ce60;

/// In one job of so many workers have little memory for gradients.
const SCARCE_ONE_OF: u64 = 8;

/// Bytes of a gradient, where they count.
const GRADIENT: u64 = 1 << 30;

/// Scrambles a seed for what has to do with small gradients.
const SMALL: u64 = 0x57a2_0000;
/// Two jobs of so many have them, and one some in the middle between small and large.
const SMALL_ONE_OF: u64 = 4;

/// Scrambles a seed for where workers are: chosen so that those of no seed of `corpus.txt` move.
const ONE_HOST: u64 = 0x4ea2_0006;

/// All workers of one job in so many, of those that have large gradients, are on one host.
const ONE_HOST_ONE_OF: u64 = 4;

/// Scrambles a seed for what workers compute on: chosen so that it is processors for each seed of `corpus.txt`.
const DEVICES: u64 = 0xde78_3323;

/// The workers of one job in so many compute on devices.
const DEVICES_ONE_OF: u64 = 3;

/// Scrambles a seed for the order in which gradients are added: chosen so that it is exact for each seed of `corpus.txt`.
const FAST: u64 = 0xfa57_077a;

/// One job in so many adds them in fast order.
const FAST_ONE_OF: u64 = 4;

/// The longest that a state takes from one worker to another.
const SLOWEST_TRANSFER: Duration = Duration::from_secs(3_600);
/// A dead process is seen by its agent after this at most, on such hosts.
const SEEN: Duration = Duration::from_millis(50);

/// How long a task waits for its turn at most on hosts that are busy.
const HELD_UP: Duration = Duration::from_millis(500);

/// Between two faults of any kind, on average, at most: so that an hour has enough of them.
const RAREST: Duration = Duration::from_secs(150);

impl Swarm {
    /// That of a run of so many minutes.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn of_run(seed: u64, minutes: u64) -> Self {
        Self::draw(&mut Dice::new(mix(seed)), seed, minutes)
    }

    pub(crate) fn draw(dice: &mut Dice, seed: u64, minutes: u64) -> Self {
        let swarm = Self::unsaved(dice, minutes);
        // With dice of their own: a job that is not saved goes as it would if there were no such thing.
        let swarm = swarm.saved(&mut Dice::new(mix(seed ^ SAVES)));
        let swarm = Self {
            devices: Dice::new(mix(seed ^ DEVICES)).below(DEVICES_ONE_OF) == 0,
            ..swarm
        };
        let mut dice = Dice::new(mix(seed ^ FAST));
        let swarm = match dice.below(FAST_ONE_OF) {
            0 => swarm.in_fast_order(&mut dice),
            _ => swarm,
        };
        let mut dice = Dice::new(mix(seed ^ HEAVY));
        let swarm = match dice.below(HEAVY_ONE_OF) {
            0 => swarm.heavy(&mut dice),
            _ => swarm,
        };
        let mut dice = Dice::new(mix(seed ^ SCARCE));
        let swarm = match dice.below(SCARCE_ONE_OF) {
            0 => return swarm.scarce(&mut dice),
            _ => swarm,
        };
        let workers = u64::from(swarm.workers);
        match Dice::new(mix(seed ^ SMALL)).below(SMALL_ONE_OF) {
            // One member adds up those of all.
            0 | 2 => swarm.gradients_of(1),
            // All may own two chunks each, if they have few shards.
            1 => Self {
                hosts: Hosts::Apart,
                ..swarm.gradients_of(2 * CHUNK_BYTES as u64 * workers)
            },
            // And all may own chunks of large ones where they share memory.
            _ => match Dice::new(mix(seed ^ ONE_HOST)).below(ONE_HOST_ONE_OF) {
                0 => Self {
                    hosts: Hosts::SharingMemory,
                    ..swarm
                },
                _ => swarm,
            },
        }
    }

    fn in_fast_order(mut self, dice: &mut Dice) -> Self {
        self.order = Order::Fast;
        let every = Duration::from_secs(between(dice, 10, 600));
        self.faults.push((Fault::SumLost, every));
        self
    }

    fn gradients_of(mut self, bytes: u64) -> Self {
        self.memory = GradientMemory::unbounded(bytes);
        self
    }

    /// No worker holds more than a few pieces, whatever it is assigned.
    fn scarce(self, dice: &mut Dice) -> Self {
        let gradients = 1 + dice.below(4) + u64::from(SUMS + KEEP_LEAST);
        let memory = GradientMemory {
            gradient: GRADIENT,
            room: gradients * GRADIENT,
            links: 0,
        };
        // The first member can compute what the others cannot hold: otherwise the job could not go on.
        let capacity = self.capacity.max(self.shards);
        Self {
            memory,
            capacity,
            ..self
        }
    }

    /// The most shards that a worker may have to compute in a step, with as few others as there may be.
    pub(crate) fn most_shards(&self) -> u32 {
        // The first computes what the others cannot hold.
        if self.memory.is_known() {
            return self.shards;
        }
        self.shards.div_ceil(self.min.max(1)).max(1)
    }

    /// How long a step takes, by as many workers as a fleet has.
    pub(crate) fn step(&self) -> Duration {
        self.gradient * self.shards.div_ceil(self.workers.min(self.max)).max(1) + self.apply
    }

    fn saved(mut self, dice: &mut Dice) -> Self {
        let depots = small(dice, 4);
        if depots == 0 {
            return self;
        }
        let hosts = if dice.below(4) == 0 { 2 } else { depots };
        let number = |dice: &mut Dice, most: u64| NonZeroU64::MIN.saturating_add(dice.below(most));
        let every = match dice.below(2) {
            0 => Every::Steps(number(dice, 12)),
            _ => Every::Time(Duration::from_millis(between(dice, 1_000, 120_000))),
        };
        let last = NonZeroU32::MIN.saturating_add(small(dice, 3));
        let keep = Keep {
            last,
            every: (dice.below(3) == 0).then(|| number(dice, 40)),
        };
        self.saves = Some(Saves {
            every,
            replicas: 1 + small(dice, 3),
            keep,
        });
        self.depots = (0..depots).map(|depot| depot % hosts).collect();
        for fault in Fault::of_saves() {
            if dice.below(3) == 0 {
                self.faults.push((fault, Duration::from_secs(between(dice, 10, 600))));
            }
        }
        self
    }

    fn unsaved(dice: &mut Dice, minutes: u64) -> Self {
        let workers = 3 + small(dice, 10);
        let shards = match dice.below(4) {
            0 => workers,
            _ => 1 + small(dice, 24),
        };
        let min = match dice.below(3) {
            0 => 1 + small(dice, u64::from(workers)),
            _ => 1 + small(dice, 3),
        };
        let max = match dice.below(3) {
            0 => 1 + small(dice, u64::from(workers)),
            _ => 64,
        };
        // Now and then memory is scarce, but never so that `min` workers cannot hold K shards.
        let enough = shards.div_ceil(min.min(max));
        let capacity = enough + small(dice, u64::from(shards));
        // A step takes from a fifth of a second to half a minute.
        let step_ms = between(dice, 200, 30_000);
        let each = shards.div_ceil(workers.min(max)).max(1);
        let gradient = Duration::from_millis(step_ms) / each;
        let apply = Duration::from_millis(1 + step_ms / between(dice, 2, 64));
        let transfer = Duration::from_millis(between(dice, 10, 8_000));
        let sum = transfer / u32::try_from(between(dice, 4, 64)).unwrap_or(4);
        // Half of the jobs end while faults still come.
        let whole = minutes * 60_000 / step_ms;
        let steps = match dice.below(2) {
            0 => 1 + dice.below(whole.max(2)),
            _ => whole * 3 + 100,
        };
        Self {
            workers,
            min,
            max,
            shards,
            capacity,
            memory: GradientMemory::unbounded(GRADIENT),
            hosts: Hosts::Mixed,
            steps,
            order: Order::Exact,
            gradient,
            apply,
            devices: false,
            rate: 100 << 20,
            load: apply * 2,
            local: transfer,
            transfer,
            sum,
            keeps: 2 + small(dice, 12),
            network: network(dice),
            restart: Duration::from_millis(between(dice, 100, 30_000)),
            seen: SEEN,
            held_up: HELD_UP,
            sync: Duration::from_millis(between(dice, 1, 500)),
            saves: None,
            writes_stand: true,
            depots: Vec::new(),
            faults: faults(dice),
            balance: match dice.below(2) {
                0 => Balance::Off,
                _ => Balance::default(),
            },
        }
    }
}

fn small(dice: &mut Dice, below: u64) -> u32 {
    u32::try_from(dice.below(below)).unwrap_or(0)
}

/// A number of this range; each power of two is as likely as the next.
pub(crate) fn between(dice: &mut Dice, least: u64, most: u64) -> u64 {
    let doublings = (most / least.max(1)).max(1).ilog2() + 1;
    let low = least << dice.below(u64::from(doublings));
    (low + dice.below(low)).clamp(least, most)
}

fn network(dice: &mut Dice) -> Network {
    let transport = match dice.below(3) {
        0 => Transport::Datagrams,
        _ => Transport::Streams,
    };
    // Loss to 30 in a hundred, replay to 50: more than any network that is still called one.
    let loss = match dice.below(2) {
        0 => 0,
        _ => between(dice, 1, 300),
    };
    let replay = match (transport, dice.below(2)) {
        (Transport::Datagrams, 0) => between(dice, 1, 500),
        (Transport::Datagrams | Transport::Streams, _) => 0,
    };
    Network {
        transport,
        latency: Duration::from_micros(between(dice, 50, 80_000)),
        loss,
        replay,
        cuts: Vec::new(),
    }
}

fn faults(dice: &mut Dice) -> Vec<(Fault, Duration)> {
    let mut chosen: Vec<(Fault, Duration)> = Vec::new();
    // At least one kind is frequent enough to count.
    // In some runs no connection breaks, so that each gradient is counted.
    let kinds = match dice.below(5) {
        0 => Fault::counted(),
        _ => Fault::of_any_job(),
    };
    let frequent = dice.pick(&kinds).unwrap_or(Fault::Kill);
    let often = Duration::from_secs(between(dice, 8, RAREST.as_secs()));
    chosen.push((frequent, often));
    for fault in kinds {
        if fault != frequent && dice.below(3) == 0 {
            chosen.push((fault, Duration::from_secs(between(dice, 10, 1_200))));
        }
    }
    chosen
}
