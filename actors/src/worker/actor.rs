//! The worker's actor: between the desk, the coordinator and the other workers. Takes no decision.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use sardana_collectives::gradient::Sum;
use sardana_protocol::limits::{HEARTBEAT, MAX_TEXT_BYTES};
use sardana_protocol::member::{Event, Heartbeat, Member};
use sardana_protocol::messages::{CatchUp, CoordinatorMessage, MemberAddress, WorkerHello, WorkerMessage};
use sardana_protocol::words::{Generation, Step, WorkerId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, interval};

use super::control::{Control, ControlArguments, JoinError, Link};
use super::desk::{Data, Desk, Errand};
use super::limits::{BEAT_EVERY, LAST_WORDS, RETRY_EVERY};
use super::renewal::WorkerRenewal;
use super::ring::Ring;
use super::{Ended, WorkerConfig, WorkerError};
use crate::fault::{self, Point};
use crate::peers::Peers;

/// What the actor is told.
#[derive(Debug)]
pub(super) enum Message {
    /// By the control connection: the coordinator said this.
    Told(CoordinatorMessage),
    /// By the control connection: it broke.
    ControlLost { why: String },
    /// By the control connection: it could not be made.
    NotJoined(JoinError),
    /// By the desk: the machine wants this.
    Do(Errand),
    /// By the ring: its links are made.
    LinksReady { generation: Generation },
    /// By the ring or a transfer: a neighbour or donor failed.
    LinkBroken { generation: Generation, peer: WorkerId },
    /// By a transfer: this arrived.
    Fetched { generation: Generation, step: Step, data: Data },
    /// By the training thread, or a ring with senseless orders: this worker cannot go on.
    Failed { reason: String },
    /// By the clock.
    Beat,
}

pub(super) struct Worker;

pub(super) struct Arguments {
    pub(super) config: WorkerConfig,
    pub(super) address: SocketAddr,
    pub(super) desk: Arc<Desk>,
    pub(super) peers: Arc<Peers>,
    pub(super) ended: oneshot::Sender<Result<Ended, WorkerError>>,
}

pub(super) struct State {
    config: WorkerConfig,
    hello: WorkerHello,
    link: Link,
    desk: Arc<Desk>,
    peers: Arc<Peers>,
    control: ActorRef<WorkerMessage>,
    ring: Option<AbortHandle>,
    fetch: Option<AbortHandle>,
    spoke: Instant,
    renewal: WorkerRenewal,
    ended: Option<oneshot::Sender<Result<Ended, WorkerError>>>,
}

/// Carries the desk's errands, the training thread's failures and the clock's beats to the actor.
pub(super) fn forward(
    worker: &ActorRef<Message>,
    mut errands: mpsc::UnboundedReceiver<Errand>,
    mut failures: mpsc::UnboundedReceiver<String>,
) {
    let worker = worker.clone();
    tokio::spawn(async move {
        let mut beat = interval(BEAT_EVERY);
        loop {
            let message = tokio::select! {
                biased;
                Some(errand) = errands.recv() => Message::Do(errand),
                Some(reason) = failures.recv() => Message::Failed { reason },
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
            desk,
            peers,
            ended,
        } = arguments;
        let (generation, rank, world_size, training, standing) = desk.read(Member::introduction);
        let hello = WorkerHello {
            job: config.credentials.job(),
            worker: WorkerId::new(config.credentials.id()),
            identity: config.identity.clone(),
            generation,
            rank,
            world_size,
            training,
            standing,
            shard_capacity: config.shard_capacity,
            address,
            auxiliary: Vec::new(),
        };
        let link = Link::new(&config)?;
        let control = connect(&myself, &link, &desk, &hello, Duration::ZERO).await?;
        Ok(State {
            renewal: WorkerRenewal::new(&config.credentials),
            config,
            hello,
            link,
            desk,
            peers,
            control,
            ring: None,
            fetch: None,
            spoke: Instant::now(),
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
            Message::Told(message) => state.told(message),
            // After a dismissal or the job's end it is not looked for again.
            Message::ControlLost { .. } if state.ended.is_none() => {}
            Message::ControlLost { why } => {
                tracing::warn!(target: "sardana::event::control_lost", %why, "training goes on, looking for the coordinator");
                state.control = connect(&myself, &state.link, &state.desk, &state.hello, RETRY_EVERY).await?;
            }
            Message::NotJoined(error) => state.end(Err(Box::new(error).into())),
            Message::Do(errand) => state.execute(&myself, errand),
            Message::LinksReady { generation } => state.desk.handle(Event::LinksReady { generation }, Data::None),
            Message::LinkBroken { generation, peer } => {
                state.desk.handle(Event::LinkBroken { generation, peer }, Data::None);
            }
            Message::Fetched { generation, step, data } => state.desk.handle(Event::Fetched { generation, step }, data),
            Message::Failed { reason } => {
                let reason = cut(reason);
                let _ = state.control.cast(WorkerMessage::Failed { reason: reason.clone() });
                // The coordinator dismisses everybody; it need not be waited for.
                state.end(Err(WorkerError::Model { reason }));
            }
            Message::Beat => {
                state.beat();
                if let Some(message) = state.renewal.beat() {
                    let _ = state.control.cast(message);
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // The control connection says itself why it ends; only a panic has to be noticed here.
        if let SupervisionEvent::ActorFailed(child, reason) = event
            && child.get_id() == state.control.get_id()
        {
            let _ = myself.cast(Message::ControlLost { why: reason.to_string() });
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Message>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.abort();
        // Whatever it does not get rid of in time is lost with its connection.
        let _ = state.control.drain_and_wait(Some(2 * LAST_WORDS)).await;
        state.link.close().await;
        Ok(())
    }
}

/// What a model says may be of any length; a message may not.
fn cut(mut reason: String) -> String {
    let end = (0..=MAX_TEXT_BYTES.min(reason.len()))
        .rev()
        .find(|&end| reason.is_char_boundary(end));
    reason.truncate(end.unwrap_or(0));
    reason
}

async fn connect(
    myself: &ActorRef<Message>,
    link: &Link,
    desk: &Arc<Desk>,
    hello: &WorkerHello,
    pause: Duration,
) -> Result<ActorRef<WorkerMessage>, ActorProcessingErr> {
    let arguments = ControlArguments {
        link: link.clone(),
        worker: myself.clone(),
        desk: Arc::clone(desk),
        hello: hello.clone(),
        pause,
    };
    let (control, _) = Actor::spawn_linked(None, Control, arguments, myself.get_cell()).await?;
    Ok(control)
}

impl State {
    fn told(&mut self, message: CoordinatorMessage) {
        match message {
            CoordinatorMessage::Halt { generation } => {
                fault::reached(Point::Halt, self.desk.read(Member::step));
                // What is of an older generation is refused from here on, before anybody is promised so.
                self.peers.fence(generation);
                self.desk.handle(Event::Halt { generation }, Data::None);
            }
            CoordinatorMessage::Form(form) => {
                fault::seated(form.rank);
                self.desk.handle(Event::Form(form), Data::None);
            }
            CoordinatorMessage::Prepare(form) => self.desk.handle(Event::Prepare(form), Data::None),
            CoordinatorMessage::CloseWith { generation, trailer } => {
                self.desk.handle(Event::CloseWith { generation, trailer }, Data::None);
            }
            CoordinatorMessage::Serve(serve) => self.desk.handle(Event::Serve(Box::new(serve)), Data::None),
            CoordinatorMessage::Copy(snapshot) => self.desk.handle(Event::Copy(snapshot), Data::None),
            CoordinatorMessage::Renewed { certificate } => self.renewal.renewed(certificate),
            CoordinatorMessage::Released { .. } => {}
            CoordinatorMessage::Complete { step, hash } => self.end(Ok(Ended { step, hash })),
            CoordinatorMessage::Dismiss { reason } => self.end(Err(WorkerError::Dismissed { reason })),
        }
    }

    fn execute(&mut self, myself: &ActorRef<Message>, errand: Errand) {
        match errand {
            Errand::Send(message) => {
                let _ = self.control.cast(message);
            }
            Errand::Connect { form, inbox } => {
                self.abort();
                let (desk, peers) = (Arc::clone(&self.desk), Arc::clone(&self.peers));
                let order = self.config.identity.spec.order;
                let ring = Ring {
                    form: *form,
                    order,
                    inbox,
                    desk,
                    peers,
                    worker: myself.clone(),
                };
                self.ring = Some(tokio::spawn(ring.run()).abort_handle());
            }
            Errand::Abort { generation } => {
                tracing::debug!(%generation, "the ring is given up");
                self.abort();
            }
            Errand::Fetch {
                generation,
                what,
                step,
                donor,
            } => self.fetch(myself, generation, what, step, donor),
        }
    }

    fn fetch(
        &mut self,
        myself: &ActorRef<Message>,
        generation: Generation,
        what: CatchUp,
        step: Step,
        donor: MemberAddress,
    ) {
        let (peers, desk, worker) = (Arc::clone(&self.peers), Arc::clone(&self.desk), myself.clone());
        let state_bytes = self.config.state_bytes;
        let fetching = async move {
            fault::reached(Point::Fetch, step);
            let layout = desk.layout();
            let fetched = match what {
                CatchUp::Sum { .. } => {
                    let bytes = peers.fetch_sum(donor, step, layout.bytes()).await;
                    bytes.map(|bytes| Sum::from_bytes(step, layout, bytes).map_or(Data::None, Data::Sum))
                }
                CatchUp::State { .. } => peers.fetch_state(donor, step, state_bytes).await.map(Data::State),
                CatchUp::None => return,
            };
            let message = match fetched {
                Ok(data) => Message::Fetched { generation, step, data },
                Err(error) => {
                    tracing::warn!(%generation, %step, %error, "catching up failed");
                    Message::LinkBroken {
                        generation,
                        peer: donor.worker,
                    }
                }
            };
            let _ = worker.cast(message);
        };
        self.fetch = Some(tokio::spawn(fetching).abort_handle());
    }

    fn beat(&mut self) {
        let heartbeat = if self.spoke.elapsed() >= HEARTBEAT {
            Heartbeat::Due
        } else {
            Heartbeat::NotDue
        };
        if heartbeat == Heartbeat::Due {
            self.spoke = Instant::now();
        }
        self.desk.handle(Event::Beat { heartbeat }, Data::None);
    }

    fn abort(&mut self) {
        for task in [self.ring.take(), self.fetch.take()].into_iter().flatten() {
            task.abort();
        }
    }

    fn end(&mut self, outcome: Result<Ended, WorkerError>) {
        if let Some(ended) = self.ended.take() {
            // Whoever ran the worker is gone only when the process ends.
            let _ = ended.send(outcome);
        }
    }
}
