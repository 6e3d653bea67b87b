//! A worker that comes again while its last session still seems to be there.
//!
//! Either it lost a connection that this side has not given up yet, as after a partition, or somebody has started a second process with
//! the same credentials. Whoever lives says something at every heartbeat: so the newcomer waits until the other one speaks, and is
//! refused, or has been silent for [`QUIET`], and is taken in its place. A refusal ends a process for good; it must not be a guess.

use std::time::Duration;

use sardana_protocol::admission::Refusal;
use sardana_protocol::limits::HEARTBEAT;
use sardana_protocol::membership::{Event, Loss};
use sardana_protocol::messages::{CoordinatorMessage, Greeting, WorkerHello};
use sardana_protocol::words::WorkerId;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor::State;
use super::session::Outlet;
use crate::worker::limits::GREETING_DEADLINE;

/// A session whose worker has said nothing for so long does not keep the same worker from coming again: two heartbeats, and the way.
const QUIET: Duration = Duration::from_millis(1_250);

const _: () = assert!(QUIET.as_millis() > 2 * HEARTBEAT.as_millis());
// The newcomer must not give up meanwhile.
const _: () = assert!(QUIET.as_millis() * 2 < GREETING_DEADLINE.as_millis());

/// Who waits.
pub(super) struct Comeback {
    hello: WorkerHello,
    outlet: Outlet<CoordinatorMessage>,
    reply: oneshot::Sender<Greeting>,
}

impl State {
    /// A worker says hello. What comes back may take a moment.
    pub(super) fn comes(
        &mut self,
        hello: WorkerHello,
        outlet: Outlet<CoordinatorMessage>,
        reply: oneshot::Sender<Greeting>,
    ) {
        let worker = hello.worker;
        let Some(before) = self.workers.get(&worker) else {
            return self.hello(hello, outlet, reply);
        };
        if before.connection.close_reason().is_some() || before.heard.elapsed() >= QUIET {
            return self.hello(hello, outlet, reply);
        }
        let comeback = Comeback { hello, outlet, reply };
        if let Some(other) = self.comebacks.insert(worker, comeback) {
            other.refuse();
        }
    }

    /// A worker has said something: whoever waits to be it, is not.
    pub(super) fn speaks(&mut self, worker: WorkerId) {
        if let Some(outlet) = self.workers.get_mut(&worker) {
            outlet.heard = Instant::now();
        }
        if let Some(comeback) = self.comebacks.remove(&worker) {
            comeback.refuse();
        }
    }

    /// Takes in those whose last session has been silent for long enough, or is over.
    pub(super) fn take_back(&mut self) {
        let quiet = |worker: &WorkerId| {
            let before = self.workers.get(worker);
            before.is_none_or(|before| before.connection.close_reason().is_some() || before.heard.elapsed() >= QUIET)
        };
        let due: Vec<WorkerId> = self.comebacks.keys().copied().filter(quiet).collect();
        for Comeback { hello, outlet, reply } in due
            .iter()
            .filter_map(|worker| self.comebacks.remove(worker))
            .collect::<Vec<_>>()
        {
            self.hello(hello, outlet, reply);
        }
    }

    /// A worker's session is over.
    pub(super) fn session_lost(&mut self, worker: WorkerId, why: String) {
        self.forget(worker);
        self.decide(Event::Lost {
            worker,
            cause: Loss::ConnectionLost { why },
        });
    }
}

impl Comeback {
    fn refuse(self) {
        let refusal = Refusal::Duplicate(self.hello.worker);
        tracing::warn!(target: "sardana::event::refused", worker = %self.hello.worker, %refusal, "a worker was refused");
        // The session is gone if nobody takes it.
        let _ = self.reply.send(Greeting::Refused {
            reason: refusal.to_string(),
        });
    }
}
