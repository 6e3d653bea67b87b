//! What agents tell the coordinator: their children, and how these end. Part of its actor.

use sardana_protocol::membership::{Event, Loss};
use sardana_protocol::messages::{AgentHello, AgentMessage, AgentOrder, Greeting};
use tokio::sync::oneshot;

use super::actor::{Life, State};
use super::session::{Outlet, SessionId};

impl State {
    pub(super) fn agent_hello(
        &mut self,
        agent: u64,
        hello: AgentHello,
        outlet: Outlet<AgentOrder>,
        reply: oneshot::Sender<Greeting>,
    ) {
        self.certifying.has_children(agent, &hello.children);
        self.operating.agents.came(agent, hello, outlet.connection.remote_address());
        if self.life == Life::Over {
            let _ = outlet.queue.send(AgentOrder::JobOver);
        }
        if let Some(before) = self.agents.insert(agent, outlet) {
            self.received += before.connection.stats().udp_rx.bytes;
        }
        // The session is gone if nobody takes it.
        let _ = reply.send(Greeting::Welcome);
    }

    pub(super) fn agent_lost(&mut self, agent: u64, session: SessionId) {
        if self.agents.get(&agent).is_none_or(|outlet| outlet.session() != session) {
            return;
        }
        if let Some(before) = self.agents.remove(&agent) {
            self.received += before.connection.stats().udp_rx.bytes;
        }
        let host = self.operating.agents.host_of(agent).to_owned();
        self.operating.remember(
            self.started.elapsed(),
            &format!("the agent on {host} is not connected any more"),
        );
        self.operating.agents.gone(agent);
    }

    pub(super) fn order(&self, agent: u64, order: AgentOrder) {
        if let Some(outlet) = self.agents.get(&agent) {
            // A session that is over has said so.
            let _ = outlet.queue.send(order);
        }
    }

    pub(super) fn agent_said(&mut self, agent: u64, message: AgentMessage) {
        match message {
            // Nobody is started for a job that is over.
            AgentMessage::Certify { .. } if self.life == Life::Over => {}
            AgentMessage::Certify { worker, request } => {
                if let Some(certified) = self.certifying.child(agent, worker, &request) {
                    self.order(agent, certified);
                }
            }
            AgentMessage::CertifyDepot { .. } if self.life == Life::Over => {}
            AgentMessage::CertifyDepot { request } => {
                if let Some(certified) = self.certifying.depot_of(agent, &request) {
                    self.order(agent, certified);
                }
            }
            AgentMessage::Renew { request } => {
                if let Some(renewed) = self.certifying.renewed_agent(agent, &request) {
                    self.order(agent, renewed);
                }
            }
            AgentMessage::ChildExited { worker, .. } if !self.certifying.may_report(agent, worker) => {
                tracing::warn!(target: "sardana::event::refused", agent = %format_args!("{agent:016x}"), %worker, "an agent reports the end of another one's child");
            }
            AgentMessage::ChildStarted { worker, pid } => self.operating.agents.started(agent, worker, pid),
            AgentMessage::Leave { reason } => self.agent_leaves(agent, &reason),
            AgentMessage::Stay { reason } => self.agent_stays(agent, &reason),
            AgentMessage::ChildExited {
                worker,
                how,
                tally,
                restarting,
            } => {
                if self.exited.insert(worker, ()).is_some() {
                    // Its agent says so again, after it had lost this coordinator.
                    return;
                }
                tracing::info!(target: "sardana::event::exited", %worker, %how, restarting, "a worker process ended");
                self.certifying.is_gone(worker);
                let now = self.started.elapsed();
                self.operating.agents.exited(agent, worker, restarting, now);
                if let Some(outlet) = self.forget(worker) {
                    outlet.connection.close(0_u32.into(), b"its process has ended");
                }
                self.decide(Event::Lost {
                    worker,
                    cause: Loss::Exited { how, tally },
                });
            }
        }
    }
}
