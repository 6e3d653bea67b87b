//! How an operator ends a job early: the rank that closes the sums says so in a trailer, and all stop at the same boundary.

use std::time::Duration;

use super::roster::Place;
use super::{Membership, Phase, Record, Stop};
use crate::limits::RESEND;
use crate::messages::{CoordinatorMessage, Trailer};
use crate::words::{Step, WorkerId};

impl Membership {
    pub(super) fn stop_requested(&mut self) {
        match self.phase {
            Phase::Forming { .. } | Phase::Running { .. } | Phase::Halting { .. } => {
                self.stop = Stop::Wanted { asked: self.now };
                self.close_with_stop();
            }
            // All that is left to do is to keep the state that is there.
            Phase::Gathering { since, .. } if self.somebody_has_a_state() || self.may_be_missing_a_past(since) => {
                self.stop = Stop::Wanted { asked: self.now };
            }
            Phase::Gathering { .. } => self.stop_in_vain(),
            Phase::Done | Phase::Failed => {}
        }
    }

    /// Whether somebody who is there has a state that is worth being kept: not one that others have left behind.
    fn somebody_has_a_state(&self) -> bool {
        let step = |(worker, record): (&WorkerId, &Record)| match record.place() {
            Place::Joining(_) => self.round.step_of(*worker).unwrap_or(Step::ZERO),
            Place::Quiet(standing) | Place::Left(_, standing) => standing.step,
            Place::Called | Place::Ready | Place::Finished(_) => self.training.reached,
        };
        let least = self.training.oldest_alive().max(Step::new(1));
        self.members.iter().any(|member| step(member) >= least)
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

    /// Whether the job was asked to stop, and those who are there have its state and could not train: they end where they stand, so that it
    /// is kept.
    pub(super) fn stops_where_it_stands(&self) -> bool {
        let has_it = |newest: Step| newest > Step::ZERO && newest >= self.training.oldest_alive();
        // All are looked at only where somebody wants the job to stop.
        self.stop != Stop::No && has_it(self.newest()) && !self.could_train()
    }

    pub(super) fn nothing_is_left_to_train(&self) -> bool {
        (self.training.reached >= self.config.steps && self.newest() == self.config.steps) || self.stops_where_it_stands()
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

    /// Whether the job was asked to stop before it was known that it has never begun: it lacks workers, and has nothing to keep.
    pub(super) fn stops_before_it_begins(&self, since: Duration) -> bool {
        let waits = self.stop != Stop::No && !self.has_begun() && self.generation.count() == 0;
        waits && !self.may_be_missing_a_past(since) && !self.somebody_has_a_state()
    }

    /// Ends a job that waits for workers and has no state that could be kept.
    pub(super) fn stop_in_vain(&mut self) {
        self.fail(self.stopped_in_vain());
    }

    /// Asks the closer again: the first request may have fallen into a broken connection.
    pub(super) fn ask_again_to_stop(&mut self) {
        if let Stop::Wanted { asked } = self.stop
            && self.now.saturating_sub(asked) >= RESEND
        {
            self.stop = Stop::Wanted { asked: self.now };
            self.close_with_stop();
        }
    }
}
