//! Who counts as dead because nothing is heard of it, and who because it lives and does nothing while the others wait for it.
//!
//! How long a silence may be follows from the worker's own beats: on a calm machine a gap of a few beats says much, on a busy one
//! little. A stall is judged by what a worker has computed, never by the clock of a step: the longest gradient is nobody's fault.

use std::time::Duration;

use super::formation::Formation;
use super::roster::Place;
use super::{Command, Loss, Membership, Phase, Record, Stage};
use crate::limits::{
    DEAF, HALT_PATIENCE, HEARTBEAT, PULSE_BEATS, SILENCE, SILENCE_GAPS, SILENCE_LEAST, SILENCE_MOST, STALL_LEAST,
    STALL_SHARDS, STALL_UNKNOWN,
};
use crate::messages::Tally;
use crate::planted::{Bug, bites};
use crate::words::{Step, WorkerId};

/// How regularly a worker is heard of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pulse {
    beats: u32,
    /// The longest gap; shorter ones wear it down.
    longest: Duration,
}

impl Pulse {
    /// It is heard of, so long after the last time.
    pub(super) fn beat(&mut self, gap: Duration) {
        self.beats = self.beats.saturating_add(1);
        self.longest = match self.longest.checked_sub(gap) {
            Some(less) => self.longest.saturating_sub(less / 64),
            None => gap,
        };
    }

    /// After this long without a word it counts as dead.
    pub(super) fn patience(self) -> Duration {
        if self.beats < PULSE_BEATS {
            return SILENCE;
        }
        (self.longest.max(HEARTBEAT) * SILENCE_GAPS).clamp(SILENCE_LEAST, SILENCE_MOST)
    }
}

/// What a worker was last known to have computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    tally: Tally,
    step: Step,
    /// When that last changed.
    moved: Duration,
}

impl Work {
    /// A worker that comes at `now`.
    pub(super) fn at(now: Duration) -> Self {
        Self {
            moved: now,
            ..Self::default()
        }
    }

    /// It says where it stands.
    pub(super) fn told(&mut self, step: Step, tally: Tally, now: Duration) {
        if (self.step, self.tally) != (step, tally) {
            *self = Self { tally, step, moved: now };
        }
    }
}

impl Membership {
    /// A coordinator that was held up itself has not listened: that is no silence of others.
    pub(super) fn mind_the_clock(&mut self) {
        let late = self.now.saturating_sub(self.ticked).saturating_sub(DEAF);
        self.ticked = self.now;
        if late > Duration::ZERO {
            for record in self.members.values_mut() {
                record.heard = (record.heard + late).min(self.now);
                record.work.moved = (record.work.moved + late).min(self.now);
            }
            self.advanced = (self.advanced + late).min(self.now);
        }
    }

    /// Leaves out who said nothing for too long. Silent heartbeats evict nobody while the generation's steps advance.
    pub(super) fn evict_silent(&mut self) {
        if self.stage() == Stage::Done {
            return;
        }
        let advanced = self.advanced_if_running();
        let silent: Vec<(WorkerId, Duration)> = self
            .members
            .iter()
            .filter(|(worker, record)| {
                // Nobody waits for a joiner, nor for one that was left out, so that no progress speaks for it.
                let since = if record.joining().is_some() || self.lingers(**worker, record) {
                    record.heard
                } else {
                    record
                        .heard
                        .max(if bites(Bug::SilentEvicted) { Duration::ZERO } else { advanced })
                };
                self.now.saturating_sub(since) >= record.pulse.patience()
            })
            .map(|(&worker, record)| (worker, self.now.saturating_sub(record.heard)))
            .collect();
        for (worker, silence) in silent {
            self.evict(worker, Loss::Silent { silence });
        }
    }

    fn advanced_if_running(&self) -> Duration {
        match self.phase {
            Phase::Running { .. } => self.advanced,
            Phase::Gathering { .. } | Phase::Halting { .. } | Phase::Forming { .. } | Phase::Done | Phase::Failed => {
                Duration::ZERO
            }
        }
    }

    /// Leaves out who says that it lives and does nothing, while others wait for it.
    pub(super) fn evict_stalled(&mut self) {
        let stalled = match (&self.phase, &self.formation) {
            (Phase::Running { .. }, Some(formation)) => self.stalled_in(formation),
            (Phase::Halting { since }, _) => self.stalled_before_halting(*since),
            (Phase::Running { .. } | Phase::Gathering { .. } | Phase::Forming { .. } | Phase::Done | Phase::Failed, _) => {
                Vec::new()
            }
        };
        for (worker, stood) in stalled {
            // Its agent starts another in its place.
            self.out.push(Command::Kill { worker });
            self.evict(worker, Loss::Stalled { stood });
        }
    }

    /// Those whose gradients or update the others lack, and who have not moved for much longer than a gradient takes.
    fn stalled_in(&self, formation: &Formation) -> Vec<(WorkerId, Duration)> {
        if self.now.saturating_sub(self.advanced) < STALL_LEAST {
            return Vec::new();
        }
        let records = || {
            let members = formation.workers().enumerate();
            members.filter_map(|(rank, worker)| Some((rank, worker, self.members.get(&worker)?)))
        };
        let is_done = |rank: usize, record: &Record| {
            let owes = formation.owes(rank, self.reached);
            record.work.step >= self.reached && record.work.tally.computed_in(self.reached) >= owes
        };
        if !records().any(|(rank, _, record)| is_done(rank, record)) {
            return Vec::new();
        }
        // Whoever fetches or loads the state first has no pace for that.
        let slowest = records().filter_map(|(_, _, record)| record.pace()).max();
        let begins = self.reached == formation.step;
        let patience = |rank: usize, record: &Record| match (record.pace(), slowest) {
            (Some(_), Some(pace)) if !(begins && formation.catches_up(rank)) => STALL_LEAST.max(pace.of(STALL_SHARDS)),
            (Some(_) | None, _) => STALL_UNKNOWN,
        };
        records()
            .filter(|(rank, _, record)| matches!(record.place, Place::Ready) && !is_done(*rank, record))
            .map(|(rank, worker, record)| {
                let stood = self.now.saturating_sub(record.work.moved.max(self.advanced));
                (worker, stood, patience(rank, record))
            })
            .filter(|(_, stood, patience)| stood >= patience)
            .map(|(worker, stood, _)| (worker, stood))
            .collect()
    }

    /// An update that is under way ends before a halt is answered; it does not take minutes.
    fn stalled_before_halting(&self, since: Duration) -> Vec<(WorkerId, Duration)> {
        let busy = self.members.iter().filter(|(_, record)| record.is_busy());
        busy.map(|(&worker, record)| (worker, self.now.saturating_sub(record.work.moved.max(since))))
            .filter(|(_, stood)| *stood >= HALT_PATIENCE)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_beats_of_a_worker() {
        let after = |gaps: &[u64]| {
            let mut pulse = Pulse::default();
            gaps.iter().for_each(|&gap| pulse.beat(Duration::from_millis(gap)));
            pulse.patience()
        };
        assert_eq!(after(&[500; 3]), SILENCE, "too few to judge by");
        assert_eq!(after(&[20; 100]), SILENCE_LEAST, "a calm machine");
        assert_eq!(
            after(&[&[500; 99][..], &[1_200]].concat()),
            Duration::from_millis(1_200) * SILENCE_GAPS
        );
        assert_eq!(after(&[&[500; 99][..], &[4_000]].concat()), SILENCE_MOST, "a busy machine");
        assert_eq!(
            after(&[&[4_000][..], &[100; 1_000]].concat()),
            SILENCE_LEAST,
            "it has become calm"
        );
    }
}
