//! How an operator ends a job early: the rank that closes the sums says so in a trailer, and all stop at the same boundary.

use super::{Membership, Phase, Stop};
use crate::limits::RESEND;
use crate::messages::{CoordinatorMessage, Trailer};

impl Membership {
    pub(super) fn stop_requested(&mut self) {
        match self.phase {
            Phase::Forming { .. } | Phase::Running { .. } | Phase::Halting { .. } => {
                self.stop = Stop::Wanted { asked: self.now };
                self.close_with_stop();
            }
            Phase::Gathering { .. } => self.fail("stopped while the job waited for workers".to_owned()),
            Phase::Done | Phase::Failed => {}
        }
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
