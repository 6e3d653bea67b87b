//! How an operator ends a job early: the rank that closes the sums says so in a trailer, and all stop at the same boundary.

use std::time::Duration;

use super::roster::Place;
use super::{Membership, Phase, Record, Stop};
use crate::limits::RESEND;
use crate::messages::{CoordinatorMessage, Trailer};
use crate::planted::{Bug, bites};
use crate::status::Stage;
use crate::words::Step;

impl Membership {
    pub(super) fn stop_requested(&mut self) {
        if self.is_group() && self.stage() != Stage::Done {
            let forgets = matches!(self.phase, Phase::Forming { .. }) && bites(Bug::StopForgotten);
            // It ends as soon as it is known what an earlier life has left.
            if !forgets {
                self.stop = Stop::Wanted { asked: self.now };
            }
            return;
        }
        match self.phase {
            Phase::Forming { .. } | Phase::Running { .. } | Phase::Halting { .. } => {
                self.stop = Stop::Wanted { asked: self.now };
                self.close_with_stop();
            }
            // All that is left to do is to keep the state that is there.
            Phase::Gathering { since, .. } if self.state_may_be_here() || self.may_be_missing_a_past(since) => {
                self.stop = Stop::WantedWhileWaiting;
            }
            Phase::Gathering { .. } => self.stop_in_vain(),
            Phase::Done | Phase::Failed => {}
        }
    }

    /// Whether a worker that is connected may have a state that is worth being kept: not one that others have left behind. What a worker
    /// has that has not halted, a joiner as well, is not known: it may have followed the others further than it has said.
    fn state_may_be_here(&self) -> bool {
        let step = |record: &Record| match record.place() {
            Place::Quiet(standing) | Place::Left(_, standing) => standing.step,
            Place::Called | Place::Ready | Place::Finished(_) | Place::Joining(_) => self.training.reached,
        };
        let least = self.training.oldest_alive().max(Step::new(1));
        self.members.values().any(|record| step(record) >= least)
    }

    /// Why a job that waits for workers cannot stop in good order, and what is lost.
    fn stopped_in_vain(&self) -> String {
        let reason = "stopped while the job waited for workers";
        let (reached, kept) = (self.training.reached, self.checkpoints.newest_usable());
        if reached == Step::ZERO {
            return reason.to_owned();
        }
        let kept = if kept == Step::ZERO {
            "no checkpoint is there".to_owned()
        } else {
            format!("the newest checkpoint is of {kept}")
        };
        format!("{reason}; none that has the state at {reached} is connected, and {kept}")
    }

    /// Whether the job was asked to stop, and the workers that are there have its state and could not train: they end where they stand, so
    /// that it is kept.
    pub(super) fn stops_where_it_stands(&self) -> bool {
        let has_it = |newest: Step| newest > Step::ZERO && newest >= self.training.oldest_alive();
        // All are looked at only where an operator wants the job to stop.
        self.stop != Stop::No && has_it(self.newest()) && !self.could_train()
    }

    pub(super) fn nothing_is_left_to_train(&self) -> bool {
        // All are looked at only where the last step was reached, which a group has not.
        let is_last = !self.is_group() && self.training.reached >= self.config.steps;
        (is_last && self.newest() == self.config.steps) || self.stops_where_it_stands()
    }

    fn could_train(&self) -> bool {
        let candidates = self.candidates();
        candidates.len() >= self.config.min.max(1) as usize && self.room_of(&candidates) >= u64::from(self.config.shards)
    }

    pub(super) fn close_with_stop(&mut self) {
        let Some(formation) = self
            .formation
            .as_ref()
            .filter(|_| matches!(self.phase, Phase::Running { .. }))
        else {
            return;
        };
        if let (Some(closer), None) = (formation.closer(), formation.stop_at()) {
            self.send(
                closer,
                CoordinatorMessage::CloseWith {
                    generation: self.formed,
                    trailer: Trailer::Stop,
                },
            );
        }
    }

    /// Whether the job was asked to stop while it lacked workers, and has nothing to keep: no worker is connected, or about to come back,
    /// that may have its state. One that was asked earlier goes on from a checkpoint once there are workers.
    pub(super) fn has_nothing_to_keep(&self, since: Duration) -> bool {
        let may_be_kept = || self.may_be_missing_a_past(since) || self.state_may_be_here() || self.holder_may_return();
        self.stop == Stop::WantedWhileWaiting && !may_be_kept()
    }

    /// Whether the job was asked to stop, and only a joiner may have its state: it halts, to say what it has.
    pub(super) fn asks_joiners(&self) -> bool {
        let is_kept = || self.newest() >= self.training.oldest_alive().max(Step::new(1));
        self.stop != Stop::No && self.members.joining().next().is_some() && !is_kept()
    }

    /// Ends a job that waits for workers and has no state that could be kept.
    pub(super) fn stop_in_vain(&mut self) {
        self.fail(self.stopped_in_vain());
    }

    /// Asks the closer again: the first request may have fallen into a broken connection.
    pub(super) fn ask_again_to_stop(&mut self) {
        let due = match self.stop {
            Stop::No => false,
            Stop::Wanted { asked } => self.now.saturating_sub(asked) >= RESEND,
            Stop::WantedWhileWaiting => matches!(self.phase, Phase::Running { .. }),
        };
        if due {
            self.stop = Stop::Wanted { asked: self.now };
            self.close_with_stop();
        }
    }
}
