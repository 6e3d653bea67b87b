//! What the coordinator orders of an agent, and how an agent leaves.

use std::time::SystemTime;

use ractor::ActorRef;
use sardana_protocol::limits::MAX_WORKERS;
use sardana_protocol::messages::{AgentMessage, AgentOrder};

use super::AgentEvent;
use super::actor::{Message, State};
use super::away::Mode;
use super::child::Order;
use super::limits::LEAVE_PATIENCE;

impl State {
    pub(super) fn ordered(&mut self, myself: &ActorRef<Message>, order: AgentOrder) {
        match order {
            AgentOrder::JobOver => {
                if self.mode < Mode::Ending {
                    self.mode = Mode::Ending;
                    self.tell(AgentEvent::JobOver);
                }
                // A process may still read the last checkpoint.
                self.parting = self.depot.take().or(self.parting.take());
                self.drop_starts();
            }
            AgentOrder::Kill { worker } => {
                tracing::info!(target: "sardana::event::kill", %worker, "a worker is killed, as an operator wants it, or since it hangs or stands still");
                if let Some(child) = self.children.get(&worker) {
                    // Its task is gone only if it has ended.
                    let _ = child.orders.send(Order::Kill);
                }
            }
            AgentOrder::Start { workers } => self.start_more(myself, workers),
            AgentOrder::Certified { worker, certificate } => self.certified(myself, worker, certificate),
            AgentOrder::DepotCertified { certificate } => self.depot_certified(myself, certificate),
            AgentOrder::Renewed { certificate } => self.certificates.renewed(certificate, SystemTime::now()),
        }
    }

    fn start_more(&mut self, myself: &ActorRef<Message>, workers: u32) {
        let room = MAX_WORKERS.saturating_sub(self.left());
        if self.mode != Mode::Keeping || workers > room {
            tracing::warn!(
                workers,
                room,
                "no more workers are started, although the coordinator wants it"
            );
            return;
        }
        for _ in 0..workers {
            self.start_one_more(myself);
        }
        self.some_failed = false;
        self.tell_of_sharing();
        self.tell(AgentEvent::Grown { left: self.left() });
    }

    /// The children leave at a boundary; a child that has not by [`LEAVE_PATIENCE`] is ended.
    pub(super) fn leave(&mut self, myself: &ActorRef<Message>, reason: String) {
        if self.mode >= Mode::Draining {
            return;
        }
        self.mode = Mode::Draining;
        self.drop_starts();
        if self.reporting.is_connected() {
            self.reporting.report(AgentMessage::Leave { reason });
        } else {
            self.terminate_children();
        }
        drop(myself.send_after(LEAVE_PATIENCE, || Message::EndNow));
    }

    /// The control connection broke, or could not be made.
    pub(super) fn coordinator_lost(&mut self, myself: &ActorRef<Message>, why: &str) {
        match self.mode {
            Mode::Keeping => self.reporting.lost(why, myself),
            Mode::Away => {
                self.reporting.lost(why, myself);
                self.terminate_children();
            }
            // No coordinator is left that could let them leave.
            Mode::Draining => self.terminate_children(),
            Mode::Ending | Mode::Leaving => tracing::debug!(%why, "the agent lost its coordinator after the job"),
        }
    }

    pub(super) fn terminate_children(&self) {
        tracing::warn!(target: "sardana::event::terminate", children = self.children.len(), "no coordinator lets the workers leave: they get SIGTERM");
        for child in self.children.values() {
            // Its task is gone only if it has ended.
            let _ = child.orders.send(Order::Terminate);
        }
    }
}
