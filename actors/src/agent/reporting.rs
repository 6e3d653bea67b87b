//! The agent's control connection: reports ends of children, and keeps what it could not report until the coordinator is back.

use std::collections::VecDeque;
use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use ractor::{ActorProcessingErr, ActorRef};
use sardana_net::control::carry;
use sardana_net::dialler::Dialler;
use sardana_net::environment::Environment;
use sardana_net::quic::close;
use sardana_net::trust::RotatingCredentials;
use sardana_protocol::limits::MAX_WORKERS;
use sardana_protocol::messages::{AgentHello, AgentMessage, AgentOrder, Greeting, Hello};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::actor::Message;
use super::limits::{ENDS_KEPT, RECONNECT_EVERY, REFUSED_EVERY};
use super::{AgentConfig, Processes};

/// Says what must be said to the coordinator.
#[derive(Debug)]
pub(super) struct Reporting {
    link: Link,
    /// None while there is no coordinator.
    queue: Option<mpsc::UnboundedSender<AgentMessage>>,
    unsaid: Vec<AgentMessage>,
    /// How the last children ended: a connection that breaks takes along what was said last, and a new coordinator knows nothing.
    ended: Ends,
}

/// The last [`ENDS_KEPT`] ends of children.
#[derive(Clone, Default)]
struct Ends(VecDeque<AgentMessage>);

impl Ends {
    fn remember(&mut self, end: AgentMessage) {
        self.0.push_back(end);
        if self.0.len() > ENDS_KEPT {
            self.0.pop_front();
        }
    }
}

/// Only how many: a thousand of them tell a person nothing.
impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of at most {ENDS_KEPT}", self.0.len())
    }
}

/// What a connection is made from.
#[derive(Debug, Clone)]
struct Link {
    dialler: Dialler,
    host: String,
    /// The children that run.
    processes: Processes,
}

/// The coordinator was not reached.
struct Unreached {
    why: String,
    /// When it makes sense to try again.
    pause: Duration,
}

impl Reporting {
    /// Makes the first connection.
    pub(super) async fn start(
        rotating: RotatingCredentials,
        config: &AgentConfig,
        processes: Processes,
        agent: &ActorRef<Message>,
    ) -> Result<Self, ActorProcessingErr> {
        let link = Link {
            dialler: Dialler::new(Environment::Host, rotating, &config.coordinator),
            host: config.host.clone(),
            processes,
        };
        let queue = link.connect(agent).await.map_err(|unreached| unreached.why)?;
        Ok(Self {
            link,
            queue: Some(queue),
            unsaid: Vec::new(),
            ended: Ends::default(),
        })
    }

    /// Whether there is a coordinator, as far as is known.
    pub(super) fn is_connected(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| !queue.is_closed())
    }

    /// Tells the coordinator now, or when it is back.
    pub(super) fn report(&mut self, message: AgentMessage) {
        if let AgentMessage::ChildExited { worker, how, tally, .. } = &message {
            // Said again it brings no successor.
            self.ended.remember(AgentMessage::ChildExited {
                worker: *worker,
                how: how.clone(),
                tally: *tally,
                restarting: false,
            });
        }
        self.say_or_keep(message);
    }

    fn say_or_keep(&mut self, message: AgentMessage) {
        let unsaid = match &self.queue {
            Some(queue) => queue.send(message).err().map(|error| error.0),
            None => Some(message),
        };
        self.unsaid.extend(unsaid);
    }

    /// Tells the coordinator now, or not at all. Says whether there is one.
    pub(super) fn say(&self, message: AgentMessage) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.send(message).is_ok())
    }

    /// The connection broke or could not be made: makes another one, for as long as it takes. The agent goes on meanwhile.
    pub(super) fn lost(&mut self, why: &str, agent: &ActorRef<Message>) {
        tracing::warn!(target: "sardana::event::control_lost", %why, "ends of workers are reported later");
        self.queue = None;
        let (link, agent) = (self.link.clone(), agent.clone());
        tokio::spawn(async move {
            let message = match link.connect(&agent).await {
                Ok(queue) => Message::ControlMade { queue },
                Err(Unreached { why, pause }) => {
                    sleep(pause).await;
                    Message::ControlLost { why }
                }
            };
            // The agent is gone only when its program ends.
            let _ = agent.cast(message);
        });
    }

    /// The connection is made.
    pub(super) fn made(&mut self, queue: mpsc::UnboundedSender<AgentMessage>) {
        self.queue = Some(queue);
        let unsaid = std::mem::take(&mut self.unsaid);
        // Messages that are still to be said come first, with their successors.
        let again = self.ended.clone();
        for message in unsaid.into_iter().chain(again.0) {
            self.say_or_keep(message);
        }
    }
}

impl Link {
    fn hello(&self) -> AgentHello {
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        AgentHello {
            job: self.dialler.rotating().job(),
            host: self.host.clone(),
            // More never run at once.
            children: processes.keys().take(MAX_WORKERS as usize).copied().collect(),
        }
    }

    /// Makes a connection. What is put into the queue goes to the coordinator.
    async fn connect(&self, agent: &ActorRef<Message>) -> Result<mpsc::UnboundedSender<AgentMessage>, Unreached> {
        let address = self.dialler.search().here();
        let welcome = |greeting| matches!(greeting, Greeting::Welcome).then_some(());
        let dialled = self.dialler.dial(|| Hello::Agent(self.hello()), welcome).await;
        let welcomed = dialled.map_err(|error| Unreached {
            why: format!("the coordinator at {address}: {error}"),
            pause: if error.is_up_to_people() {
                REFUSED_EVERY
            } else {
                RECONNECT_EVERY
            },
        })?;
        let (queue, outgoing) = mpsc::unbounded_channel();
        let agent = agent.clone();
        tokio::spawn(async move {
            let ordered = |order: AgentOrder, _| agent.cast(Message::Ordered(order)).is_ok();
            let why = carry(&welcomed.connection, welcomed.streams, outgoing, ordered, |_| {}).await;
            let _ = agent.cast(Message::ControlLost { why });
            close(&welcomed.endpoint, "the agent leaves").await;
        });
        Ok(queue)
    }
}
