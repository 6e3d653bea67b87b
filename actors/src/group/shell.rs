//! Between the machine of a group's worker, the coordinator, the links to other workers, and the program. Takes no decision.

use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};

use sardana_collectives::group::{Group, GroupError};
use sardana_collectives::links::LinkError;
use sardana_collectives::ring::RingLinks;
use sardana_net::environment::Environment;
use sardana_protocol::limits::HEARTBEAT;
use sardana_protocol::member::{GroupCommand, GroupEvent};
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{CoordinatorMessage, Form, WorkerHello, WorkerMessage};
use sardana_protocol::state::StatePieces;
use sardana_protocol::words::{Generation, Incarnation, WorkerId};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::control::{Control, Machine};
use super::current::Current;
use super::linking::start_linking;
use super::nothing::Nothing;
use super::{GroupConfig, GroupEnded, Request};
use crate::peers::{LinkingError, PeerGroup, Peers};
use crate::worker::limits::LEAVE_PATIENCE;
use crate::worker::{JoinError, Link, LinkNews, Looking, WorkerError, WorkerRenewal};

/// What the shell is told.
#[derive(Debug)]
pub(super) enum Message {
    /// By the control connection: the coordinator has welcomed this worker, and hears what is said there.
    Joined {
        incarnation: Incarnation,
        say: mpsc::UnboundedSender<WorkerMessage>,
    },
    /// By the control connection: the coordinator said this.
    Told(CoordinatorMessage),
    /// By the control connection: it broke.
    ControlLost { why: String },
    /// By the control connection: it could not be made.
    NotJoined(Box<JoinError>),
    /// By a task that makes links: these are they.
    Linked {
        generation: Generation,
        made: Result<RingLinks, Vec<LinkingError>>,
    },
    /// By a group's alarm: an operation has failed.
    Broke {
        generation: Generation,
        reason: Arc<GroupError>,
    },
}

/// How the worker ends.
type End = Result<GroupEnded, WorkerError>;

struct Shell {
    machine: Machine,
    hello: WorkerHello,
    link: Link,
    peers: Arc<Peers>,
    control: Control,
    /// Where it is said to the coordinator; none while there is none. What has to be heard is said again.
    say: Option<mpsc::UnboundedSender<WorkerMessage>>,
    messages: mpsc::UnboundedSender<Message>,
    current: Option<Current>,
    program: Program,
    renewal: WorkerRenewal,
    links: LinkNews,
}

/// What the program waits for.
#[derive(Default)]
struct Program {
    next: Option<SyncSender<Group>>,
    /// The generation that it has finished in, and where it hears that this does not count.
    finishing: Option<(Generation, SyncSender<Arc<GroupError>>)>,
    /// When it asked to leave.
    leaving: Option<Instant>,
}

pub(super) async fn take_part(
    environment: Environment,
    config: GroupConfig,
    mut requests: mpsc::UnboundedReceiver<Request>,
) -> End {
    let (messages, mut inbox) = mpsc::unbounded_channel();
    let mut shell = Shell::new(&environment, &config, messages)?;
    let mut beat = interval(HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = loop {
        let end = tokio::select! {
            biased;
            // It keeps a sender itself.
            Some(message) = inbox.recv() => shell.told(message),
            request = requests.recv() => match request {
                Some(request) => {
                    shell.asked(request);
                    None
                }
                None => Some(Ok(GroupEnded::Dropped)),
            },
            _ = beat.tick() => shell.beat(),
        };
        if let Some(end) = end {
            break end;
        }
    };
    shell.end(&end).await;
    end
}

impl Shell {
    fn new(
        environment: &Environment,
        config: &GroupConfig,
        messages: mpsc::UnboundedSender<Message>,
    ) -> Result<Self, WorkerError> {
        let credentials = &config.credentials;
        let paths = (config.links, config.reach);
        let (nothing, no_pieces) = (Arc::new(Nothing::default()), Arc::new(StatePieces::new([])));
        let peers = Peers::listen_on(environment.clone(), credentials, config.listen, paths, nothing, no_pieces)?;
        let listening = peers.local_address().map_err(|error| WorkerError::Broken {
            reason: error.to_string(),
        })?;
        let link = Link::new(environment, credentials, &config.coordinator)?;
        let machine = Machine::default();
        let introduction = machine.lock().unwrap_or_else(PoisonError::into_inner).introduction();
        let hello = WorkerHello {
            job: credentials.job(),
            worker: WorkerId::new(credentials.id()),
            identity: config.identity.clone(),
            introduction,
            // It is given no shards, and has no gradients.
            shard_capacity: 1,
            memory: GradientMemory::unbounded(1),
            address: SocketAddr::new(config.advertise.unwrap_or(listening.ip()), listening.port()),
            auxiliary: Vec::new(),
            call: link.next_call(),
            device_memory: None,
            host_hash: peers.host_hash(),
        };
        Ok(Self {
            control: Control::start(
                link.clone(),
                Arc::clone(&machine),
                hello.clone(),
                Looking::First,
                messages.clone(),
            ),
            renewal: WorkerRenewal::new(credentials, environment),
            machine,
            hello,
            link,
            peers,
            say: None,
            messages,
            current: None,
            program: Program::default(),
            links: LinkNews::new(),
        })
    }

    fn told(&mut self, message: Message) -> Option<End> {
        match message {
            Message::Joined { incarnation, say } => {
                self.say = Some(say);
                self.handle(GroupEvent::Welcomed { incarnation });
            }
            Message::Told(CoordinatorMessage::Released { .. }) => return Some(Ok(GroupEnded::Released)),
            Message::Told(CoordinatorMessage::Complete { .. }) => return Some(Ok(GroupEnded::Done)),
            Message::Told(CoordinatorMessage::Dismiss { reason }) => return Some(Err(WorkerError::Dismissed { reason })),
            Message::Told(CoordinatorMessage::Renewed { certificate }) => self.renewal.renewed(certificate),
            Message::Told(message) => self.handle(GroupEvent::Ordered(message)),
            Message::ControlLost { why } => {
                self.say = None;
                tracing::warn!(target: "sardana::event::control_lost", %why, "the group goes on, looking for the coordinator");
                let (link, machine) = (self.link.clone(), Arc::clone(&self.machine));
                self.control = Control::start(link, machine, self.hello.clone(), Looking::Again, self.messages.clone());
            }
            // A worker that was no longer needed.
            Message::NotJoined(error) if matches!(*error, JoinError::Over) => return Some(Ok(GroupEnded::Done)),
            Message::NotJoined(error) => return Some(Err(error.into())),
            Message::Linked { generation, made } => self.linked(generation, made),
            Message::Broke { generation, reason } => self.broke(generation, &reason),
        }
        None
    }

    /// Hands in an event, and does what the machine says.
    fn handle(&mut self, event: GroupEvent) {
        let commands = self.machine.lock().unwrap_or_else(PoisonError::into_inner).handle(event);
        for command in commands {
            match command {
                GroupCommand::Send(message) => self.say(message),
                GroupCommand::Connect(form) => self.connect(form),
                GroupCommand::Abort { next, .. } => self.abort(next),
            }
        }
    }

    fn say(&self, message: WorkerMessage) {
        if let Some(say) = &self.say {
            // A connection that is gone is made anew.
            let _ = say.send(message);
        }
    }

    fn connect(&mut self, form: Box<Form>) {
        let generation = form.generation;
        self.peers
            .name(PeerGroup::Present, form.peers.iter().map(|peer| peer.member.worker));
        self.peers.part(&self.peers.parted());
        self.peers.fence(generation);
        let (peers, wanted) = (Arc::clone(&self.peers), form.clone());
        let others = form.peers.iter().map(|peer| peer.member.worker).collect();
        let links = async move { peers.link(&wanted).await };
        let task = start_linking(generation, others, self.messages.clone(), links);
        self.current = Some(Current::new(form, task));
    }

    /// The generation is over, if there is one. What is older than `next` is refused from here on, before the coordinator is promised so.
    fn abort(&mut self, next: Generation) {
        self.peers.fence(next);
        self.over(format!("{next} is formed, as workers came, left, were lost, or gave it up"));
        self.peers.name(PeerGroup::Present, []);
    }

    /// Ends the group that there is, for this reason.
    fn over(&mut self, reason: String) {
        let Some(current) = self.current.take() else { return };
        let generation = current.form.generation;
        current.alarm.raise(Arc::new(GroupError::Over { generation, reason }));
        let of_it = |(finished, _): &mut (Generation, _)| *finished == generation;
        if let (Some((_, goes_on)), Some(reason)) = (self.program.finishing.take_if(of_it), current.alarm.reason()) {
            // The program waits there.
            let _ = goes_on.send(reason);
        }
    }

    fn linked(&mut self, generation: Generation, made: Result<RingLinks, Vec<LinkingError>>) {
        let Some(current) = self.current.as_mut().filter(|current| current.form.generation == generation) else {
            return;
        };
        match made {
            // The machine has looked whether the parts are those of a group.
            Ok(links) => current.is_linked(links),
            Err(errors) => {
                for error in &errors {
                    tracing::info!(%generation, rank = %current.form.rank, %error, "a link could not be made");
                }
                let peers = errors.iter().map(LinkingError::peer);
                return peers.for_each(|peer| self.handle(GroupEvent::LinkBroken { generation, peer }));
            }
        }
        let (alarm, messages) = (current.alarm.clone(), self.messages.clone());
        let watching = tokio::spawn(async move {
            let reason = alarm.raised().await;
            let _ = messages.send(Message::Broke { generation, reason });
        });
        current.task = watching.abort_handle();
        if let Some(news) = self.links.of(&self.peers) {
            self.say(news);
        }
        self.handle(GroupEvent::LinksReady { generation });
        self.hand_over();
    }

    /// Gives the program what it waits for, if that is there.
    fn hand_over(&mut self) {
        let Some(current) = self.current.as_mut().filter(|current| current.is_ready()) else {
            return;
        };
        if let Some(next) = self.program.next.take()
            && let Some(group) = current.hand_over()
        {
            // It waits there, or has ended.
            let _ = next.send(group);
        }
    }

    /// An operation has failed. A connection that is lost speaks against its ends; a link that the other end has given up does not.
    fn broke(&mut self, generation: Generation, reason: &GroupError) {
        tracing::info!(%generation, %reason, "the group is broken");
        let form = self.current.as_ref().map(|current| &current.form);
        let form = form.filter(|form| form.generation == generation);
        if let GroupError::Link {
            peer,
            source: LinkError::Lost(_),
            ..
        } = reason
            && let Some(member) = form.and_then(|form| form.peer(*peer))
        {
            let peer = member.worker;
            self.handle(GroupEvent::LinkBroken { generation, peer });
        }
        self.handle(GroupEvent::GivenUp { generation });
    }

    fn asked(&mut self, request: Request) {
        let of_now = self.current.as_ref();
        let of_now = of_now.map(|current| (current.form.generation, current.is_handed_over()));
        match request {
            Request::Next { reply } => {
                self.program.next = Some(reply);
                match of_now {
                    Some((generation, true)) => {
                        let reason = "its program asks for the next generation".to_owned();
                        if let Some(current) = &self.current {
                            current.alarm.raise(Arc::new(GroupError::Over { generation, reason }));
                        }
                        self.handle(GroupEvent::GivenUp { generation });
                    }
                    Some((_, false)) => self.hand_over(),
                    None => {}
                }
            }
            Request::Finish { generation, goes_on } if of_now == Some((generation, true)) => {
                self.program.finishing = Some((generation, goes_on));
                self.handle(GroupEvent::Done { generation });
            }
            Request::Finish { generation, goes_on } => {
                let reason = "another one has begun, or is about to".to_owned();
                // The program waits there.
                let _ = goes_on.send(Arc::new(GroupError::Over { generation, reason }));
            }
            Request::Leave { reason } => {
                self.program.leaving.get_or_insert_with(Instant::now);
                self.handle(GroupEvent::Leave { reason });
            }
        }
    }

    fn beat(&mut self) -> Option<End> {
        if self.program.leaving.is_some_and(|since| since.elapsed() >= LEAVE_PATIENCE) {
            tracing::warn!(worker = %self.hello.worker, "no coordinator released this worker in time: it leaves all the same");
            return Some(Ok(GroupEnded::Released));
        }
        self.handle(GroupEvent::Beat);
        if self.say.is_some()
            && let Some(news) = self.links.of(&self.peers)
        {
            self.say(news);
        }
        if let Some(message) = self.renewal.beat() {
            self.say(message);
        }
        None
    }

    async fn end(mut self, end: &End) {
        // A program that has finished, or hears why from its member, does not go on.
        self.program.finishing = None;
        self.over(match end {
            Ok(GroupEnded::Done) => "the job is done, or was stopped".to_owned(),
            Ok(GroupEnded::Released) => "this worker has left the job".to_owned(),
            Ok(GroupEnded::Dropped) => "its program has let go of the job".to_owned(),
            Err(error) => error.to_string(),
        });
        drop(self.say.take());
        self.control.finish().await;
        self.link.close().await;
        self.peers.close("the worker ends").await;
    }
}
