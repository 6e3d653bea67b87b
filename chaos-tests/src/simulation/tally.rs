//! What one run has gone through, in numbers, and what many have.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// The numbers of one run, or the sum of many.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts {
    /// Virtual time with at least three workers.
    #[serde(skip)]
    pub cluster_time: Duration,
    /// Faults by kind.
    #[serde(skip)]
    pub faults: BTreeMap<&'static str, u64>,
    /// Workers that the coordinator wanted killed because they seemed to do nothing.
    #[serde(skip)]
    pub killed: u64,
    /// Messages lost.
    pub messages_lost: u64,
    /// Messages that came once more.
    pub messages_replayed: u64,
    /// Generations that began.
    pub generations: u64,
    /// Steps that some worker was the first to apply.
    pub steps: u64,
    /// Updates applied by workers.
    pub updates: u64,
    /// Gradients computed.
    pub gradients: u64,
    /// How often all holders of the state were gone.
    pub states_lost: u64,
    /// Checkpoints committed.
    pub checkpoints: u64,
    /// Checkpoints given up.
    pub checkpoints_given_up: u64,
    /// Manifests that depots have fetched to more hosts.
    pub manifests_replicated: u64,
    /// How often training began from a checkpoint.
    pub resumed_from_checkpoints: u64,
    /// Events handled.
    pub events: u64,
}

/// What an hour must have seen to count.
const FAULTS_AN_HOUR: u32 = 10;
const GENERATIONS_AN_HOUR: u32 = 10;
const STEPS_AN_HOUR: u32 = 30;

impl Counts {
    pub(crate) fn struck(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// All faults.
    #[must_use]
    pub fn all_faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// The time that counts: only if there were enough faults, generations and steps for it, by the hour.
    #[must_use]
    pub fn counted(&self) -> Duration {
        let hours = self.cluster_time.as_secs_f64() / 3600.0;
        let enough = |found: u64, an_hour: u32| found as f64 >= hours * f64::from(an_hour);
        let counts = enough(self.all_faults(), FAULTS_AN_HOUR)
            && enough(self.generations, GENERATIONS_AN_HOUR)
            && enough(self.steps, STEPS_AN_HOUR);
        if counts { self.cluster_time } else { Duration::ZERO }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.cluster_time += other.cluster_time;
        self.generations += other.generations;
        self.steps += other.steps;
        self.updates += other.updates;
        self.gradients += other.gradients;
        self.messages_lost += other.messages_lost;
        self.messages_replayed += other.messages_replayed;
        self.states_lost += other.states_lost;
        self.checkpoints += other.checkpoints;
        self.manifests_replicated += other.manifests_replicated;
        self.checkpoints_given_up += other.checkpoints_given_up;
        self.resumed_from_checkpoints += other.resumed_from_checkpoints;
        self.killed += other.killed;
        self.events += other.events;
        for (&fault, &times) in &other.faults {
            *self.faults.entry(fault).or_default() += times;
        }
    }
}
