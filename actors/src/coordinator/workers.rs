//! How workers come, what they say, and what is said to them. Part of the coordinator's actor.

use sardana_net::log::refused;
use sardana_net::quic::explain;
use sardana_protocol::admission::{Acquaintance, Refusal, admit, fits_device, has_memory, take_over};
use sardana_protocol::membership::{Arrival, Event, Loss, Membership};
use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::messages::{Call, CoordinatorMessage, Greeting, WorkerHello, WorkerMessage};
use sardana_protocol::words::{Step, WorkerId};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor::{Life, State};
use super::faults;
use super::hearsay::Certainty;
use super::outlet::Outlet;

/// A worker that is connected.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) outlet: Outlet<CoordinatorMessage>,
    /// By which call it came.
    call: Call,
    /// What it computes on.
    pub(super) device: String,
    /// What it has of a GPU's memory, as it has told last.
    pub(super) device_memory: Option<DeviceMemory>,
}

impl State {
    pub(super) fn hello(
        &mut self,
        hello: WorkerHello,
        outlet: Outlet<CoordinatorMessage>,
        reply: oneshot::Sender<Greeting>,
    ) {
        let worker = hello.worker;
        if self.exited.get(&worker) == Some(&Certainty::Certain) {
            let reason = format!("the agent of worker {worker} has seen its process end: start a new worker");
            refused!(%worker, refusal = %reason, "a worker was refused");
            // If the agent is right, its receiver is gone.
            let _ = reply.send(Greeting::Refused { reason });
            return;
        }
        if self.life == Life::Fenced {
            let _ = reply.send(Greeting::Fenced);
            return;
        }
        if self.life == Life::Over {
            // A replacement that came too late.
            let _ = reply.send(Greeting::Over);
            return;
        }
        // It may know sooner than this side that its last connection is gone; two processes with one id are a mistake of the person who started them.
        let before = self.workers.get(&worker);
        let gone = before.and_then(|connected| connected.outlet.connection.close_reason());
        if let Some(error) = gone {
            self.session_lost(worker, explain(&error));
        }
        let admitted = self.admit(&hello);
        if let Err(Refusal::Fenced { own, by }) = admitted {
            // If it cannot be sent, the session is gone.
            let _ = reply.send(Greeting::Fenced);
            return self.fenced(own, by);
        }
        if let Err(refusal) = admitted {
            refused!(%worker, %refusal, "a worker was refused");
            // If it cannot be sent, the session is gone.
            let _ = reply.send(Greeting::Refused {
                reason: refusal.to_string(),
            });
            return;
        }
        let greeting = Greeting::Joined {
            incarnation: self.config.incarnation,
            report_from: self.next_report(),
        };
        // Before it can know.
        self.greeted.insert(worker, ());
        if reply.send(greeting).is_err() {
            return;
        }
        if let Some(Connected { outlet, .. }) = self.workers.get(&worker) {
            let why = "its process has made a later connection";
            outlet.connection.close(0_u32.into(), why.as_bytes());
            self.session_lost(worker, why.to_owned());
        }
        // The agent that has said that it had ended was wrong.
        self.exited.remove(&worker);
        self.certifying.is_back(worker);
        self.connected(&hello, outlet);
        if self.job.is_none() {
            self.operating.named(&hello.auxiliary);
            self.begin(hello.identity);
        }
        self.decide(Event::Arrived(Box::new(Arrival {
            worker,
            address: hello.address,
            capacity: hello.shard_capacity,
            memory: hello.memory,
            host_hash: hello.host_hash,
            on_device: hello.device_memory.is_some(),
            introduction: hello.introduction,
        })));
        if let Some(reason) = self.operating.agents.leaving(worker) {
            self.leave(&[worker], &reason);
        }
    }

    fn connected(&mut self, hello: &WorkerHello, outlet: Outlet<CoordinatorMessage>) {
        let (worker, device) = (hello.worker, hello.identity.fingerprint.device.clone());
        tracing::info!(target: "sardana::event::device", %worker, device, "a worker says what it computes on");
        let connected = Connected {
            outlet,
            call: hello.call,
            device,
            device_memory: hello.device_memory.clone(),
        };
        self.workers.insert(worker, connected);
    }

    pub(super) fn next_report(&self) -> Step {
        let membership = self.job.as_ref().map(|(_, membership)| membership);
        membership.map_or(Step::ZERO, Membership::next_report)
    }

    pub(super) fn session_lost(&mut self, worker: WorkerId, why: String) {
        self.forget(worker);
        self.decide(Event::Lost {
            worker,
            cause: Loss::ConnectionLost { why },
        });
    }

    fn admit(&self, hello: &WorkerHello) -> Result<(), Refusal> {
        let identity = self.job.as_ref().map(|(identity, _)| identity);
        if let Some(present) = self.workers.get(&hello.worker) {
            take_over(present.call, hello)?;
        }
        // Once any worker was forgotten it is not known which were greeted by another coordinator with this one's number: to take this
        // for a proof would end a job for a worker that comes back late. Rivals that meet tell each other as well.
        let acquaintance = if self.greeted.contains(&hello.worker) || self.greeted.has_forgotten() {
            Acquaintance::Greeted
        } else {
            Acquaintance::None
        };
        admit(self.config.registrar.job(), identity, self.newest(), acquaintance, hello)?;
        has_memory(hello, self.config.max)?;
        fits_device(hello)?;
        // With as many as are expected it trains, only not as fast as it might.
        let scarce = has_memory(hello, self.config.expected).err();
        if let Some(scarce) = scarce.filter(|_| hello.memory.is_known()) {
            let worker = hello.worker;
            tracing::warn!(target: "sardana::event::scarce", %worker, %scarce, "the first rank will compute what others have no memory for");
        }
        Ok(())
    }

    pub(super) fn said(&mut self, worker: WorkerId, message: WorkerMessage) {
        self.hearsay.speaks(worker, Instant::now());
        if let WorkerMessage::Renew { request } = &message {
            // What it says after it was dismissed may come late.
            if let (true, Some(renewed)) = (
                self.workers.contains_key(&worker),
                self.certifying.renewed_worker(worker, request),
            ) {
                self.send(worker, renewed);
            }
            return;
        }
        if let (WorkerMessage::DeviceMemory(memory), Some(connected)) = (&message, self.workers.get_mut(&worker)) {
            connected.device_memory = Some(memory.clone());
        }
        self.decide(Event::Said { worker, message });
    }

    pub(super) fn send(&mut self, worker: WorkerId, message: CoordinatorMessage) {
        let last = matches!(
            message,
            CoordinatorMessage::Dismiss { .. } | CoordinatorMessage::Released { .. }
        );
        if last {
            self.certifying.is_gone(worker);
        }
        let step = self.job.as_ref().map_or(Step::ZERO, |(_, membership)| membership.reached());
        if let Some(Connected { outlet, .. }) = self.workers.get(&worker) {
            let afterwards = faults::before(&message, step);
            // A session that is over has said so, or will.
            outlet.say(message);
            faults::after(afterwards, step);
        }
        if last {
            // Its queue ends with this message, and its connection with the queue.
            self.forget(worker);
        }
    }

    /// Lets go of a worker's session, if there is one.
    pub(super) fn forget(&mut self, worker: WorkerId) -> Option<Outlet<CoordinatorMessage>> {
        let Connected { outlet, .. } = self.workers.remove(&worker)?;
        self.received += outlet.received();
        Some(outlet)
    }
}
