//! How an agent's workers go away because of a notice, and come back when it is withdrawn.

use std::time::Duration;

use ractor::ActorRef;
use sardana_protocol::messages::AgentMessage;
use tokio::sync::oneshot;

use super::AgentEvent;
use super::actor::{Message, State};
use super::child::Order;
use super::limits::LEAVE_PATIENCE;
use super::notices::NoticeOrder;

/// What the agent does with its children. From `Away` it may come back to `Keeping`; else it only goes on from one to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// Children that end badly are replaced.
    Keeping,
    /// The machine may go away: children leave at a boundary, and none is started. The agent stays.
    Away,
    /// The job is over: children end, none is started.
    Ending,
    /// The agent was asked to leave: children leave at a boundary, and it ends with its last.
    Draining,
    /// The agent ends with its last child.
    Leaving,
}

/// The last time that the workers went away, if they ever did.
#[derive(Debug, Default)]
pub(super) struct Absence {
    /// Counts them.
    number: u64,
    /// Why the workers are to leave.
    reason: String,
    /// How many workers there were before.
    wanted: u32,
    /// Where the watch is told, once, when the last worker has left.
    waiting: Vec<oneshot::Sender<()>>,
}

impl Absence {
    /// How many workers are to be there once it is over.
    pub(super) const fn wanted(&self) -> u32 {
        self.wanted
    }
}

impl State {
    pub(super) fn noticed(&mut self, myself: &ActorRef<Message>, order: NoticeOrder) {
        match order {
            NoticeOrder::Say(said) => self.tell(AgentEvent::Notice(said)),
            NoticeOrder::Drain { reason, within, drained } => self.go_away(myself, reason, within, drained),
            NoticeOrder::Return { reason } => self.come_back(myself, reason),
        }
    }

    /// The children leave at a boundary; a child that has not `within` that time is killed. The agent stays. Said again, it only means
    /// that there is less time.
    fn go_away(
        &mut self,
        myself: &ActorRef<Message>,
        reason: String,
        within: Option<Duration>,
        drained: oneshot::Sender<()>,
    ) {
        if self.mode > Mode::Away {
            // They end anyway.
            return;
        }
        self.absence.waiting.push(drained);
        if self.mode == Mode::Keeping {
            self.absence.number += 1;
            self.absence.reason.clone_from(&reason);
            // Some workers of the last absence may still be on their way out: then those that took their places are not counted yet.
            let returning = self.children.values().any(|child| child.leaving);
            self.absence.wanted = if returning { self.absence.wanted } else { self.left() };
            self.mode = Mode::Away;
            for child in self.children.values_mut() {
                child.leaving = true;
            }
            self.drop_starts();
            let connected = self.reporting.is_connected();
            self.reporting.report(AgentMessage::Leave { reason });
            if !connected {
                self.terminate_children();
            }
        }
        let absence = self.absence.number;
        drop(myself.send_after(within.unwrap_or(LEAVE_PATIENCE), move || Message::LeaveNow { absence }));
    }

    /// As many workers are started again as there were.
    fn come_back(&mut self, myself: &ActorRef<Message>, reason: String) {
        if self.mode != Mode::Away {
            return;
        }
        self.mode = Mode::Keeping;
        self.some_failed = false;
        self.absence.waiting.clear();
        let said = AgentMessage::Stay { reason: reason.clone() };
        self.reporting.report(said);
        // Workers that still leave are replaced one by one, as they end: two sets of workers may not fit into the memory. But one is
        // started at once, as the last of them may wait for a worker that takes over the state.
        let heir = u32::from(!self.children.is_empty());
        let missing = self.absence.wanted.saturating_sub(self.left()).max(heir);
        for _ in 0..missing {
            self.start_one_more(myself);
        }
        let left = self.absence.wanted;
        self.tell(AgentEvent::Back { left, reason });
    }

    /// The last workers did not leave in time. An end that is seen costs the others less than a machine that vanishes.
    pub(super) fn leave_now(&mut self, absence: u64) {
        if self.mode != Mode::Away || self.absence.number != absence {
            return;
        }
        for (worker, child) in &self.children {
            tracing::warn!(target: "sardana::event::kill", %worker, "a worker did not leave in time and is killed");
            // Its task is gone only if it has ended.
            let _ = child.orders.send(Order::Kill);
        }
    }

    /// A coordinator that knows this agent only by its hello does not know that its workers leave.
    pub(super) fn say_leave_again(&mut self) {
        if self.mode == Mode::Away {
            let reason = self.absence.reason.clone();
            self.reporting.report(AgentMessage::Leave { reason });
        }
    }

    /// Tells, once, that the last worker is away.
    pub(super) fn tell_absence(&mut self) {
        if self.mode != Mode::Away || !self.children.is_empty() || self.absence.waiting.is_empty() {
            return;
        }
        self.tell(AgentEvent::Away);
        for waiting in self.absence.waiting.drain(..) {
            // A watch that does not wait any more has ended.
            let _ = waiting.send(());
        }
    }
}
