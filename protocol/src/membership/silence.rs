//! Which workers are left out: those that nothing is heard of, those that their agent sees stand still, and those that live and do nothing
//! while the others wait for them.
//!
//! How long a silence may be follows from the worker's own beats: on a calm machine a gap of a few beats says much, on a busy one
//! little. A stall is judged by what a worker has computed, or moved of the state that it comes to, never by the clock of a step: the
//! longest gradient is no worker's fault, nor is the largest state.

use std::time::Duration;

use super::formation::Formation;
use super::roster::Place;
use super::{Command, Loss, Membership, Phase, Record, Stage};
use crate::limits::{
    DEAF, HALT_PATIENCE, HEARTBEAT, LOAD_MOST, MOVED_LEAST, PULSE_BEATS, SILENCE, SILENCE_GAPS, SILENCE_LEAST, SILENCE_MOST,
    STALL_LEAST, STALL_SHARDS, STALL_UNKNOWN, STOPPED_GRACE,
};
use crate::messages::{Motion, Tally};
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

/// What a worker was last known to have computed and moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    tally: Tally,
    step: Step,
    /// When that last changed, or others began to wait for it.
    worked: Duration,
    /// Bytes that it had told of when it last was further by enough of them.
    bytes: u64,
    /// When that was.
    moved: Duration,
}

impl Work {
    /// A worker that comes at `now`.
    pub(super) fn at(now: Duration) -> Self {
        Self {
            worked: now,
            moved: now,
            ..Self::default()
        }
    }

    /// Where it stands.
    pub(super) const fn step(&self) -> Step {
        self.step
    }

    /// From now on others wait for it.
    pub(super) fn waited_for(&mut self, now: Duration) {
        (self.worked, self.moved) = (now, now);
    }

    /// It says where it stands, and how many bytes it has moved.
    pub(super) fn told(&mut self, step: Step, tally: Tally, bytes: u64, now: Duration) {
        if (self.step, self.tally) != (step, tally) {
            (self.step, self.tally, self.worked) = (step, tally, now);
        }
        if bytes.saturating_sub(self.bytes) >= MOVED_LEAST && !bites(Bug::LoadingNotSeen) {
            (self.bytes, self.moved) = (bytes, now);
        }
    }

    /// The coordinator has not listened for so long.
    fn forgive(&mut self, late: Duration, now: Duration) {
        self.worked = (self.worked + late).min(now);
        self.moved = (self.moved + late).min(now);
    }

    /// For how long it has done nothing since `since`, when others began to wait for it.
    fn stood(&self, since: Duration, now: Duration) -> Duration {
        now.saturating_sub(self.worked.max(since))
    }

    /// The same for a worker that comes to the state. What it, or its donor, says to have moved is believed for so long.
    fn stood_loading(&self, donor: Option<&Self>, since: Duration, now: Duration) -> Duration {
        let (stood, moved) = (
            self.stood(since, now),
            donor.map_or(self.moved, |donor| self.moved.max(donor.moved)),
        );
        if stood >= LOAD_MOST {
            stood
        } else {
            stood.min(now.saturating_sub(moved))
        }
    }
}

/// How the machine is told that time passes.
#[derive(Debug)]
pub(super) struct Ticks {
    /// When it was last told.
    last: Duration,
    /// Whether that is what it is told now.
    pub(super) ticking: bool,
    /// Whether what it is told now may end a job whose members have all finished.
    pub(super) may_end: bool,
}

impl Ticks {
    /// From the time `now` on.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            last: now,
            ticking: false,
            may_end: false,
        }
    }
}

impl Membership {
    /// A coordinator that was held up itself has not listened: that is no silence of others.
    pub(super) fn mind_the_clock(&mut self) {
        let late = self.now.saturating_sub(self.ticks.last).saturating_sub(DEAF);
        self.ticks.last = self.now;
        if late > Duration::ZERO {
            for record in self.members.values_mut() {
                record.heard = (record.heard + late).min(self.now);
                record.work.forgive(late, self.now);
                // Its agent may have said since that it goes on.
                record.stopped = record.stopped.map(|_| self.now);
                if let Some(ahead) = &mut record.ahead {
                    ahead.later(late, self.now);
                }
            }
            self.training.advanced = (self.training.advanced + late).min(self.now);
        }
    }

    /// Leaves out workers that said nothing for too long. Silent heartbeats evict no worker while the generation's steps advance.
    pub(super) fn evict_silent(&mut self) {
        if self.stage() == Stage::Done {
            return;
        }
        let advanced = self.advanced_if_running();
        let silent: Vec<(WorkerId, Duration)> = self
            .members
            .iter()
            .filter(|(worker, record)| {
                // No member waits for a joiner, nor for one that was left out, so that no progress speaks for it.
                let since = if record.joins() || self.lingers(**worker, record) {
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

    /// The agent of a worker sees that its process stands still, or goes on.
    pub(super) fn moves(&mut self, worker: WorkerId, motion: Motion) {
        if let Some(record) = self.members.get_mut(&worker) {
            record.stopped = match motion {
                Motion::Runs => None,
                Motion::Stopped => Some(record.stopped.unwrap_or(self.now)),
            };
        }
    }

    /// Leaves out a worker that is seen to stand still, and has it ended: whatever wakes it later, it must begin anew. Where no other
    /// member moves it is only silent, as they all are: an operator may have stopped the whole job, and let it go on soon.
    pub(super) fn evict_stopped(&mut self) {
        let another = |record: &Record| record.stopped.is_none() && !record.joins();
        if self.stage() == Stage::Done || !self.members.values().any(another) {
            return;
        }
        // What was said after its agent saw it stop came from a process that goes on: the agent has yet to say so.
        let stood = |record: &Record| Some(self.now.saturating_sub(record.stopped?.max(record.heard)));
        let stopped = self
            .members
            .iter()
            .filter_map(|(&worker, record)| Some((worker, stood(record)?)));
        for (worker, stood) in stopped.filter(|(_, stood)| *stood >= STOPPED_GRACE).collect::<Vec<_>>() {
            self.out.push(Command::Kill { worker });
            self.evict(worker, Loss::Stopped { stood });
        }
    }

    fn advanced_if_running(&self) -> Duration {
        let running = matches!(self.phase, Phase::Running { .. });
        if running { self.training.advanced } else { Duration::ZERO }
    }

    /// Leaves out a worker that is heard of and does nothing, while others wait for it.
    pub(super) fn evict_stalled(&mut self) {
        if bites(Bug::HangingNotEvicted) {
            return;
        }
        let stalled = match (&self.phase, &self.formation) {
            // What is owed in the step where a generation was adopted only its members know. After a halt it is known.
            (Phase::Running { .. }, Some(formation)) if self.is_where_adopted(formation) => {
                if self.now.saturating_sub(self.training.advanced) >= STALL_UNKNOWN {
                    self.disturb();
                }
                return;
            }
            // All of them halt: a member that hangs in its update does not, and is left out then.
            (Phase::Running { .. }, Some(formation)) if self.may_lack_a_sum(formation) => return self.disturb(),
            (Phase::Running { .. }, Some(formation)) => {
                // A member that the last switch has left out is to halt, too, and the job does not end without its count.
                // Before all have begun without it, it is not asked whether it has.
                let asked = |worker| self.change.switching.is_empty() && !self.is_member(worker);
                let left_out = self.stalled_before_halting(self.ranges.settled.max(self.training.advanced), asked);
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

    /// The newest step of its members. Not the newest ever reached: that may be lost, with all members that had applied it.
    fn newest_in(&self, formation: &Formation) -> Step {
        let records = formation.workers().filter_map(|worker| self.members.get(&worker));
        records.map(|record| record.work.step).fold(formation.step, Step::max)
    }

    /// Whether it is a generation of an earlier life, still in the step in which this one has adopted it.
    fn is_where_adopted(&self, formation: &Formation) -> bool {
        let adopted = formation.generation.incarnation() < self.generation.incarnation();
        adopted && self.newest_in(formation) == formation.step
    }

    /// Members whose gradients or update the others lack, and that have not moved for much longer than a gradient takes.
    fn stalled_in(&self, formation: &Formation) -> Vec<(WorkerId, Duration)> {
        if self.now.saturating_sub(self.training.advanced) < STALL_LEAST {
            return Vec::new();
        }
        let records = || {
            let members = formation.workers().enumerate();
            members.filter_map(|(rank, worker)| Some((rank, worker, self.members.get(&worker)?)))
        };
        let at = self.newest_in(formation);
        // Nothing is computed after the last update; how long an evaluation may take is not known.
        let ends = |record: &Record| record.ending().is_some_and(|ending| ending.step == at);
        let is_over = at >= self.config.steps || records().any(|(_, _, record)| ends(record));
        let is_done = |rank: usize, record: &Record| {
            let owes = if is_over { 0 } else { formation.owes(rank, at) };
            record.work.step >= at && record.work.tally.computed_in(at) >= owes
        };
        // A worker that comes to the state first may wait for a donor that hangs.
        let begins = at == formation.step;
        let waits = |rank: usize, record: &Record| is_done(rank, record) || (begins && formation.catches_up(rank));
        if !records().any(|(rank, _, record)| waits(rank, record)) {
            return Vec::new();
        }
        let slowest = records().filter_map(|(_, _, record)| record.pace()).max();
        let stands = |rank: usize, record: &Record| {
            // A worker that fetches or loads the state first has no pace for that.
            if begins && formation.catches_up(rank) {
                let donor = formation.donor(rank).and_then(|donor| self.members.get(&donor));
                let stood = record
                    .work
                    .stood_loading(donor.map(|donor| &donor.work), self.training.advanced, self.now);
                return (stood, STALL_UNKNOWN);
            }
            let patience = match (record.pace(), slowest) {
                (Some(_), Some(_)) if bites(Bug::PaceIgnored) => STALL_LEAST,
                (Some(_), Some(pace)) => STALL_LEAST.max(pace.of(STALL_SHARDS)),
                (Some(_) | None, _) => STALL_UNKNOWN,
            };
            (record.work.stood(self.training.advanced, self.now), patience)
        };
        // The first update may be heard of before the last `Ready`.
        let takes_part = |record: &Record| matches!(record.place(), Place::Called | Place::Ready);
        records()
            .filter(|(rank, _, record)| {
                takes_part(record) && (!is_done(*rank, record) || bites(Bug::WaitingCountsAsHanging))
            })
            .map(|(rank, worker, record)| (worker, stands(rank, record)))
            .filter(|(_, (stood, patience))| stood >= patience)
            .map(|(worker, (stood, _))| (worker, stood))
            .collect()
    }

    /// Whether the members that stand still are several, a step behind, and have computed all that they owe: then they wait for a sum that
    /// another member has and cannot pass on, as several do not hang in one update.
    fn may_lack_a_sum(&self, formation: &Formation) -> bool {
        let stalled = self.stalled_in(formation);
        let at = self.newest_in(formation);
        let lacks = |worker: WorkerId| {
            let record = self.members.get(&worker).filter(|record| record.work.step.next() == at);
            let owes = formation
                .rank_of(worker)
                .map(|rank| formation.owes(rank.index(), at.previous().unwrap_or(at)));
            record
                .zip(owes)
                .is_some_and(|(record, owes)| record.work.tally.computed_in(record.work.step) >= owes)
        };
        stalled.len() > 1 && stalled.iter().all(|&(worker, _)| lacks(worker))
    }

    /// An update that is under way ends before a halt is answered; it does not take minutes. Before that ends the gradient that the
    /// training thread is at, though the sum came without it.
    fn stalled_before_halting(&self, since: Duration, is_to: impl Fn(WorkerId) -> bool) -> Vec<(WorkerId, Duration)> {
        let busy = self
            .members
            .iter()
            .filter(|(worker, record)| record.is_busy() && is_to(**worker));
        let stands = |worker: WorkerId, record: &Record| {
            if self.may_load(worker, record) {
                return (record.work.stood_loading(None, since, self.now), STALL_UNKNOWN);
            }
            let gradients = record.pace().map_or(Duration::ZERO, |pace| pace.of(STALL_SHARDS));
            (record.work.stood(since, self.now), HALT_PATIENCE.max(gradients))
        };
        busy.map(|(&worker, record)| (worker, stands(worker, record)))
            .filter(|(_, (stood, patience))| stood >= patience)
            .map(|(worker, (stood, _))| (worker, stood))
            .collect()
    }

    /// Whether a worker may be loading a state: one that has never been a member, or that was to come to the state first and has not said
    /// that it computes with it.
    fn may_load(&self, worker: WorkerId, record: &Record) -> bool {
        let Some(rank) = record.rank else { return true };
        let seat = self
            .formation
            .as_ref()
            .filter(|formation| formation.rank_of(worker) == Some(rank));
        let at_work = |step: Step| record.work.step > step || record.work.tally.computed_in(step) > 0;
        seat.is_some_and(|formation| formation.catches_up(rank.index()) && !at_work(formation.step))
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
