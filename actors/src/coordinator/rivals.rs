//! Two coordinators of one job. A coordinator that takes over at a standby's address does not know where the earlier one was. So each
//! coordinator, also one that wakes up after a freeze, asks at the standbys' addresses whether a later one has followed it there. This
//! file decides nothing: the coordinator with the higher incarnation leads.

use std::net::SocketAddr;
use std::time::Duration;

use quinn::Connection;
use ractor::ActorRef;
use sardana_net::environment::Environment;
use sardana_net::quic::limits::{CONNECT_DEADLINE, HANDSHAKE_DEADLINE};
use sardana_net::quic::{BindError, ConnectError, Purpose, bind_client_on, close, connect};
use sardana_net::trust::{PeerIdentity, RotatingCredentials};
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_net::wire::{FrameError, exchange};
use sardana_protocol::membership::JobEvent;
use sardana_protocol::messages::{Greeting, Hello};
use sardana_protocol::words::{Generation, Incarnation};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::Succession;
use super::actor::{Life, Message, State};
use super::session::Streams;

/// Between two looks at a standby's address: so long may two lead at most. A look costs a handshake if any process is there.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// After another process was found there, whose log has a line of each look.
const LOOK_SELDOM: Duration = Duration::from_secs(60);

/// Why a look has found no coordinator.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it did not answer with its number")]
    NoNumber,
    #[error("this coordinator has ended")]
    Ended,
}

impl State {
    /// The newest generation of this coordinator.
    pub(super) fn newest(&self) -> Generation {
        let own = self.job.as_ref().map(|(_, membership)| membership.generation());
        own.unwrap_or(Generation::new(self.config.incarnation, 0))
    }

    /// What it tells another coordinator: its newest generation, or none, if it was only started again and leads no worker yet. However often
    /// it was started, it must not be above a coordinator that leads.
    fn claim(&self) -> Generation {
        let leads = self.job.as_ref().is_some_and(|(_, membership)| membership.leads());
        match self.config.succession {
            Succession::Resume if !leads => Generation::NONE,
            Succession::Resume | Succession::TakeOver => self.newest(),
        }
    }

    /// Another coordinator of this job has announced `newest`. A number that was never given away here was given away there.
    pub(super) fn meets(&mut self, newest: Generation) -> Greeting {
        let own = self.claim();
        if newest > own {
            self.fenced(self.config.incarnation, newest.incarnation());
        }
        Greeting::Leads { newest: own }
    }

    /// A later coordinator leads the job: whatever this one would say counts for nothing.
    pub(super) fn fenced(&mut self, own: Incarnation, by: Incarnation) {
        if self.life == Life::Open {
            self.life = Life::Fenced;
            // The program that receives the event ends this coordinator; the agents, not told that the job is over, look for the other.
            let _ = self.events.send(JobEvent::Fenced { own, by });
        }
    }
}

impl Streams {
    /// Answers a coordinator that asks for this one's number, and tells its own.
    pub(super) async fn greet_rival(self, newest: Generation, coordinator: &ActorRef<Message>) {
        let (reply, greeting) = oneshot::channel();
        let asked = coordinator.cast(Message::Rival { newest, reply });
        let last = self.answer(asked.is_ok(), greeting).await;
        debug_assert!(last.is_none(), "nothing follows a number");
    }
}

/// Looks for another coordinator at `standby` until this one, `coordinator`, has ended.
pub(super) async fn watch(
    environment: Environment,
    rotating: RotatingCredentials,
    standby: SocketAddr,
    coordinator: ActorRef<Message>,
) {
    loop {
        let pause = match look(&environment, &rotating, standby, &coordinator).await {
            Ok(()) => LOOK_EVERY,
            Err(LookError::Ended) => return,
            Err(error) => {
                tracing::debug!(%standby, %error, "no other coordinator");
                error.pause()
            }
        };
        sleep(pause).await;
    }
}

impl LookError {
    fn pause(&self) -> Duration {
        match self {
            Self::Connect(error) if error.may_pass() => LOOK_EVERY,
            Self::Connect(_) | Self::Bind(_) => LOOK_SELDOM,
            Self::Frame(_) | Self::NoNumber | Self::Ended => LOOK_EVERY,
        }
    }
}

/// Tells a coordinator at `standby` this one's number, and this one that coordinator's.
async fn look(
    environment: &Environment,
    rotating: &RotatingCredentials,
    standby: SocketAddr,
    coordinator: &ActorRef<Message>,
) -> Result<(), LookError> {
    let endpoint = bind_client_on(environment, rotating, Purpose::Control, standby)?;
    let looked = async {
        let expected = PeerIdentity::coordinator(rotating.job());
        let connection = connect(&endpoint, standby, expected, CONNECT_DEADLINE).await?;
        // Not before the other is there: dialling may have taken seconds.
        let newest = own_number(coordinator, Generation::NONE).await?;
        let hello = Hello::Coordinator {
            job: rotating.job(),
            newest,
        };
        let theirs = timeout(HANDSHAKE_DEADLINE, compare(&connection, &hello)).await;
        let theirs = theirs.map_err(|_| LookError::NoNumber)??;
        tracing::debug!(%standby, %theirs, "another coordinator of this job");
        own_number(coordinator, theirs).await
    };
    let looked = looked.await;
    close(&endpoint, "thank you").await;
    looked.map(drop)
}

/// Tells this coordinator of another one's number, and asks for its own.
async fn own_number(coordinator: &ActorRef<Message>, theirs: Generation) -> Result<Generation, LookError> {
    let (reply, answer) = oneshot::channel();
    let asked = coordinator.cast(Message::Rival { newest: theirs, reply });
    asked.map_err(|_| LookError::Ended)?;
    number(answer.await.map_err(|_| LookError::Ended)?)
}

async fn compare(connection: &Connection, hello: &Hello) -> Result<Generation, LookError> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(FrameError::Connection)?;
    let streams = (&mut send, &mut receive);
    let answer = exchange::<_, Greeting>(connection, streams, (hello, HELLO_FRAME_BYTES), HELLO_FRAME_BYTES).await?;
    number(answer.ok_or(LookError::NoNumber)?)
}

fn number(greeting: Greeting) -> Result<Generation, LookError> {
    match greeting {
        Greeting::Leads { newest } => Ok(newest),
        Greeting::Welcome | Greeting::Refused { .. } | Greeting::Over | Greeting::Joined { .. } | Greeting::Fenced => {
            Err(LookError::NoNumber)
        }
    }
}
