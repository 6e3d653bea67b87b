//! Shards move towards the faster members, so that all finish together. Which member computes a shard never reaches the arithmetic, so this
//! may be done at any boundary, by a plan like any other whose members stay the same.
//!
//! ```text
//!  figures of a worker ──▶ its pace ──▶ the best ranges ──▶ is the slowest done so much earlier? ──▶ Prepare … Switched
//! ```
//! It comes to rest: with paces that stay as they are, the best ranges are as fast as the best ranges. What paces wander by
//! themselves is less than a gain must be.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Membership;
use super::change::Purpose;
use super::formation::Formation;
use crate::assign::Means;
use crate::limits::{
    HEARTBEAT, PACE_AGREES_PERCENT, PACE_FIGURES, REBALANCE_EVERY, REBALANCE_LEAST, REBALANCE_PERCENT, REBALANCE_STEPS,
};
use crate::planted::{Bug, bites};
use crate::words::{Pace, WorkerId};

/// Whether shards move towards faster members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Balance {
    /// They do, when a generation has been as it is for so long.
    After(Calm),
    /// Ranges are as even as memory allows. For jobs in fast order that should repeat: there ranges reach the bits.
    Off,
}

/// How long a generation's ranges stay as they are at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calm {
    /// So long.
    pub time: Duration,
    /// And for so many steps.
    pub steps: u64,
}

impl Default for Balance {
    /// On, with the limits' calm.
    fn default() -> Self {
        Self::After(Calm {
            time: REBALANCE_EVERY,
            steps: REBALANCE_STEPS,
        })
    }
}

/// When the members' ranges of shards were last looked at.
#[derive(Debug)]
pub(super) struct Ranges {
    /// When they last changed, or were last to change for the sake of balance.
    pub(super) settled: Duration,
    /// When it was last looked whether others pay.
    weighed: Duration,
}

impl Ranges {
    /// The ranges of a job that begins at the time `now`.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            settled: now,
            weighed: now,
        }
    }
}

/// What is known of a worker's pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    mean: Pace,
    /// How many figures in a row have agreed.
    agreed: u32,
}

impl Measured {
    /// One more figure after `before`. A running mean, as long as they agree.
    pub(super) fn after(before: Option<Self>, figure: Pace) -> Self {
        let Some(before) = before.filter(|before| before.agrees(figure)) else {
            return Self { mean: figure, agreed: 1 };
        };
        Self {
            mean: Pace::new((before.mean.of(3) + figure.each()) / 4),
            agreed: before.agreed.saturating_add(1),
        }
    }

    fn agrees(self, figure: Pace) -> bool {
        let (low, high) = (self.mean.min(figure), self.mean.max(figure));
        high.of(100 - PACE_AGREES_PERCENT) <= low.of(100)
    }

    pub(super) const fn pace(self) -> Pace {
        self.mean
    }

    /// Whether shards may be moved for it.
    const fn is_certain(self) -> bool {
        self.agreed >= PACE_FIGURES
    }
}

/// Whether it pays to replace ranges that take `now` by ranges that take `then`.
fn pays(now: Duration, then: Duration) -> bool {
    now.saturating_sub(then) >= REBALANCE_LEAST && then * 100 <= now * (100 - REBALANCE_PERCENT)
}

impl Membership {
    /// A worker says how fast it is.
    pub(super) fn paced(&mut self, worker: WorkerId, figure: Pace) {
        if let Some(record) = self.members.get_mut(&worker) {
            record.measured = Some(Measured::after(record.measured, figure));
        }
    }

    /// What a worker has to compute with in a generation where it takes this place.
    pub(super) fn means(&self, place: usize, worker: WorkerId) -> Option<Means> {
        let record = self.members.get(&worker)?;
        let works = place < self.config.max as usize || bites(Bug::MaxIgnored);
        Some(Means {
            capacity: if works { record.capacity } else { 0 },
            pieces: record.memory.pieces(),
            pace: match self.config.balance {
                Balance::After(_) => record.measured.map(Measured::pace),
                Balance::Off => None,
            },
        })
    }

    /// Plans other ranges for the same members, if that pays. Looked at once a heartbeat: there is no news in between.
    pub(super) fn balance(&mut self) {
        let Balance::After(calm) = self.config.balance else { return };
        if self.now.saturating_sub(self.ranges.weighed) < HEARTBEAT.min(calm.time) {
            return;
        }
        self.ranges.weighed = self.now;
        if self.now.saturating_sub(self.ranges.settled) < calm.time || !self.may_plan() || self.changes_anyway() {
            return;
        }
        let Some(formation) = &self.formation else { return };
        let steps = self.training.reached.get().saturating_sub(formation.step.get());
        if steps < calm.steps || !self.is_measured(formation) {
            return;
        }
        let workers: Vec<WorkerId> = formation.workers().collect();
        let means: Vec<Means> = workers
            .iter()
            .enumerate()
            .filter_map(|(place, &worker)| self.means(place, worker))
            .collect();
        if means.len() < workers.len() {
            return;
        }
        if formation
            .slowest(self.config.order, &means)
            .is_some_and(|(now, then)| pays(now, then))
        {
            // Also if nothing comes of it: what cannot be had is not tried again at once.
            self.ranges.settled = self.now;
            self.prepare(workers, Purpose::Balance);
        }
    }

    /// Whether the pace of every member that computes is certain.
    fn is_measured(&self, formation: &Formation) -> bool {
        let mut computing = formation
            .workers()
            .zip(formation.ranges())
            .filter(|(_, shards)| !shards.is_empty());
        computing.all(|(worker, _)| {
            let measured = self.members.get(&worker).and_then(|record| record.measured);
            measured.is_some_and(Measured::is_certain)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::assign::{slowest, steady};
    use crate::job::Order;

    fn micros(micros: u64) -> Pace {
        Pace::new(Duration::from_micros(micros))
    }

    #[test]
    fn a_pace_is_certain_once_some_figures_agree() {
        let told = |figures: &[u64]| {
            figures
                .iter()
                .fold(None, |before, &figure| Some(Measured::after(before, micros(figure))))
        };
        assert!(!told(&[1_000, 1_000, 1_000]).unwrap().is_certain());
        let measured = told(&[1_000, 1_100, 900, 1_000]).unwrap();
        assert!(measured.is_certain());
        assert!((950..1_050).contains(&measured.pace().each().as_micros()), "{measured:?}");
        // It has become four times slower: what was known is forgotten.
        let slower = told(&[1_000, 1_000, 1_000, 1_000, 4_000]).unwrap();
        assert_eq!(slower.pace(), micros(4_000));
        assert!(!slower.is_certain());
        assert!(told(&[10, 10, 10, 10]).unwrap().is_certain());
    }

    #[test]
    fn a_gain_must_be_a_part_and_a_length() {
        let ms = Duration::from_millis;
        assert!(pays(ms(100), ms(90)));
        assert!(!pays(ms(100), ms(91)));
        assert!(!pays(Duration::from_micros(1_500), Duration::from_micros(600)));
        assert!(!pays(ms(10), ms(20)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// What figures wander by 5 % does not move shards, once they lie as the first certain paces say.
        #[test]
        fn ranges_come_to_rest(
            shards in 1_u32..300,
            true_paces in proptest::collection::vec(500_u64..100_000, 2..9),
            noise in proptest::collection::vec(proptest::collection::vec(950_u64..=1_050, 9), 50),
        ) {
            let mut measured = vec![None; true_paces.len()];
            let mut settled = None;
            for round in &noise {
                for ((measured, pace), noise) in measured.iter_mut().zip(&true_paces).zip(round) {
                    *measured = Some(Measured::after(*measured, micros(pace * noise / 1_000)));
                }
                let known: Vec<Measured> = measured.iter().copied().flatten().collect();
                if !known.iter().all(|one| one.is_certain()) {
                    continue;
                }
                let means: Vec<Means> =
                    known.iter().map(|one| Means { capacity: shards, pieces: shards, pace: Some(one.pace()) }).collect();
                let best = steady(Order::Exact, shards, &means).unwrap();
                let settled = settled.get_or_insert_with(|| best.clone());
                let (now, then) = (slowest(settled, &means), slowest(&best, &means));
                prop_assert!(!pays(now, then), "{now:?} with {settled:?}, {then:?} with {best:?}");
            }
            prop_assert!(settled.is_some());
        }
    }
}
