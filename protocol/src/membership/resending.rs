//! Orders to members, also a second time: what was not answered may have been lost with a connection.

use std::time::Duration;

use super::{Membership, Phase};
use crate::limits::{MAX_WORKERS, RESEND, RESEND_EACH};
use crate::messages::CoordinatorMessage;
use crate::planted::{Bug, bites};
use crate::words::{Rank, WorkerId};

/// Whether an order goes out for the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    First,
    Again,
}

impl Membership {
    pub(super) fn send_form(&mut self, worker: WorkerId, rank: Rank, said: Said) {
        let Some(formation) = &self.formation else { return };
        if let Some(mut form) = formation.form(rank, self.training.next_report) {
            if said == Said::Again && bites(Bug::MorePeersResaid) {
                let next = Rank::new((rank.get() + 1) % form.world_size);
                let others = formation
                    .form(next, self.training.next_report)
                    .map_or(Vec::new(), |next| next.peers);
                let others = others
                    .into_iter()
                    .filter(|peer| peer.rank != rank && form.peer(peer.rank).is_none());
                form.peers.extend(others.collect::<Vec<_>>());
            }
            self.send(worker, CoordinatorMessage::Form(Box::new(form)));
        }
    }

    /// After this long what was not answered is said again.
    pub(super) fn resend_patience(&self) -> Duration {
        RESEND.max(self.telling_all())
    }

    /// So long it takes to tell all members something and to hear their answers.
    pub(super) fn telling_all(&self) -> Duration {
        RESEND_EACH * u32::try_from(self.members.len()).unwrap_or(MAX_WORKERS).min(MAX_WORKERS)
    }

    /// Sends again what was not answered.
    pub(super) fn resend(&mut self) {
        if matches!(self.phase, Phase::Gathering { .. } | Phase::Running { .. } | Phase::Failed) || bites(Bug::NothingResent)
        {
            return;
        }
        let patience = self.resend_patience();
        let due: Vec<(WorkerId, Option<Rank>, bool)> = self
            .members
            .iter()
            .filter(|(_, record)| self.now.saturating_sub(record.asked) >= patience)
            .map(|(&worker, record)| (worker, record.rank, record.is_called()))
            .collect();
        for (worker, rank, called) in due {
            match (&self.phase, rank) {
                (Phase::Halting { .. }, _) if called => {
                    self.send(
                        worker,
                        CoordinatorMessage::Halt {
                            generation: self.generation,
                        },
                    );
                }
                (Phase::Forming { .. }, Some(rank)) if called => self.send_form(worker, rank, Said::Again),
                (Phase::Done, _) => self.complete(worker),
                (Phase::Gathering { .. } | Phase::Halting { .. } | Phase::Forming { .. }, _)
                | (Phase::Running { .. } | Phase::Failed, _) => {}
            }
        }
    }
}
