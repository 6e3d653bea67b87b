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
    /// When that last changed, or others began to wait for it.
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

    /// From now on others wait for it.
    pub(super) fn waited_for(&mut self, now: Duration) {
        self.moved = now;
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
        if bites(Bug::HangingNotEvicted) {
            return;
        }
        let stalled = match (&self.phase, &self.formation) {
            // What is owed in the step where a generation was adopted only its members know. After a halt it is known.
            (Phase::Running { .. }, Some(formation)) if self.is_where_adopted(formation) => {
                if self.now.saturating_sub(self.advanced) >= STALL_UNKNOWN {
                    self.disturb();
                }
                return;
            }
            (Phase::Running { .. }, Some(formation)) => {
                // Whoever the last switch has left out is to halt, too, and the job does not end without its count.
                // Before all have begun without it, it is not asked whether it has.
                let asked = |worker| self.switching.is_empty() && !self.is_member(worker);
                let left_out = self.stalled_before_halting(self.settled.max(self.advanced), asked);
                [self.stalled_in(formation), left_out].concat()
            }
            (Phase::Halting { since }, _) => self.stalled_before_halting(*since, |_| true),
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

    /// The newest step of its members. Not the newest ever reached: that may be lost, with all who had applied it.
    fn newest_in(&self, formation: &Formation) -> Step {
        let records = formation.workers().filter_map(|worker| self.members.get(&worker));
        records.map(|record| record.work.step).fold(formation.step, Step::max)
    }

    /// Whether it is a generation of an earlier life, still in the step in which this one has adopted it.
    fn is_where_adopted(&self, formation: &Formation) -> bool {
        let adopted = formation.generation.incarnation() < self.generation.incarnation();
        adopted && self.newest_in(formation) == formation.step
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
        let at = self.newest_in(formation);
        // Nothing is computed after the last update; how long an evaluation may take nobody knows.
        let ends = |record: &Record| record.ending().is_some_and(|ending| ending.step == at);
        let is_over = at >= self.config.steps || records().any(|(_, _, record)| ends(record));
        let is_done = |rank: usize, record: &Record| {
            let owes = if is_over { 0 } else { formation.owes(rank, at) };
            record.work.step >= at && record.work.tally.computed_in(at) >= owes
        };
        // Whoever comes to the state first may wait for one that hangs and should hand it over.
        let begins = at == formation.step;
        let waits = |rank: usize, record: &Record| is_done(rank, record) || (begins && formation.catches_up(rank));
        if !records().any(|(rank, _, record)| waits(rank, record)) {
            return Vec::new();
        }
        // Whoever fetches or loads the state first has no pace for that.
        let slowest = records().filter_map(|(_, _, record)| record.pace()).max();
        let patience = |rank: usize, record: &Record| match (record.pace(), slowest) {
            (Some(_), Some(pace)) if !(begins && formation.catches_up(rank)) => STALL_LEAST.max(pace.of(STALL_SHARDS)),
            (Some(_) | None, _) => STALL_UNKNOWN,
        };
        // The first update may be heard of before the last `Ready`.
        let takes_part = |record: &Record| matches!(record.place(), Place::Called | Place::Ready);
        records()
            .filter(|(rank, _, record)| {
                takes_part(record) && (!is_done(*rank, record) || bites(Bug::WaitingCountsAsHanging))
            })
            .map(|(rank, worker, record)| {
                let stood = self.now.saturating_sub(record.work.moved.max(self.advanced));
                (worker, stood, patience(rank, record))
            })
            .filter(|(_, stood, patience)| stood >= patience)
            .map(|(worker, stood, _)| (worker, stood))
            .collect()
    }

    /// An update that is under way ends before a halt is answered; it does not take minutes. Before that ends the gradient that the
    /// training thread is at, though the sum came without it.
    fn stalled_before_halting(&self, since: Duration, is_to: impl Fn(WorkerId) -> bool) -> Vec<(WorkerId, Duration)> {
        let busy = self
            .members
            .iter()
            .filter(|(worker, record)| record.is_busy() && is_to(**worker));
        let patience = |record: &Record| {
            let gradients = record.pace().map_or(Duration::ZERO, |pace| pace.of(STALL_SHARDS));
            HALT_PATIENCE.max(gradients)
        };
        busy.map(|(&worker, record)| (worker, record, self.now.saturating_sub(record.work.moved.max(since))))
            .filter(|(_, record, stood)| *stood >= patience(record))
            .map(|(worker, _, stood)| (worker, stood))
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
