//! What agents tell the coordinator: their children, and how these end. Part of its actor.

use sardana_net::log::refused;
use sardana_protocol::membership::{Event, Loss};
use sardana_protocol::messages::{AgentHello, AgentMessage, AgentOrder, Greeting};
use sardana_protocol::words::WorkerId;
use tokio::sync::oneshot;

use super::actor::{Life, State};
use super::hearsay::{Certainty, Report};
use super::outlet::Outlet;
use super::session::SessionId;

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
            outlet.say(AgentOrder::JobOver);
        }
        if let Some(before) = self.agents.insert(agent, outlet) {
            self.received += before.received();
        }
        // If it cannot be sent, the session is gone.
        let _ = reply.send(Greeting::Welcome);
    }

    pub(super) fn agent_lost(&mut self, agent: u64, session: SessionId) {
        if self.agents.get(&agent).is_none_or(|outlet| outlet.session() != session) {
            return;
        }
        if let Some(before) = self.agents.remove(&agent) {
            self.received += before.received();
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
            outlet.say(order);
        }
    }

    pub(super) fn agent_said(&mut self, agent: u64, message: AgentMessage) {
        match message {
            // No worker is started for a job that is over.
            AgentMessage::Certify { .. } if self.life == Life::Over => {}
            // It has a certificate, and renews it itself.
            AgentMessage::Certify { worker, .. } if self.workers.contains_key(&worker) => {
                refused!(agent = %format_args!("{agent:016x}"), %worker, "an agent asks for the certificate of a worker that is connected");
            }
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
            AgentMessage::ChildMotion { worker, motion } if self.certifying.may_report(agent, worker) => {
                tracing::info!(target: "sardana::event::motion", %worker, %motion, "a worker's process stands still, or goes on");
                self.decide(Event::Motion { worker, motion });
            }
            AgentMessage::ChildMotion { worker, .. } => {
                refused!(agent = %format_args!("{agent:016x}"), %worker, "an agent reports of another one's child");
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
                let report = Report {
                    agent,
                    how,
                    tally,
                    restarting,
                };
                self.child_exited(worker, report);
            }
        }
    }

    /// A worker's process has ended.
    pub(super) fn has_exited(&mut self, worker: WorkerId, report: Report, certainty: Certainty) {
        if self.exited.insert(worker, certainty).is_some() {
            // Its agent says so again, after it had lost this coordinator.
            return;
        }
        let Report {
            agent,
            how,
            tally,
            restarting,
        } = report;
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
