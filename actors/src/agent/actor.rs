//! The agent's actor: keeps its workers running, and tells the coordinator of every end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use sardana_net::trust::Credentials;
use sardana_protocol::messages::{AgentMessage, AgentOrder, Motion, Tally};
use sardana_protocol::replacing::Replacing;
use sardana_protocol::words::WorkerId;
use tokio::sync::mpsc;
#[cfg(test)]
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tracing::Span;

use super::away::{Absence, Mode};
use super::certificates::Certificates;
use super::child::{Ending, Order, Process, Program, Streams};
use super::counts::Counts;
use super::depot::Begun;
use super::limits::{CERTIFICATES_EVERY, END_GRACE};
use super::motion::Watch;
use super::notices::NoticeOrder;
use super::output::Printer;
use super::reporting::Reporting;
use super::start_error::StartError;
use super::{AgentConfig, AgentEvent, Bundle, Processes};
use crate::depot::Depot;
use crate::memory;
use crate::worker::TallyFile;

/// What the actor is told.
#[derive(Debug)]
pub(super) enum Message {
    /// By itself: start one more worker.
    Start,
    /// By a child's task: it ended.
    Ended { worker: WorkerId, how: String, ending: Ending },
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
    program: Program,
    events: mpsc::UnboundedSender<AgentEvent>,
    processes: Processes,
    /// What the host had for children before there were any: each may use its part, and so may those that take the places of others.
    memory: Option<u64>,
    /// Where children count their gradients; private to this user, and gone with the agent.
    counts: Counts,
    pub(super) children: BTreeMap<WorkerId, Running>,
    pub(super) reporting: Reporting,
    pub(super) certificates: Certificates,
    printer: Option<Printer>,
    restarts_left: u32,
    replacing: Replacing,
    /// Starts that wait for their back-off, or for the certificate.
    pub(super) pending: u32,
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

#[derive(Debug)]
pub(super) struct Running {
    task: AbortHandle,
    pub(super) orders: mpsc::UnboundedSender<Order>,
    started: Instant,
    tally: PathBuf,
    /// Whether it leaves because of a notice.
    pub(super) leaving: bool,
    /// As last seen.
    pub(super) motion: Motion,
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
        let wallet = config.credentials.clone();
        let (certificates, children) = (Certificates::new(wallet.clone()), Arc::clone(&processes));
        let reporting = Reporting::start(wallet, &config, children, &myself).await?;
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
            pending: config.workers,
            config,
            events,
            processes,
            memory: memory::available(),
            counts,
            children: BTreeMap::new(),
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
            Message::EndNow => {
                state.children.clear();
                state.processes().clear();
            }
        }
        if state.mode >= Mode::Draining && state.children.is_empty() {
            myself.stop(None);
        }
        state.tell_absence();
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process is killed with its task.
        self.task.abort();
    }
}

impl State {
    /// Asks for the certificate of one more worker, which is started when it comes.
    fn start(&mut self, myself: &ActorRef<Message>) {
        if self.mode != Mode::Keeping {
            self.pending = self.pending.saturating_sub(1);
            self.one_less();
            return;
        }
        match self.certificates.ask(Instant::now()) {
            // It is said again on the next connection if there is none.
            Ok(message) => drop(self.reporting.say(message)),
            Err(error) => self.not_started(myself, &StartError::System(error)),
        }
    }

    /// A new worker's certificate came.
    pub(super) fn certified(&mut self, myself: &ActorRef<Message>, worker: WorkerId, certificate: Vec<u8>) {
        let Some(certified) = self.certificates.certified(worker, certificate) else {
            return;
        };
        let spawned = certified
            .map_err(StartError::System)
            .and_then(|credentials| self.spawn(myself, worker, credentials));
        match spawned {
            Ok(pid) => {
                self.pending = self.pending.saturating_sub(1);
                self.reporting.report(AgentMessage::ChildStarted { worker, pid });
                self.tell(AgentEvent::Started { worker, pid });
            }
            Err(error) => self.not_started(myself, &error),
        }
    }

    fn not_started(&mut self, myself: &ActorRef<Message>, error: &StartError) {
        self.pending = self.pending.saturating_sub(1);
        self.tell(AgentEvent::NotStarted {
            reason: error.to_string(),
        });
        if self.restarts_left > 0 && error.may_pass() {
            self.replace(myself, Duration::ZERO, None);
        } else {
            self.one_less();
        }
    }

    /// No worker is started any more: those that wait for their certificates will not be.
    pub(super) fn drop_starts(&mut self) {
        let dropped = self.certificates.give_up_all();
        self.pending = self.pending.saturating_sub(dropped);
        if dropped > 0 {
            self.one_less();
        }
    }

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

    fn spawn(&mut self, myself: &ActorRef<Message>, worker: WorkerId, credentials: Credentials) -> Result<u32, StartError> {
        let tally = self.counts.of(worker);
        std::fs::write(&tally, []).map_err(|error| StartError::System(format!("{}: {error}", tally.display())))?;
        let log = match &self.printer {
            Some(printer) => printer.log(worker).map_err(|error| StartError::System(error.to_string()))?,
            None => None,
        };
        let streams = self.printer.as_ref().map_or(Streams::Inherited, |_| Streams::Piped);
        let mut process = Process::start(&self.program, streams).map_err(|source| StartError::Program {
            program: self.program.program.clone(),
            source,
        })?;
        if let Some(printer) = &self.printer {
            let (stdout, stderr) = process.output();
            printer.carry(worker, log, stdout, stderr);
        }
        let pid = process
            .pid()
            .ok_or_else(|| StartError::System("a process has no id".to_owned()))?;
        let bundle = Bundle {
            credentials,
            coordinator: self.config.coordinator.clone(),
            listen: self.config.listen,
            advertise: self.config.advertise,
            tally: Some(tally.clone()),
            memory: self
                .memory
                .map(|memory| memory / u64::from(self.left().max(self.config.workers).max(1))),
        };
        let agent = myself.clone();
        let (orders, given) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let (how, ending) = process.run(&bundle, given).await;
            // The agent is gone only if the program ends.
            let _ = agent.cast(Message::Ended { worker, how, ending });
        });
        self.processes().insert(worker, pid);
        self.children.insert(
            worker,
            Running {
                task: task.abort_handle(),
                orders,
                started: Instant::now(),
                tally,
                leaving: false,
                motion: Motion::Runs,
            },
        );
        Ok(pid)
    }

    fn ended(&mut self, myself: &ActorRef<Message>, worker: WorkerId, mut how: String, ending: Ending) {
        self.processes().remove(&worker);
        let Some(child) = self.children.remove(&worker) else { return };
        let tally = TallyFile::read(&child.tally);
        // Read once: a host has thousands of children in the life of a long job. One that cannot be removed goes with its folder.
        let _ = std::fs::remove_file(&child.tally);
        let lived = child.started.elapsed();
        let keeping = self.mode == Mode::Keeping;
        // Who left because of a notice that is withdrawn by now has done nothing that its successor could repeat.
        let returning = keeping && child.leaving && self.left() < self.absence.wanted();
        let failed = keeping && !child.leaving && ending == Ending::Bad && self.restarts_left > 0;
        let restarting = returning || failed;
        match ending {
            // Nothing tells a program that is no worker from one that is, but that it does nothing.
            Ending::Good if keeping && tally.is_none() => how += " before it computed anything",
            Ending::GaveUp => how += ", it would fail again in the same way",
            Ending::Good | Ending::Bad => {}
        }
        // The coordinator first: others wait for this.
        self.reporting.report(AgentMessage::ChildExited {
            worker,
            how: how.clone(),
            tally,
            restarting,
        });
        self.tell(AgentEvent::Ended { worker, how });
        if returning {
            self.start_one_more(myself);
        } else if failed {
            self.replace(myself, lived, tally);
        } else if !(keeping && child.leaving) {
            self.one_less();
        }
    }

    /// How many run or will be started.
    pub(super) fn left(&self) -> u32 {
        let running = u32::try_from(self.children.len()).unwrap_or(u32::MAX);
        running.saturating_add(self.pending)
    }

    /// A worker ended, or could not be started, and none is started in its place.
    fn one_less(&self) {
        let left = self.left();
        if self.mode == Mode::Away {
            // They may all come back.
        } else if left == 0 {
            self.tell(AgentEvent::Exhausted);
        } else if self.mode == Mode::Keeping {
            self.tell(AgentEvent::Short { left });
        }
    }

    /// Starts a worker for one that ended, or could not be started.
    fn replace(&mut self, myself: &ActorRef<Message>, lived: Duration, tally: Option<Tally>) {
        self.restarts_left -= 1;
        self.pending += 1;
        let wait = self.replacing.wait(lived, tally);
        let agent = myself.clone();
        tokio::spawn(async move {
            sleep(wait).await;
            // The agent is gone only if the program ends.
            let _ = agent.cast(Message::Start);
        });
    }

    pub(super) fn processes(&self) -> MutexGuard<'_, BTreeMap<WorkerId, u32>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self, event: AgentEvent) {
        // The receiver may be gone.
        let _ = self.events.send(event);
    }
}

/// Where signals cannot be listened for, one that stands still is only silent.
fn watch(agent: &ActorRef<Message>) -> Option<Watch> {
    Watch::start(agent)
        .inspect_err(|error| tracing::warn!(%error, "nobody sees workers stand still"))
        .ok()
}
