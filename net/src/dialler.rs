//! How a process of a job gets a control connection: it dials the coordinator wherever it may be, says hello and hears a greeting, with a new
//! certificate where its own has run out. The same for workers, agents and checkpoint actors. Must not know what refused processes do.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_protocol::limits::GREETING_DEADLINE;
use sardana_protocol::messages::{Greeting, Hello};
use sardana_protocol::words::{Incarnation, Step};
use tokio::time::timeout;

use crate::enrol::{RenewError, renew_run_out};
use crate::environment::Environment;
use crate::quic::limits::CONNECT_DEADLINE;
use crate::quic::{
    BindError, ConnectError, Purpose, Whose, bind_client_on, close, connect, explain, is_refusal, is_run_out, towards,
};
use crate::trust::{PeerIdentity, RotatingCredentials};
use crate::whereabouts::{Search, Whereabouts};
use crate::wire::limits::HELLO_FRAME_BYTES;
use crate::wire::{FrameError, exchange};

/// Why a process has no control connection.
#[derive(Debug, thiserror::Error)]
pub enum NotWelcomed {
    /// No local socket. Fix the machine's limits.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// This host has no addresses of that kind. Look elsewhere.
    #[error("this host has no way there")]
    NoWay,
    /// No connection was made.
    #[error(transparent)]
    NotConnected(ConnectError),
    /// The coordinator does not take this process's certificate, not even the one that it has just renewed. Try again.
    #[error("{0}")]
    RunOut(String),
    /// The certificate has run out, and there is no other.
    #[error(transparent)]
    NotRenewed(#[from] RenewError),
    /// The coordinator does not want this process, or cannot read what it says: expected, found, and what to do.
    #[error("it refused this process: {0}")]
    Refused(String),
    /// The job is over. There is nothing to do.
    #[error("the job is over: there is nothing left to do")]
    Over,
    /// Another coordinator leads the job. Look for that one.
    #[error("another coordinator leads the job")]
    Fenced,
    /// The greeting is for another role. Try again.
    #[error("it took this process for something else")]
    Mistaken,
    /// Nothing was said, and nothing will be. Try again.
    #[error("it closed without an answer")]
    NoAnswer,
    /// Nothing was said in time. Try again.
    #[error("it did not answer a hello within {GREETING_DEADLINE:?}")]
    Silent,
    /// The connection broke, or what came is no greeting. Try again.
    #[error(transparent)]
    Broken(FrameError),
}

impl NotWelcomed {
    /// Whether another try ends in the same way until people have done something. What makes a coordinator refuse a hello may pass.
    #[must_use]
    pub const fn is_up_to_people(&self) -> bool {
        matches!(self, Self::NotRenewed(RenewError::Refused { .. }))
    }
}

/// A connection on which the coordinator has welcomed this process.
#[derive(Debug)]
pub struct Welcomed<T> {
    /// This end's. To be closed with the connection, unless the dialler keeps it.
    pub endpoint: Endpoint,
    /// The connection.
    pub connection: Connection,
    /// What is said over it, both ways.
    pub streams: (SendStream, RecvStream),
    /// What the greeting says.
    pub greeting: T,
}

/// Makes the control connections of a process. Clones look for the coordinator together.
#[derive(Debug, Clone)]
pub struct Dialler {
    environment: Environment,
    rotating: RotatingCredentials,
    search: Search,
    /// An endpoint for each kind of address, by the address it is bound to. None if each connection has an endpoint of its own.
    kept: Option<Arc<[(IpAddr, Endpoint)]>>,
}

impl Dialler {
    /// Dials from a new endpoint each time.
    #[must_use]
    pub fn new(environment: Environment, rotating: RotatingCredentials, coordinator: &Whereabouts) -> Self {
        Self {
            environment,
            rotating,
            search: Search::new(coordinator),
            kept: None,
        }
    }

    /// Dials from the same endpoints until they are closed.
    ///
    /// # Errors
    /// When there is none towards where the coordinator was found.
    pub fn keeping(
        environment: Environment,
        rotating: RotatingCredentials,
        coordinator: &Whereabouts,
    ) -> Result<Self, BindError> {
        let endpoint = |address| bind_client_on(&environment, &rotating, Purpose::Control, address);
        let found = coordinator.found();
        let mut kept = vec![(towards(found), endpoint(found)?)];
        for address in coordinator.all() {
            let local = towards(address);
            if kept.iter().all(|(bound, _)| *bound != local) {
                // A host without such addresses cannot go there anyway.
                kept.extend(endpoint(address).ok().map(|endpoint| (local, endpoint)));
            }
        }
        Ok(Self {
            kept: Some(kept.into()),
            ..Self::new(environment, rotating, coordinator)
        })
    }

    /// Closes the endpoints that are kept.
    pub async fn close(&self, why: &str) {
        for (_, endpoint) in self.kept.iter().flat_map(|kept| kept.iter()) {
            close(endpoint, why).await;
        }
    }

    /// The credentials that it shows.
    #[must_use]
    pub const fn rotating(&self) -> &RotatingCredentials {
        &self.rotating
    }

    /// Where it dials next.
    #[must_use]
    pub const fn search(&self) -> &Search {
        &self.search
    }

    /// Dials once, and once more if the certificate had to be renewed; the next time elsewhere, if this fails. `hello` is made when the
    /// coordinator is there; `welcome` takes out of a greeting what this role is told, and nothing out of a greeting for another role.
    ///
    /// # Errors
    /// See [`NotWelcomed`].
    pub async fn dial<T>(
        &self,
        hello: impl Fn() -> Hello,
        welcome: impl Fn(Greeting) -> Option<T>,
    ) -> Result<Welcomed<T>, NotWelcomed> {
        let address = self.search.here();
        let mut dialled = self.dial_to(address, &hello, &welcome).await;
        if let Err(NotWelcomed::RunOut(why)) = &dialled {
            tracing::debug!(coordinator = %address, %why, "the certificate has run out");
            dialled = match renew_run_out(&self.environment, &self.rotating, address).await {
                Ok(()) => self.dial_to(address, &hello, &welcome).await,
                Err(error) => Err(error.into()),
            };
        }
        if dialled.is_err() {
            self.search.look_elsewhere();
        }
        dialled
    }

    async fn dial_to<T>(
        &self,
        address: SocketAddr,
        hello: impl Fn() -> Hello,
        welcome: impl Fn(Greeting) -> Option<T>,
    ) -> Result<Welcomed<T>, NotWelcomed> {
        let endpoint = self.endpoint(address)?;
        let coordinator = PeerIdentity::coordinator(self.rotating.job());
        let connected = connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await;
        let connection = connected.map_err(not_connected)?;
        let opened = connection.open_bi().await;
        let (mut send, mut receive) = opened.map_err(|error| broken(FrameError::Connection(error)))?;
        // Not before the coordinator is there: a hello binds its sender, and dialling may have taken seconds.
        let (hello, streams) = (hello(), (&mut send, &mut receive));
        let talking = exchange(&connection, streams, (&hello, HELLO_FRAME_BYTES), HELLO_FRAME_BYTES);
        let answered = timeout(GREETING_DEADLINE, talking).await;
        let greeting = answered.map_err(|_| NotWelcomed::Silent)?.map_err(broken)?;
        match greeting.ok_or(NotWelcomed::NoAnswer)? {
            Greeting::Refused { reason } => Err(NotWelcomed::Refused(reason)),
            Greeting::Over => Err(NotWelcomed::Over),
            Greeting::Fenced => Err(NotWelcomed::Fenced),
            greeting @ (Greeting::Welcome | Greeting::Joined { .. } | Greeting::Leads { .. }) => Ok(Welcomed {
                greeting: welcome(greeting).ok_or(NotWelcomed::Mistaken)?,
                endpoint,
                connection,
                streams: (send, receive),
            }),
        }
    }

    fn endpoint(&self, address: SocketAddr) -> Result<Endpoint, NotWelcomed> {
        let Some(kept) = &self.kept else {
            return Ok(bind_client_on(&self.environment, &self.rotating, Purpose::Control, address)?);
        };
        let local = towards(address);
        let found = kept.iter().find(|(bound, _)| *bound == local);
        found.map(|(_, endpoint)| endpoint.clone()).ok_or(NotWelcomed::NoWay)
    }
}

/// What a worker or a checkpoint actor is welcomed with: by which coordinator, and from which step on it lacks reports.
#[must_use]
pub fn joined(greeting: Greeting) -> Option<(Incarnation, Step)> {
    if let Greeting::Joined {
        incarnation,
        report_from,
    } = greeting
    {
        Some((incarnation, report_from))
    } else {
        None
    }
}

fn not_connected(error: ConnectError) -> NotWelcomed {
    if let ConnectError::NotValidNow { whose: Whose::Ours, .. } = error {
        NotWelcomed::RunOut(error.to_string())
    } else {
        NotWelcomed::NotConnected(error)
    }
}

/// What it means that there is no greeting. A certificate that the coordinator refuses, a hello that it cannot read, or another version shows
/// only now.
fn broken(error: FrameError) -> NotWelcomed {
    match error {
        FrameError::Connection(lost) if is_run_out(&lost) => NotWelcomed::RunOut(explain(&lost)),
        FrameError::Connection(lost) if is_refusal(&lost) => NotWelcomed::Refused(explain(&lost)),
        FrameError::Version { .. } => NotWelcomed::Refused(error.to_string()),
        FrameError::Connection(_)
        | FrameError::Header { .. }
        | FrameError::Payload(_)
        | FrameError::Truncated { .. }
        | FrameError::Stream { .. }
        | FrameError::Io(_) => NotWelcomed::Broken(error),
    }
}

/// The coordinator is played. The renewal of a certificate that has run out is tried with real coordinators, by each role.
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sardana_protocol::messages::AgentHello;
    use sardana_protocol::words::Generation;

    use super::*;
    use crate::refusing::{JOB, Manner, Refuser, WHY, delivered};
    use crate::trust::Role;
    use crate::wire::{read_frame, write_frame};

    /// Nothing here takes long; whatever has not happened by then never will.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// An agent's, which finds the coordinator at the first of two addresses.
    fn dialler(coordinator: &Refuser) -> Dialler {
        let rotating = RotatingCredentials::from(coordinator.credentials(Role::Agent));
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 1));
        Dialler::new(
            Environment::Host,
            rotating,
            &Whereabouts::new(coordinator.address(), &[elsewhere]),
        )
    }

    async fn dial(dialler: &Dialler) -> Result<Welcomed<()>, NotWelcomed> {
        let hello = || {
            Hello::Agent(AgentHello {
                job: JOB,
                host: "here".to_owned(),
                children: vec![],
            })
        };
        let welcome = |greeting| matches!(greeting, Greeting::Welcome).then_some(());
        let dialled = timeout(PATIENCE, dialler.dial(hello, welcome)).await;
        dialled.expect("it is over in time")
    }

    /// Takes in a process that dials, and hears its hello.
    async fn heard(coordinator: &Refuser) -> (Connection, SendStream) {
        let (connection, send, mut receive) = coordinator.taken().await;
        let hello = read_frame::<Hello>(&mut receive, HELLO_FRAME_BYTES).await.unwrap();
        assert!(matches!(hello, Some(Hello::Agent(_))), "{hello:?}");
        (connection, send)
    }

    #[tokio::test]
    async fn who_is_not_welcome_is_told_why_and_looks_elsewhere() {
        let refused = Greeting::Refused { reason: WHY.to_owned() };
        let leads = Greeting::Leads {
            newest: Generation::NONE,
        };
        for (manner, greeting, words) in [
            (Manner::Answers, refused.clone(), WHY),
            (Manner::Closes, refused, WHY),
            (Manner::Answers, Greeting::Over, "the job is over"),
            (Manner::Answers, Greeting::Fenced, "another coordinator leads"),
            (Manner::Answers, leads, "for something else"),
        ] {
            let coordinator = Refuser::coordinator();
            let dialler = dialler(&coordinator);
            let answering = coordinator.refuse(manner, greeting.clone());
            let error = dial(&dialler).await.unwrap_err();
            let is_so = match &greeting {
                Greeting::Refused { .. } => matches!(error, NotWelcomed::Refused(_)),
                Greeting::Over => matches!(error, NotWelcomed::Over),
                Greeting::Fenced => matches!(error, NotWelcomed::Fenced),
                Greeting::Leads { .. } => matches!(error, NotWelcomed::Mistaken),
                Greeting::Welcome | Greeting::Joined { .. } => false,
            };
            assert!(is_so && error.to_string().contains(words), "{greeting:?}: {error}");
            assert!(!error.is_up_to_people(), "{error}");
            assert_ne!(dialler.search().here(), coordinator.address());
            timeout(PATIENCE, answering).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn an_end_that_says_nothing_is_not_waited_for() {
        let coordinator = Refuser::coordinator();
        let mute = async {
            let (connection, send) = heard(&coordinator).await;
            delivered(send).await;
            connection
        };
        let (dialled, _connection) = tokio::join!(async { dial(&dialler(&coordinator)).await }, mute);
        assert!(matches!(dialled, Err(NotWelcomed::NoAnswer)), "{dialled:?}");
        let hanging = async {
            let streams = heard(&coordinator).await;
            // All that is left to happen is that time passes.
            tokio::time::pause();
            streams
        };
        let (dialled, _streams) = tokio::join!(async { dial(&dialler(&coordinator)).await }, hanging);
        assert!(matches!(dialled, Err(NotWelcomed::Silent)), "{dialled:?}");
    }

    #[tokio::test]
    async fn who_is_welcome_stays_there() {
        let coordinator = Refuser::coordinator();
        let dialler = dialler(&coordinator);
        let welcoming = async {
            let (connection, mut send) = heard(&coordinator).await;
            write_frame(&mut send, &Greeting::Welcome, HELLO_FRAME_BYTES).await.unwrap();
            (connection, send)
        };
        let (welcomed, _streams) = tokio::join!(dial(&dialler), welcoming);
        assert_eq!(welcomed.unwrap().connection.remote_address(), coordinator.address());
        assert_eq!(dialler.search().here(), coordinator.address());
    }
}
