//! The worker's actor: between the step driver, the coordinator and the other workers. Takes no decision.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::limits::{AUXILIARY_NAME_BYTES, BEAT_EVERY, MAX_TEXT_BYTES, PIECE_BYTES};
use sardana_protocol::member::{Event, Member};
use sardana_protocol::messages::{CoordinatorMessage, WorkerHello, WorkerMessage};
use sardana_protocol::words::{Generation, Step, WorkerId};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval, timeout};

use super::control::{Control, ControlArguments, JoinError, Link, Looking};
use super::driver::{ActorCommand, Arrival, StepDriver};
use super::limits::{LEAVE_PATIENCE, PASSING_ON};
use super::renewal::WorkerRenewal;
use super::restoring::Reader;
use super::rings::Rings;
use super::saving::{Outcome, Saver};
use super::telling::Telling;
use super::transfers::{Serial, Transfers};
use super::{Ended, WorkerConfig, WorkerError};
use crate::depot::Depots;
use crate::fault::{self, Point};
use crate::peers::Peers;

/// What the actor is told.
#[derive(Debug)]
pub(super) enum Message {
    /// By the control connection: the coordinator said this.
    Told(CoordinatorMessage),
    /// By the control connection: the coordinator has welcomed this worker.
    Joined,
    /// By the control connection: it broke.
    ControlLost {
        why: String,
        /// What is said to the coordinator from then on.
        queue: mpsc::UnboundedReceiver<WorkerMessage>,
    },
    /// By the control connection: it could not be made.
    NotJoined(Box<JoinError>),
    /// By the step driver: the machine wants this.
    Do(ActorCommand),
    /// By the ring: its links are made.
    LinksReady { generation: Generation },
    /// By the ring or a transfer: a neighbour or donor failed.
    LinkBroken { generation: Generation, peer: WorkerId },
    /// By a transfer: this arrived.
    Fetched(Arrival),
    /// By a joiner's transfer: what has come, or why nothing does.
    Transferred { serial: Serial, came: Result<Arrival, Event> },
    /// By the writing of a share: how it ended.
    Written(Box<Outcome>),
    /// By a transfer: the checkpoint could not be loaded.
    NotRestored { generation: Generation, reason: String },
    /// By the host: this process is to end (SIGTERM).
    Terminated,
    /// By the last ring of a worker that was released: everything is passed on.
    Drained { step: Step },
    /// By the training thread, or a ring with senseless orders: this worker cannot go on.
    Failed { reason: String },
    /// By the clock.
    Beat,
}

pub(super) struct Worker;

pub(super) struct Arguments {
    pub(super) config: WorkerConfig,
    pub(super) address: SocketAddr,
    pub(super) driver: Arc<StepDriver>,
    pub(super) peers: Arc<Peers>,
    /// What is said to the coordinator.
    pub(super) messages: mpsc::UnboundedReceiver<WorkerMessage>,
    pub(super) ended: oneshot::Sender<Result<Ended, WorkerError>>,
}

pub(super) struct State {
    pub(super) hello: WorkerHello,
    link: Link,
    pub(super) driver: Arc<StepDriver>,
    pub(super) peers: Arc<Peers>,
    control: Control,
    pub(super) rings: Rings,
    pub(super) transfers: Transfers,
    pub(super) saver: Saver,
    pub(super) reader: Reader,
    joined: Joined,
    /// When it was first asked to leave.
    leaving: Option<Instant>,
    telling: Telling,
    renewal: WorkerRenewal,
    ended: Option<oneshot::Sender<Result<Ended, WorkerError>>>,
}

/// Whether a coordinator has ever welcomed this worker, and whether it still expects something of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joined {
    NotYet,
    Yes,
    Released,
}

/// Carries the step driver's commands, the training thread's failures, the host's signals and the clock's beats to the actor.
pub(super) fn forward(
    worker: &ActorRef<Message>,
    mut commands: mpsc::UnboundedReceiver<ActorCommand>,
    mut failures: mpsc::UnboundedReceiver<String>,
    mut termination: Option<Signal>,
) {
    let worker = worker.clone();
    tokio::spawn(async move {
        let mut beat = interval(BEAT_EVERY);
        let mut terminated = async move || match &mut termination {
            Some(signal) => signal.recv().await,
            None => None,
        };
        loop {
            let message = tokio::select! {
                biased;
                Some(command) = commands.recv() => Message::Do(command),
                Some(reason) = failures.recv() => Message::Failed { reason },
                Some(()) = terminated() => Message::Terminated,
                _ = beat.tick() => Message::Beat,
            };
            if worker.cast(message).is_err() {
                return;
            }
        }
    });
}

impl Actor for Worker {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, myself: ActorRef<Message>, arguments: Arguments) -> Result<State, ActorProcessingErr> {
        let Arguments {
            config,
            address,
            driver,
            peers,
            messages,
            ended,
        } = arguments;
        let link = Link::new(peers.environment(), &config.credentials, &config.coordinator)?;
        let memory = config.memory_for(driver.layout().bytes() as u64);
        driver.hold_at_most(memory.pieces());
        let hello = WorkerHello {
            job: config.credentials.job(),
            worker: WorkerId::new(config.credentials.id()),
            identity: config.identity.clone(),
            introduction: driver.introduce(),
            shard_capacity: config.shard_capacity,
            memory,
            address,
            auxiliary: config
                .auxiliary
                .iter()
                .map(|name| cut_to(name.clone(), AUXILIARY_NAME_BYTES))
                .collect(),
            call: link.next_call(),
            device_memory: config.device_memory.clone(),
            host_hash: peers.host_hash(),
        };
        let rings = Rings::new(&config.identity.spec, Arc::clone(&driver), Arc::clone(&peers)).by(config.summation.clone());
        let transfers = Transfers::new(Arc::clone(&driver), Arc::clone(&peers), Arc::clone(&config.pieces));
        let depots = Depots::new(
            peers.environment().clone(),
            peers.endpoint().clone(),
            config.credentials.clone(),
        );
        let description = in_pieces(&config.description);
        let saver = Saver::new(
            Arc::clone(&driver),
            Arc::clone(&depots),
            Arc::clone(&config.pieces),
            Arc::clone(&description),
        );
        let reader = Reader {
            depots,
            peers: Arc::clone(&peers),
            pieces: Arc::clone(&config.pieces),
            description,
        };
        let control = connect(&myself, &link, &driver, &hello, Looking::First, messages);
        Ok(State {
            renewal: WorkerRenewal::new(&config.credentials, peers.environment()),
            hello,
            link,
            driver,
            peers,
            control,
            rings,
            transfers,
            saver,
            reader,
            joined: Joined::NotYet,
            leaving: None,
            telling: Telling::new(),
            ended: Some(ended),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Told(message) => state.told(&myself, message),
            Message::Joined => {
                state.joined = Joined::Yes;
                state.telling.heard(true);
            }
            // After a dismissal, a release or the job's end it is not looked for again.
            Message::ControlLost { .. } if state.ended.is_none() || state.joined == Joined::Released => {}
            Message::ControlLost { why, queue } => {
                state.telling.heard(false);
                tracing::warn!(target: "sardana::event::control_lost", %why, "training goes on, looking for the coordinator");
                state.control = connect(&myself, &state.link, &state.driver, &state.hello, Looking::Again, queue);
            }
            Message::NotJoined(error) => state.end(Err(error.into())),
            Message::Do(command) => state.execute(&myself, command),
            Message::LinksReady { generation } => {
                state.telling.links(&state.driver, &state.peers);
                state.driver.handle(Event::LinksReady { generation });
            }
            Message::LinkBroken { generation, peer } => {
                state.driver.handle(Event::LinkBroken { generation, peer });
            }
            Message::Fetched(arrival) => state.driver.arrived(arrival),
            Message::Transferred { serial, came } => {
                // What was given up may have ended in the meantime.
                if state.transfers.take(serial) {
                    match came {
                        Ok(arrival) => state.driver.arrived(arrival),
                        Err(event) => state.driver.handle(event),
                    }
                }
            }
            Message::Written(outcome) => {
                // What was given up may have ended in the meantime.
                if let Some(event) = state.saver.ended(*outcome) {
                    state.driver.handle(event);
                }
            }
            Message::NotRestored { generation, reason } => {
                state.driver.handle(Event::NotRestored { generation, reason });
            }
            Message::Terminated => state.terminated(),
            Message::Drained { step } => state.end(Ok(Ended::Drained { step })),
            Message::Failed { reason } => {
                let reason = cut(reason);
                state.driver.say(WorkerMessage::Failed { reason: reason.clone() });
                // The coordinator dismisses every worker; it need not be waited for.
                state.end(Err(WorkerError::Model { reason }));
            }
            Message::Beat => {
                state.beat();
                if let Some(message) = state.renewal.beat() {
                    state.driver.say(message);
                }
            }
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Message>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.rings.end();
        state.transfers.end_copy();
        state.transfers.end_fetch();
        // Whatever it does not get rid of in time is lost with its connection.
        drop(state.driver.hang_up());
        state.control.finish().await;
        state.link.close().await;
        Ok(())
    }
}

/// Bytes of any length as pieces.
fn in_pieces(bytes: &Bytes) -> Arc<[(PieceHash, Bytes)]> {
    let starts = (0..bytes.len()).step_by(PIECE_BYTES);
    let pieces = starts.map(|start| bytes.slice(start..bytes.len().min(start + PIECE_BYTES)));
    pieces.map(|piece| (PieceHash::of(&piece), piece)).collect()
}

/// What a model says may be of any length; a message may not.
pub(super) fn cut(reason: String) -> String {
    cut_to(reason, MAX_TEXT_BYTES)
}

fn cut_to(mut text: String, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
    text
}

fn connect(
    worker: &ActorRef<Message>,
    link: &Link,
    driver: &Arc<StepDriver>,
    hello: &WorkerHello,
    looking: Looking,
    queue: mpsc::UnboundedReceiver<WorkerMessage>,
) -> Control {
    Control::start(ControlArguments {
        link: link.clone(),
        worker: worker.clone(),
        driver: Arc::clone(driver),
        hello: hello.clone(),
        looking,
        queue,
    })
}

impl State {
    fn told(&mut self, myself: &ActorRef<Message>, message: CoordinatorMessage) {
        if let CoordinatorMessage::Halt { generation } = message {
            fault::reached(Point::Halt, self.driver.read(Member::step));
            // What is of an older generation is refused from here on, before the coordinator is promised so.
            self.peers.fence(generation);
        } else if let CoordinatorMessage::Form(form) = &message {
            fault::seated(form.rank);
        }
        match message {
            CoordinatorMessage::Released { step } => self.released(myself, step),
            CoordinatorMessage::Renewed { certificate } => self.renewal.renewed(certificate),
            CoordinatorMessage::Complete { step, hash } => self.end(Ok(Ended::Done { step, hash })),
            CoordinatorMessage::Dismiss { reason } => self.end(Err(WorkerError::Dismissed { reason })),
            CoordinatorMessage::Halt { .. }
            | CoordinatorMessage::Form(_)
            | CoordinatorMessage::Prepare(_)
            | CoordinatorMessage::CloseWith { .. }
            | CoordinatorMessage::Serve(_)
            | CoordinatorMessage::Save(_)
            | CoordinatorMessage::SaveOver { .. }
            | CoordinatorMessage::Copy(_) => self.driver.handle(Event::Ordered(message)),
        }
    }

    /// The first time it leaves in good order, if it takes part at all; the second time at once.
    fn terminated(&mut self) {
        match (self.joined, self.leaving) {
            (Joined::Yes, None) => {
                self.leaving = Some(Instant::now());
                let reason = "SIGTERM".to_owned();
                self.driver.handle(Event::Leave { reason });
            }
            (Joined::NotYet, _) => self.end(Err(WorkerError::Terminated {
                how: "before it had joined",
            })),
            // It is ending.
            (Joined::Released, _) => {}
            (Joined::Yes, Some(_)) => self.end(Err(WorkerError::Terminated {
                how: "a second time, before it was released",
            })),
        }
    }

    /// Its part is over, but for what its last ring has still to pass on.
    fn released(&mut self, myself: &ActorRef<Message>, step: Step) {
        self.joined = Joined::Released;
        let (ring, worker) = (self.rings.leave(), myself.clone());
        tokio::spawn(async move {
            if let Some(ring) = ring {
                // A ring that does not end is waiting for a worker that is gone.
                let _ = timeout(PASSING_ON, ring).await;
            }
            let _ = worker.cast(Message::Drained { step });
        });
    }

    fn beat(&mut self) {
        if self.leaving.is_some_and(|since| since.elapsed() >= LEAVE_PATIENCE) {
            self.end(Err(WorkerError::Terminated {
                how: "and no coordinator released it in time",
            }));
        }
        self.telling.beat(&self.driver, &self.peers);
    }

    pub(super) fn end(&mut self, outcome: Result<Ended, WorkerError>) {
        if let Some(ended) = self.ended.take() {
            // The caller that ran the worker is gone only when the process ends.
            let _ = ended.send(outcome);
        }
    }
}
