//! The agent's actor: keeps its workers running, and tells the coordinator of every end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use sardana_protocol::messages::{AgentMessage, AgentOrder, Greeting, Hello};
use sardana_protocol::words::WorkerId;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::child::{Ending, Process, Program};
use super::limits::{BACK_OFF, BACK_OFF_MOST, END_GRACE, LIVED};
use super::{AgentConfig, AgentEvent, Bundle, Processes};
use crate::control::{Next, carry};
use crate::quic::limits::CONNECT_DEADLINE;
use crate::quic::{Purpose, bind_client, close, connect};
use crate::trust::{PeerIdentity, Role};
use crate::wire::limits::HELLO_FRAME_BYTES;
use crate::wire::{read_frame, write_frame};
use crate::worker::TallyFile;

/// What the actor is told.
#[derive(Debug)]
pub(super) enum Message {
    /// By itself: start one more worker.
    Start,
    /// By a child's task: it ended.
    Ended { worker: WorkerId, how: String, ending: Ending },
    /// By the coordinator.
    Ordered(AgentOrder),
    /// By the control connection: it broke.
    ControlLost { why: String },
    /// By the embedding program: let the children end, then end.
    End,
    /// By the clock: the children had their time.
    EndNow,
}

pub(super) struct Shell;

pub(super) struct Arguments {
    pub(super) config: AgentConfig,
    pub(super) events: mpsc::UnboundedSender<AgentEvent>,
    pub(super) processes: Processes,
}

pub(super) struct State {
    config: AgentConfig,
    program: Program,
    events: mpsc::UnboundedSender<AgentEvent>,
    processes: Processes,
    /// Where children count their gradients; private to this user, and gone with the agent.
    folder: TempDir,
    children: BTreeMap<WorkerId, Running>,
    control: mpsc::UnboundedSender<AgentMessage>,
    restarts_left: u32,
    /// Children that ended soon after their start, in a row.
    failures: u32,
    /// Starts that wait for their back-off.
    pending: u32,
    mode: Mode,
}

#[derive(Debug)]
struct Running {
    task: AbortHandle,
    started: Instant,
    tally: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Children that end badly are replaced.
    Keeping,
    /// The job is over: children end, none is started.
    Ending,
    /// The agent ends with its last child.
    Leaving,
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
        } = arguments;
        let folder = tempfile::Builder::new().prefix("sardana-agent-").tempdir()?;
        let control = report_to(&config, &myself).await?;
        for _ in 0..config.workers {
            myself.cast(Message::Start)?;
        }
        Ok(State {
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
            folder,
            children: BTreeMap::new(),
            control,
            failures: 0,
            mode: Mode::Keeping,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Start => state.start(&myself),
            Message::Ended { worker, how, ending } => state.ended(&myself, worker, how, ending),
            Message::Ordered(AgentOrder::JobOver) => state.mode = state.mode.max(Mode::Ending),
            Message::ControlLost { why } => {
                tracing::debug!(%why, "the agent lost its coordinator");
                state.control = report_to(&state.config, &myself).await.unwrap_or_else(|error| {
                    tracing::warn!(target: "sardana::event::control_lost", %error, "ends of workers cannot be reported");
                    mpsc::unbounded_channel().0
                });
            }
            Message::End => {
                state.mode = Mode::Leaving;
                drop(myself.send_after(END_GRACE, || Message::EndNow));
            }
            Message::EndNow => state.children.clear(),
        }
        if state.mode == Mode::Leaving && state.children.is_empty() {
            myself.stop(None);
        }
        Ok(())
    }
}

impl Mode {
    fn max(self, other: Self) -> Self {
        if self == Self::Leaving { self } else { other }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process is killed with its task.
        self.task.abort();
    }
}

impl State {
    fn start(&mut self, myself: &ActorRef<Message>) {
        self.pending = self.pending.saturating_sub(1);
        if self.mode != Mode::Keeping {
            return;
        }
        match self.spawn(myself) {
            Ok((worker, pid)) => self.tell(AgentEvent::Started { worker, pid }),
            Err(reason) => {
                self.tell(AgentEvent::NotStarted { reason });
                self.replace(myself, Duration::ZERO);
            }
        }
    }

    fn spawn(&mut self, myself: &ActorRef<Message>) -> Result<(WorkerId, u32), String> {
        let program = self.program.program.display();
        let worker = WorkerId::new(getrandom::u64().map_err(|error| error.to_string())?);
        let credentials = self
            .config
            .authority
            .issue(Role::Worker, worker.get())
            .map_err(|error| error.to_string())?;
        let tally = self.folder.path().join(worker.to_string());
        std::fs::write(&tally, []).map_err(|error| format!("{}: {error}", tally.display()))?;
        let process = Process::start(&self.program).map_err(|error| format!("{program} could not be started: {error}"))?;
        let pid = process.pid().ok_or_else(|| format!("{program} ended at once"))?;
        let bundle = Bundle {
            credentials,
            coordinator: self.config.coordinator,
            listen: self.config.listen,
            tally: Some(tally.clone()),
        };
        let agent = myself.clone();
        let task = tokio::spawn(async move {
            let (how, ending) = process.run(&bundle).await;
            // The agent is gone only if the program ends.
            let _ = agent.cast(Message::Ended { worker, how, ending });
        });
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(worker, pid);
        self.children.insert(
            worker,
            Running {
                task: task.abort_handle(),
                started: Instant::now(),
                tally,
            },
        );
        Ok((worker, pid))
    }

    fn ended(&mut self, myself: &ActorRef<Message>, worker: WorkerId, how: String, ending: Ending) {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
        let Some(child) = self.children.remove(&worker) else { return };
        let tally = TallyFile::read(&child.tally);
        let lived = child.started.elapsed();
        let restarting = self.mode == Mode::Keeping && ending == Ending::Bad && self.restarts_left > 0;
        // The coordinator first: others wait for this.
        let exited = AgentMessage::ChildExited {
            worker,
            how: how.clone(),
            tally,
            restarting,
        };
        let _ = self.control.send(exited);
        self.tell(AgentEvent::Ended { worker, how });
        if restarting {
            self.replace(myself, lived);
        }
        if self.children.is_empty() && self.pending == 0 {
            self.tell(AgentEvent::Exhausted);
        }
    }

    /// Starts a worker for one that ended, later if they end soon.
    fn replace(&mut self, myself: &ActorRef<Message>, lived: Duration) {
        if self.restarts_left == 0 {
            if self.children.is_empty() && self.pending == 0 {
                self.tell(AgentEvent::Exhausted);
            }
            return;
        }
        self.restarts_left -= 1;
        self.pending += 1;
        self.failures = if lived >= LIVED { 0 } else { self.failures + 1 };
        let doublings = self.failures.saturating_sub(1).min(10);
        let wait = if self.failures <= 1 {
            Duration::ZERO
        } else {
            (BACK_OFF * 2_u32.pow(doublings - 1)).min(BACK_OFF_MOST)
        };
        let agent = myself.clone();
        tokio::spawn(async move {
            sleep(wait).await;
            // The agent is gone only if the program ends.
            let _ = agent.cast(Message::Start);
        });
    }

    fn tell(&self, event: AgentEvent) {
        // Nobody may be listening.
        let _ = self.events.send(event);
    }
}

/// Makes the control connection. What is put into the queue goes to the coordinator.
async fn report_to(
    config: &AgentConfig,
    agent: &ActorRef<Message>,
) -> Result<mpsc::UnboundedSender<AgentMessage>, ActorProcessingErr> {
    let endpoint = bind_client(&config.credentials, Purpose::Control, config.coordinator)?;
    let job = config.credentials.job();
    let connection = connect(
        &endpoint,
        config.coordinator,
        PeerIdentity::coordinator(job),
        CONNECT_DEADLINE,
    )
    .await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    write_frame(&mut send, &Hello::Agent { job }, HELLO_FRAME_BYTES).await?;
    match read_frame::<Greeting>(&mut receive, HELLO_FRAME_BYTES).await? {
        Some(Greeting::Welcome) => {}
        Some(Greeting::Refused { reason }) => return Err(reason.into()),
        None => return Err("the coordinator closed without an answer".into()),
    }
    let (queue, outgoing) = mpsc::unbounded_channel();
    let agent = agent.clone();
    tokio::spawn(async move {
        let ordered = |order: AgentOrder| match agent.cast(Message::Ordered(order)) {
            Ok(()) => Next::Message,
            Err(_) => Next::Stop,
        };
        let why = carry(send, receive, outgoing, ordered, |_| {}).await;
        let _ = agent.cast(Message::ControlLost { why });
        close(&endpoint, "the agent leaves").await;
    });
    Ok(queue)
}
