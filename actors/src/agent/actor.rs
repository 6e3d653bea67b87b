//! The agent's actor: keeps its workers running, and tells the coordinator of every end.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::SystemTime;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use sardana_protocol::messages::{AgentMessage, AgentOrder};
use sardana_protocol::replacing::Replacing;
use sardana_protocol::words::WorkerId;
use tokio::sync::mpsc;
#[cfg(test)]
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use super::away::{Absence, Mode};
use super::certificates::Certificates;
use super::child::{Ending, Program};
use super::children::Running;
use super::counts::Counts;
use super::depot::Begun;
use super::limits::{CERTIFICATES_EVERY, END_GRACE};
use super::motion::Watch;
use super::notices::NoticeOrder;
use super::output::Printer;
use super::reporting::Reporting;
use super::start_error::StartError;
use super::{AgentConfig, AgentEvent, Processes};
use crate::depot::Depot;
use crate::memory;

/// What the actor is told.
#[derive(Debug)]
pub(super) enum Message {
    /// By the agent itself: start one more worker.
    Start,
    /// By a child's task: it ended.
    Ended { worker: WorkerId, how: String, ending: Ending },
    /// By a child's task, after that: the system has taken back all that it had.
    Gone { worker: WorkerId },
    /// By the system: a child has stopped, has gone on, or has ended.
    LookAtChildren,
    /// By the clock: look after the certificates.
    LookAfterCertificates,
    /// By the coordinator.
    Ordered(AgentOrder),
    /// By the control connection: it broke, or could not be made.
    ControlLost { why: String },
    /// By the control connection: it is made; what is put into the queue goes to the coordinator.
    ControlMade { queue: mpsc::UnboundedSender<AgentMessage> },
    /// By the embedding program: the children leave at a boundary, then the agent ends.
    Leave { reason: String },
    /// By the start of the checkpoint actor: how it went.
    DepotBegun(Box<Begun>),
    /// By the clock: try again to start the checkpoint actor.
    DepotAgain,
    /// By the watch for notices.
    Notice(NoticeOrder),
    /// By the clock: the children that leave because of a notice had their time.
    LeaveNow { absence: u64 },
    /// By the embedding program: let the children end, then end.
    End,
    /// By the clock: the children had their time.
    EndNow,
    /// By a test: all that it holds, as text, goes back.
    #[cfg(test)]
    Show { reply: oneshot::Sender<String> },
}

pub(super) struct Shell;

pub(super) struct Arguments {
    pub(super) config: AgentConfig,
    pub(super) events: mpsc::UnboundedSender<AgentEvent>,
    pub(super) processes: Processes,
    /// None if children print for themselves.
    pub(super) printer: Option<Printer>,
}

#[derive(Debug)]
pub(super) struct State {
    /// What is logged says by it of which job and host it is.
    span: Span,
    pub(super) config: AgentConfig,
    pub(super) program: Program,
    events: mpsc::UnboundedSender<AgentEvent>,
    processes: Processes,
    /// What the host had for children before there were any: each may use its part, and so may those that take others' places.
    pub(super) memory: Option<u64>,
    /// Where children count their gradients; private to this user, and gone with the agent.
    pub(super) counts: Counts,
    pub(super) children: BTreeMap<WorkerId, Running>,
    /// Children that have ended, and are not gone.
    pub(super) going: BTreeMap<WorkerId, Running>,
    pub(super) reporting: Reporting,
    pub(super) certificates: Certificates,
    pub(super) printer: Option<Printer>,
    pub(super) restarts_left: u32,
    /// Whether some worker failed, and none was started in its place since.
    pub(super) some_failed: bool,
    pub(super) replacing: Replacing,
    /// Starts that wait for their back-off, or for the certificate.
    pub(super) pending: u32,
    /// Of how many workers it was said last that they share GPUs; as many as there were to be, at first.
    pub(super) most_sharing: u32,
    pub(super) mode: Mode,
    pub(super) absence: Absence,
    /// Ends with this.
    pub(super) depot: Option<Depot>,
    /// Why there was none the last time.
    pub(super) no_depot: Option<String>,
    /// The same once the job is over: ends when the coordinator lets it go.
    pub(super) parting: Option<Depot>,
    /// None where the system tells of no children. Ends with this.
    _watch: Option<Watch>,
}

impl Actor for Shell {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<Message>, arguments: Arguments) -> Result<State, ActorProcessingErr> {
        let Arguments {
            config,
            events,
            processes,
            printer,
        } = arguments;
        let counts = Counts::make()?;
        let rotating = config.credentials.clone();
        let (certificates, children) = (Certificates::new(rotating.clone()), Arc::clone(&processes));
        let reporting = Reporting::start(rotating, &config, children, &myself).await?;
        // The interval ends with the actor.
        drop(myself.send_interval(CERTIFICATES_EVERY, || Message::LookAfterCertificates));
        for _ in 0..config.workers {
            myself.cast(Message::Start)?;
        }
        let mut state = State {
            span: tracing::error_span!("agent", job = %config.credentials.job(), host = %config.host),
            program: Program {
                program: config.program.clone(),
                arguments: config.arguments.clone(),
                environment: config.environment.clone(),
            },
            restarts_left: config.restarts,
            most_sharing: config.workers,
            some_failed: false,
            pending: config.workers,
            config,
            events,
            processes,
            memory: memory::available(),
            counts,
            children: BTreeMap::new(),
            going: BTreeMap::new(),
            reporting,
            printer,
            certificates,
            replacing: Replacing::default(),
            mode: Mode::Keeping,
            absence: Absence::default(),
            depot: None,
            no_depot: None,
            parting: None,
            _watch: watch(&myself),
        };
        state.want_depot();
        Ok(state)
    }

    async fn post_stop(&self, _myself: ActorRef<Message>, state: &mut State) -> Result<(), ActorProcessingErr> {
        if let Some(depot) = state.parting.take() {
            depot.let_go().await;
        }
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let _in = state.span.clone().entered();
        match message {
            Message::Start => state.start(&myself),
            Message::Ended { worker, how, ending } => state.ended(&myself, worker, how, ending),
            Message::Gone { worker } => state.gone(&myself, worker),
            Message::LookAtChildren => state.look_at_children(),
            Message::LookAfterCertificates => state.look_after_certificates(&myself),
            Message::Ordered(order) => state.ordered(&myself, order),
            Message::ControlLost { why } => state.coordinator_lost(&myself, &why),
            Message::ControlMade { queue } => {
                state.reporting.made(queue);
                for message in state.certificates.ask_again(Instant::now()) {
                    state.reporting.say(message);
                }
                state.say_leave_again();
                state.say_who_stands_still();
            }
            Message::DepotBegun(begun) => state.depot_begun(&myself, *begun),
            Message::DepotAgain => state.want_depot(),
            Message::Notice(order) => state.noticed(&myself, order),
            Message::LeaveNow { absence } => state.leave_now(absence),
            Message::Leave { reason } => state.leave(&myself, reason),
            Message::End => {
                state.mode = Mode::Leaving;
                state.drop_starts();
                drop(myself.send_after(END_GRACE, || Message::EndNow));
            }
            #[cfg(test)]
            Message::Show { reply } => reply.send(format!("{state:?}")).unwrap(),
            Message::EndNow => state.end_children(),
        }
        if state.mode >= Mode::Draining && state.children.is_empty() && state.going.is_empty() {
            myself.stop(None);
        }
        state.tell_absence();
        Ok(())
    }
}

impl State {
    fn look_after_certificates(&mut self, myself: &ActorRef<Message>) {
        // While there is no coordinator no answer comes; all is asked for again when it is back.
        if !self.reporting.is_connected() {
            return;
        }
        if let Some(message) = self.certificates.renewal(SystemTime::now()) {
            self.reporting.say(message);
        }
        for _ in 0..self.certificates.give_up(Instant::now()) {
            self.not_started(myself, &StartError::Certificate);
        }
    }

    pub(super) fn processes(&self) -> MutexGuard<'_, BTreeMap<WorkerId, u32>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, event: AgentEvent) {
        // The receiver may be gone.
        let _ = self.events.send(event);
    }
}

/// Where signals cannot be listened for, a worker that stands still is only silent.
fn watch(agent: &ActorRef<Message>) -> Option<Watch> {
    Watch::start(agent)
        .inspect_err(|error| tracing::warn!(%error, "no process sees workers stand still"))
        .ok()
}
