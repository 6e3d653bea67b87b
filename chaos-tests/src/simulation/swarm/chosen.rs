//! Jobs whose circumstances are chosen for one purpose, and drawn where they do not matter to it.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use sardana_protocol::checkpoint::{Every, Keep};
use sardana_protocol::membership::{Balance, Saves};

use super::{SLOWEST_TRANSFER, Swarm, between, small};
use crate::dice::Dice;
use crate::simulation::faults::Fault;
use crate::simulation::hostile;
use crate::simulation::network::Transport;

impl Swarm {
    /// A job of so many workers that is saved to so many depots, on healthy hosts, and so small that workers that lie come to its end.
    pub(crate) fn besieged(dice: &mut Dice, workers: u32, steps: u64, depots: u32) -> Self {
        let swarm = Self::healthy(dice, workers);
        let (shards, max) = (8, 5);
        let swarm = Self {
            min: 1 + small(dice, u64::from(workers.min(max))),
            max,
            shards,
            capacity: shards,
            steps,
            saves: Some(hostile::saves()),
            depots: (0..depots).collect(),
            ..swarm
        };
        match dice.below(2) {
            0 => swarm.scarce(dice),
            _ => swarm,
        }
    }

    /// With a worker that is killed every few steps, and returns.
    pub(crate) fn losing_workers(self) -> Self {
        let step = self.gradient * self.shards / self.workers.max(1) + self.apply;
        let faults = vec![(Fault::Kill, step * 4)];
        Self { faults, ..self }
    }

    /// A state of 12 to 100 GiB, over links of 20 MiB to 1 Gbit a second. Between faults there is sometimes time to move it.
    pub(crate) fn heavy(mut self, dice: &mut Dice) -> Self {
        let (gib, mib_a_second) = (between(dice, 12, 100), between(dice, 20, 119));
        self.transfer = Duration::from_millis(gib * 1_024 * 1_000 / mib_a_second).min(SLOWEST_TRANSFER);
        self.rate = mib_a_second << 20;
        self.sum = self.transfer / (3 + small(dice, 10));
        self.local = Duration::from_secs(gib);
        self.load = Duration::from_secs(2 * gib);
        for (_, gap) in &mut self.faults {
            *gap += self.transfer * small(dice, 4);
        }
        self
    }

    /// A job of so many workers that is saved, on healthy hosts, and has no end.
    pub(crate) fn healthy(dice: &mut Dice, workers: u32) -> Self {
        let swarm = Self::preempted(dice);
        Self { workers, ..swarm }
    }

    /// A job with a large state, on slow links and healthy hosts, that is saved, and has no end.
    pub(crate) fn of_a_large_state(dice: &mut Dice) -> Self {
        let swarm = Self::preempted(dice);
        let mut swarm = Self {
            workers: 2 + small(dice, 6),
            ..swarm
        }
        .heavy(dice);
        // Its sums are as large: no member keeps many.
        swarm.keeps = 2 + small(dice, 4);
        swarm
    }

    /// A job that is saved on healthy hosts, and has no end. Its faults come from elsewhere.
    pub(crate) fn preempted(dice: &mut Dice) -> Self {
        let mut swarm = Self::unsaved(dice, 1);
        swarm.workers = swarm.workers.max(4);
        (swarm.min, swarm.max, swarm.capacity) = (1, 64, swarm.shards);
        swarm.steps = u64::MAX >> 1;
        swarm.restart = Duration::from_secs(2);
        swarm.network.transport = Transport::Streams;
        (swarm.network.latency, swarm.network.loss, swarm.network.replay) = (swarm.network.latency / 8, 0, 0);
        swarm.faults.clear();
        swarm.writes_stand = false;
        let replicas = 1 + small(dice, 2);
        swarm.saves = Some(Saves {
            every: Every::Steps(NonZeroU64::MIN.saturating_add(dice.below(8))),
            replicas,
            keep: Keep {
                last: NonZeroU32::MIN,
                every: None,
            },
        });
        swarm.depots = vec![0, 1];
        swarm
    }

    /// A small job on hosts that have little to do, and next to each other; it has no end. Its faults come from elsewhere.
    pub(crate) fn churned(dice: &mut Dice) -> Self {
        let mut swarm = Self::unsaved(dice, 1);
        (swarm.workers, swarm.min, swarm.max, swarm.shards, swarm.capacity) = (4, 1, 64, 8, 8);
        swarm.steps = u64::MAX >> 1;
        (swarm.gradient, swarm.apply) = (Duration::from_micros(2_500), Duration::from_micros(200));
        (swarm.transfer, swarm.sum, swarm.keeps) = (Duration::from_millis(5), Duration::from_millis(1), 16);
        (swarm.load, swarm.local) = (swarm.apply * 2, swarm.transfer);
        swarm.restart = Duration::from_millis(150);
        (swarm.seen, swarm.held_up) = (Duration::from_millis(5), Duration::from_micros(100));
        swarm.network.transport = Transport::Streams;
        (swarm.network.latency, swarm.network.loss, swarm.network.replay) = (Duration::from_micros(100), 0, 0);
        swarm.balance = Balance::Off;
        swarm.faults.clear();
        swarm
    }
}
