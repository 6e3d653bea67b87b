//! The coordinator's actor: receives, asks the membership's machine, sends. Takes no decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use sardana_net::control::Turn;
use sardana_net::environment::Environment;
use sardana_net::trust::{Clock, RotatingCredentials};
use sardana_protocol::checkpoint::{DepotAddress, DepotId};
use sardana_protocol::job::{JobIdentity, JobKind};
use sardana_protocol::limits::TICK;
use sardana_protocol::membership::{Command, Config, Event, JobEvent, Membership};
use sardana_protocol::messages::{
    AgentHello, AgentMessage, AgentOrder, CoordinatorMessage, DepotHello, DepotMessage, DepotOrder, Greeting, WorkerHello,
    WorkerMessage,
};
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};
use sardana_protocol::words::{Generation, WorkerId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Span;

use super::certifying::Certifying;
use super::depots::DepotSeats;
use super::faults;
use super::hearsay::{Certainty, Hearsay};
use super::lately::Lately;
use super::limits::WORKERS_KEPT;
use super::operating::Operating;
use super::outlet::Outlet;
use super::records::Recorder;
use super::session::SessionId;
use super::workers::Connected;
use super::{CoordinatorConfig, Past};

/// What the actor is told.
#[derive(Debug)]
pub(super) enum Message {
    /// By a session: a worker wants to join. The greeting goes back.
    Hello {
        hello: Box<WorkerHello>,
        outlet: Outlet<CoordinatorMessage>,
        reply: oneshot::Sender<Greeting>,
    },
    /// By a session: an agent reports for duty. The greeting goes back.
    AgentHello {
        agent: u64,
        hello: AgentHello,
        outlet: Outlet<AgentOrder>,
        reply: oneshot::Sender<Greeting>,
    },
    /// By a session: a worker said this.
    Said {
        worker: WorkerId,
        message: WorkerMessage,
        turn: Turn,
    },
    /// By a session: an agent said this.
    AgentSaid { agent: u64, message: AgentMessage, turn: Turn },
    /// By a session: an agent's connection is over.
    AgentLost { agent: u64, session: SessionId },
    /// By a session: a depot reports for duty. The greeting goes back.
    DepotHello {
        certified: u64,
        hello: DepotHello,
        outlet: Outlet<DepotOrder>,
        reply: oneshot::Sender<Greeting>,
    },
    /// By a session: a depot said this.
    DepotSaid {
        depot: DepotId,
        message: DepotMessage,
        turn: Turn,
    },
    /// By a session: a depot's connection is over.
    DepotLost {
        depot: DepotId,
        session: SessionId,
        why: String,
    },
    /// By a session: an operator asks this. The answer goes back.
    Asked {
        request: OperatorRequest,
        reply: oneshot::Sender<OperatorAnswer>,
    },
    /// By a session: it is over.
    SessionLost {
        worker: WorkerId,
        session: SessionId,
        why: String,
    },
    /// By a session, or by a look at a standby's address: the newest generation of another coordinator. This one's goes back.
    Rival {
        newest: Generation,
        reply: oneshot::Sender<Greeting>,
    },
    /// By the embedding program: end the job at the next boundary.
    StopRequested,
    /// By the embedding program: how many bytes have arrived. The number goes back.
    BytesReceived { reply: oneshot::Sender<u64> },
    /// By the embedding program: where depots are reached. They go back.
    Depots { reply: oneshot::Sender<Vec<DepotAddress>> },
    /// By the embedding program: whether depots stay when the job is over.
    HoldDepots { held: bool, reply: oneshot::Sender<()> },
    /// By a test: all that it holds, as text, goes back.
    #[cfg(test)]
    Show { reply: oneshot::Sender<String> },
    /// By the clock.
    Tick,
}

pub(super) struct Shell;

pub(super) struct Arguments {
    /// What is logged says by it of which job and life it is.
    pub(super) span: Span,
    pub(super) config: CoordinatorConfig,
    pub(super) rotating: RotatingCredentials,
    pub(super) environment: Environment,
    pub(super) clock: Clock,
    pub(super) records: Option<Recorder>,
    pub(super) events: mpsc::UnboundedSender<JobEvent>,
}

#[derive(Debug)]
pub(super) struct State {
    span: Span,
    pub(super) config: CoordinatorConfig,
    pub(super) events: mpsc::UnboundedSender<JobEvent>,
    pub(super) started: Instant,
    pub(super) life: Life,
    /// Set by the first worker.
    pub(super) job: Option<(JobIdentity, Membership)>,
    pub(super) workers: BTreeMap<WorkerId, Connected>,
    /// The workers that this life has greeted last.
    pub(super) greeted: Lately<WorkerId, ()>,
    pub(super) agents: BTreeMap<u64, Outlet<AgentOrder>>,
    pub(super) depots: DepotSeats,
    pub(super) operating: Operating,
    /// The last workers whose end an agent has seen: a late hello of theirs is no worker's. It comes within seconds.
    pub(super) exited: Lately<WorkerId, Certainty>,
    /// What agents say of workers that are connected.
    pub(super) hearsay: Hearsay,
    pub(super) certifying: Certifying,
    pub(super) environment: Environment,
    /// Where what the next life should know is written.
    pub(super) records: Option<Recorder>,
    /// Bytes from connections that are over.
    pub(super) received: u64,
}

/// Whether people have been told how the job ended. It may end before it has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    Over,
    /// Another coordinator leads the job.
    Fenced,
}

impl Actor for Shell {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<Message>, arguments: Arguments) -> Result<State, ActorProcessingErr> {
        // The interval ends with the actor.
        drop(myself.send_interval(TICK, || Message::Tick));
        let _in = arguments.span.clone().entered();
        let config = arguments.config;
        let mut state = State {
            span: arguments.span,
            certifying: Certifying::new(Arc::clone(&config.registrar), arguments.rotating, arguments.clock),
            environment: arguments.environment,
            records: arguments.records,
            config,
            events: arguments.events,
            started: Instant::now(),
            life: Life::Open,
            job: None,
            workers: BTreeMap::new(),
            greeted: Lately::new(WORKERS_KEPT),
            agents: BTreeMap::new(),
            depots: DepotSeats::default(),
            operating: Operating::default(),
            exited: Lately::new(WORKERS_KEPT),
            hearsay: Hearsay::default(),
            received: 0,
        };
        // What was written down says which job it is; the past is used up when it begins.
        if let Past::Known(job) = &state.config.past {
            let (identity, auxiliary) = (job.identity.clone(), job.auxiliary.clone());
            state.operating.named(&auxiliary);
            let left: Vec<WorkerId> = job.record.released().collect();
            left.into_iter().for_each(|worker| state.certifying.is_gone(worker));
            state.begin(identity);
        }
        Ok(state)
    }

    async fn handle(&self, _: ActorRef<Message>, message: Message, state: &mut State) -> Result<(), ActorProcessingErr> {
        let _in = state.span.clone().entered();
        match message {
            Message::Hello { hello, outlet, reply } => state.hello(*hello, outlet, reply),
            Message::AgentHello {
                agent,
                hello,
                outlet,
                reply,
            } => state.agent_hello(agent, hello, outlet, reply),
            Message::Said { worker, message, turn } => {
                state.said(worker, message);
                drop(turn);
            }
            Message::AgentSaid { agent, message, turn } => {
                state.agent_said(agent, message);
                drop(turn);
            }
            Message::AgentLost { agent, session } => state.agent_lost(agent, session),
            Message::DepotHello {
                certified,
                hello,
                outlet,
                reply,
            } => state.depot_hello(certified, hello, outlet, reply),
            Message::DepotSaid { depot, message, turn } => {
                state.depot_said(depot, message);
                drop(turn);
            }
            Message::DepotLost { depot, session, why } => state.depot_lost(depot, session, why),
            Message::Asked { request, reply } => {
                // An operator that has gone does not want to know.
                let _ = reply.send(state.asked(&request));
            }
            Message::SessionLost { worker, session, why } => {
                if state
                    .workers
                    .get(&worker)
                    .is_some_and(|connected| connected.outlet.session() == session)
                {
                    state.session_lost(worker, why);
                }
            }
            Message::Rival { newest, reply } => {
                // The caller may have gone.
                let _ = reply.send(state.meets(newest));
            }
            Message::StopRequested => state.stop_requested(),
            Message::BytesReceived { reply } => {
                let _ = reply.send(state.bytes_received());
            }
            Message::Depots { reply } => {
                let _ = reply.send(state.depot_addresses());
            }
            Message::HoldDepots { held, reply } => {
                state.hold_depots(held);
                let _ = reply.send(());
            }
            #[cfg(test)]
            Message::Show { reply } => reply.send(format!("{state:?}")).unwrap(),
            Message::Tick => {
                state.certifying.renew_own();
                state.settle_hearsay();
                state.decide(Event::Tick);
                state.write_down();
                state.mind_the_records();
            }
        }
        Ok(())
    }
}

impl State {
    /// The job is known: from its first worker, or from what was written down.
    pub(super) fn begin(&mut self, identity: JobIdentity) {
        let spec = &identity.spec;
        let config = Config {
            min: self.config.min,
            expected: self.config.expected,
            max: self.config.max,
            shards: spec.shards,
            steps: spec.steps,
            order: spec.order,
            compression: spec.compression,
            balance: self.config.balance,
            task: identity.task(),
            build: identity.build(),
            saves: self.config.saves.filter(|_| spec.kind() == JobKind::Training),
        };
        if spec.kind() == JobKind::Group && self.config.saves.is_some() {
            tracing::warn!("no checkpoints are taken of a group: what its program has is not known here");
        }
        let (incarnation, now) = (self.config.incarnation, self.started.elapsed());
        let membership = match std::mem::replace(&mut self.config.past, Past::None) {
            Past::None => Membership::new(config, incarnation, now),
            Past::Unknown => Membership::resume(config, incarnation, now, None),
            Past::Known(job) => Membership::resume(config, incarnation, now, Some(job.record)),
        };
        self.job = Some((identity, membership));
        self.catch_up_on_depots();
    }

    pub(super) fn stop_requested(&mut self) {
        if self.job.is_some() {
            self.decide(Event::StopRequested);
        } else if self.life == Life::Open {
            self.tell(JobEvent::Failed {
                reason: "stopped before the first worker came".to_owned(),
            });
        }
    }

    /// Asks the machine, and does what it says.
    pub(super) fn decide(&mut self, event: Event) {
        let now = self.started.elapsed();
        if self.life == Life::Fenced {
            return;
        }
        let Some((_, membership)) = &mut self.job else { return };
        let before = membership.generation();
        let commands = membership.handle(now, event);
        let changed = membership.generation() != before;
        for command in commands {
            match command {
                Command::Send { worker, message } => self.send(worker, message),
                Command::Order { depot, order } => self.order_depot(depot, *order),
                Command::Commit { to, contents } => self.commit(&to, *contents),
                Command::Kill { worker } => self.kill_hanging(worker),
                Command::Tell(event) => self.tell(event),
            }
        }
        if changed {
            self.write_down();
        }
    }

    pub(super) fn tell(&mut self, event: JobEvent) {
        faults::before_telling(&event);
        self.operating.note(self.started.elapsed(), &event);
        if matches!(event, JobEvent::Done(_) | JobEvent::Failed { .. }) {
            self.life = Life::Over;
            if let Some(recorder) = &self.records {
                recorder.over();
            }
            for agent in self.agents.values() {
                agent.say(AgentOrder::JobOver);
            }
            self.end_depots();
        }
        // The program that embeds it may not listen; the job goes on.
        let _ = self.events.send(event);
    }

    fn bytes_received(&self) -> u64 {
        let open = self.workers.values().map(|connected| connected.outlet.received());
        let agents = self.agents.values().map(Outlet::received);
        self.received + open.chain(agents).sum::<u64>()
    }
}
