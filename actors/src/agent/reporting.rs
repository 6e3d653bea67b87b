//! The agent's control connection: reports ends of children, and keeps what it could not report until the coordinator is back.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::Duration;

use ractor::{ActorProcessingErr, ActorRef};
use sardana_net::control::{Next, Unmade, carry};
use sardana_net::enrol::{RenewError, renew_run_out};
use sardana_net::ground::Ground;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, close, connect};
use sardana_net::trust::{PeerIdentity, Wallet};
use sardana_net::whereabouts::Search;
use sardana_net::wire::exchange;
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_protocol::limits::MAX_WORKERS;
use sardana_protocol::messages::{AgentHello, AgentMessage, AgentOrder, Greeting, Hello};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

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
    wallet: Wallet,
    coordinator: Search,
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
        wallet: Wallet,
        config: &AgentConfig,
        processes: Processes,
        agent: &ActorRef<Message>,
    ) -> Result<Self, ActorProcessingErr> {
        let link = Link {
            wallet,
            coordinator: Search::new(&config.coordinator),
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
        // Those that are still to be said come first, with their successors.
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
            job: self.wallet.job(),
            host: self.host.clone(),
            // More never run at once.
            children: processes.keys().take(MAX_WORKERS as usize).copied().collect(),
        }
    }

    /// At the next address, if that fails at this one. With a new certificate, if the one it has has run out meanwhile.
    async fn connect(&self, agent: &ActorRef<Message>) -> Result<mpsc::UnboundedSender<AgentMessage>, Unreached> {
        let address = self.coordinator.here();
        let mut connected = self.connect_to(address, agent).await;
        let mut pause = RECONNECT_EVERY;
        if let Err(Unmade::RunOut(_)) = &connected {
            connected = match renew_run_out(&Ground::Host, &self.wallet, address).await {
                Ok(()) => self.connect_to(address, agent).await,
                Err(error) => {
                    if matches!(error, RenewError::Refused { .. }) {
                        pause = REFUSED_EVERY;
                    }
                    Err(Unmade::Otherwise(error.to_string()))
                }
            };
        }
        connected.map_err(|unmade| {
            self.coordinator.look_elsewhere();
            let (Unmade::RunOut(why) | Unmade::Otherwise(why)) = unmade;
            Unreached { why, pause }
        })
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
        agent: &ActorRef<Message>,
    ) -> Result<mpsc::UnboundedSender<AgentMessage>, Unmade> {
        let no = |why: String| Err(Unmade::Otherwise(why));
        let endpoint =
            bind_client(&self.wallet, Purpose::Control, address).map_err(|error| Unmade::Otherwise(error.to_string()))?;
        let job = self.wallet.job();
        let coordinator = PeerIdentity::coordinator(job);
        let connection = connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await?;
        let (mut send, mut receive) = connection.open_bi().await?;
        let (hello, streams) = (Hello::Agent(self.hello()), (&mut send, &mut receive));
        let greeting = exchange::<_, Greeting>(&connection, streams, (&hello, HELLO_FRAME_BYTES), HELLO_FRAME_BYTES);
        match timeout(CONNECT_DEADLINE, greeting).await {
            Ok(Ok(Some(Greeting::Welcome))) => {}
            Ok(Ok(Some(Greeting::Refused { reason }))) => {
                return no(format!("the coordinator at {address} refused this agent: {reason}"));
            }
            Ok(Ok(Some(Greeting::Fenced | Greeting::Leads { .. } | Greeting::Joined { .. }))) => {
                return no("another coordinator leads the job".to_owned());
            }
            Ok(Ok(Some(Greeting::Over))) => return no("the job is over: start a new one".to_owned()),
            Ok(Ok(None)) => return no(format!("{address} closed without an answer")),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return no(format!("{address} did not answer a hello within {CONNECT_DEADLINE:?}")),
        }
        let (queue, outgoing) = mpsc::unbounded_channel();
        let agent = agent.clone();
        tokio::spawn(async move {
            let ordered = |order: AgentOrder, _| match agent.cast(Message::Ordered(order)) {
                Ok(()) => Next::Message,
                Err(_) => Next::Stop,
            };
            let why = carry(&connection, (send, receive), outgoing, ordered, |_| {}).await;
            let _ = agent.cast(Message::ControlLost { why });
            close(&endpoint, "the agent leaves").await;
        });
        Ok(queue)
    }
}
