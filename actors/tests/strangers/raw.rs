//! A coordinator, agents, and control connections spoken by hand.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_actors::agent::{self, Agent, AgentConfig, AgentError, AgentEvent, Output};
use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, CoordinatorError, Past, Records, Succession};
use sardana_actors::operator::Operator;
use sardana_net::enrol::Registrar;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect, explain};
use sardana_net::trust::{Authority, Credentials, PeerIdentity, Role};
use sardana_net::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_net::wire::{FrameError, read_frame, write_frame};
use sardana_protocol::membership::{Balance, JobEvent};
use sardana_protocol::messages::{AgentHello, AgentMessage, Greeting, Hello, WorkerHello};
use sardana_protocol::samples;
use sardana_protocol::words::{Incarnation, JobId, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(crate) const JOB: JobId = JobId::new([3; 16]);
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Nothing in these tests takes long; whatever has not happened by then never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it happens in time")
}

/// While there is one, the runtime's time stands still, but for what a test advances: a paused clock alone would go on to the next
/// timer whenever all tasks wait, which they also do for packets.
pub(crate) struct StandStill {
    /// A blocking task that waits for its end keeps the clock from going on by itself.
    _held: std::sync::mpsc::Sender<()>,
}

impl StandStill {
    /// From now on, on this runtime of one thread.
    pub(crate) fn now() -> Self {
        let (held, end) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || end.recv());
        tokio::time::pause();
        Self { _held: held }
    }
}

impl Drop for StandStill {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}

/// Waits until `is_so`.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    soon(waiting).await;
}

/// A coordinator in its first life, which waits for two workers.
pub(crate) fn config(registrar: &Arc<Registrar>) -> CoordinatorConfig {
    CoordinatorConfig {
        registrar: Arc::clone(registrar),
        listen: LOOPBACK,
        incarnation: Incarnation::new(1),
        past: Past::None,
        succession: Succession::Resume,
        records: None,
        min: 2,
        expected: 2,
        max: 8,
        balance: Balance::default(),
        saves: None,
    }
}

/// Such a coordinator.
pub(crate) struct Site {
    pub(crate) authority: Arc<Authority>,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) coordinator: Coordinator,
    pub(crate) events: mpsc::UnboundedReceiver<JobEvent>,
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::of(Authority::new(JOB).unwrap()).await
    }

    /// The same, of this authority.
    pub(crate) async fn of(authority: Authority) -> Self {
        Self::with(authority, |config| config).await.unwrap()
    }

    /// The same, with a job that is written down.
    pub(crate) async fn that_records(records: Records) -> Self {
        let records = Some(records);
        let site = Self::with(Authority::new(JOB).unwrap(), |config| CoordinatorConfig { records, ..config });
        site.await.unwrap()
    }

    /// The same, but for what is changed.
    pub(crate) async fn with(
        authority: Authority,
        change: impl FnOnce(CoordinatorConfig) -> CoordinatorConfig,
    ) -> Result<Self, CoordinatorError> {
        let authority = Arc::new(authority);
        let registrar = Arc::new(Registrar::new(Arc::clone(&authority)));
        let (coordinator, events) = coordinator::start(change(config(&registrar))).await?;
        Ok(Self {
            authority,
            registrar,
            coordinator,
            events,
        })
    }

    pub(crate) async fn dial(&self, role: Role, id: u64) -> Wire {
        Wire::dial(&self.authority.issue(role, id).unwrap(), self.coordinator.address()).await
    }

    /// A worker that is welcome.
    pub(crate) async fn join(&self, id: u64) -> Wire {
        self.join_with(hello(id)).await
    }

    /// The same, which says this.
    pub(crate) async fn join_with(&self, hello: WorkerHello) -> Wire {
        let mut wire = self.dial(Role::Worker, hello.worker.get()).await;
        let greeting = wire.greeted(&worker(hello)).await;
        assert!(matches!(greeting, Greeting::Joined { .. }), "{greeting:?}");
        wire
    }

    /// See [`agent_config`].
    pub(crate) fn agent(&self, program: &str, arguments: &[&str]) -> AgentConfig {
        let credentials = self.authority.issue(Role::Agent, 1).unwrap();
        agent_config(credentials, self.coordinator.address(), program, arguments)
    }

    pub(crate) async fn operator(&self) -> Operator {
        let credentials = self.authority.issue(Role::Operator, 1).unwrap();
        Operator::connect(&credentials, self.coordinator.address()).await.unwrap()
    }

    pub(crate) async fn event(&mut self) -> JobEvent {
        soon(self.events.recv()).await.expect("the coordinator lives")
    }
}

/// A control connection.
pub(crate) struct Wire {
    pub(crate) connection: Connection,
    pub(crate) send: SendStream,
    pub(crate) receive: RecvStream,
    _endpoint: Endpoint,
}

impl Wire {
    pub(crate) async fn dial(credentials: &Credentials, address: SocketAddr) -> Self {
        let endpoint = bind_client(credentials, Purpose::Control, address).unwrap();
        let coordinator = PeerIdentity::coordinator(JOB);
        let connection = connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await.unwrap();
        let (send, receive) = connection.open_bi().await.unwrap();
        Self {
            connection,
            send,
            receive,
            _endpoint: endpoint,
        }
    }

    pub(crate) async fn say<T: Serialize>(&mut self, message: &T) {
        write_frame(&mut self.send, message, CONTROL_FRAME_BYTES).await.unwrap();
    }

    pub(crate) async fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        soon(read_frame(&mut self.receive, CONTROL_FRAME_BYTES)).await
    }

    /// Says `hello`, and returns the answer.
    pub(crate) async fn greeted(&mut self, hello: &Hello) -> Greeting {
        write_frame(&mut self.send, hello, HELLO_FRAME_BYTES).await.unwrap();
        self.hear().await.unwrap().expect("an answer")
    }

    /// Says `hello`, and returns the reason for which it is refused.
    pub(crate) async fn refused(&mut self, hello: &Hello) -> String {
        let greeting = self.greeted(hello).await;
        let Greeting::Refused { reason } = greeting else {
            panic!("expected a refusal, found {greeting:?}");
        };
        reason
    }

    /// Why the other end closed the connection.
    pub(crate) async fn closed(&self) -> String {
        closed(&self.connection).await
    }
}

/// Why the other end closed a connection.
pub(crate) async fn closed(connection: &Connection) -> String {
    explain(&soon(connection.closed()).await)
}

pub(crate) fn agent(job: JobId) -> Hello {
    Hello::Agent(AgentHello {
        job,
        host: "here".to_owned(),
        children: vec![],
    })
}

/// What an agent says of a child that was killed.
pub(crate) fn exited(worker: u64) -> AgentMessage {
    AgentMessage::ChildExited {
        worker: WorkerId::new(worker),
        how: "signal 9".to_owned(),
        tally: None,
        restarting: false,
    }
}

pub(crate) fn worker(hello: WorkerHello) -> Hello {
    Hello::Worker(Box::new(hello))
}

pub(crate) fn hello(id: u64) -> WorkerHello {
    samples::hello(JOB, WorkerId::new(id))
}

/// An agent that runs one such child, and starts no other in its place.
pub(crate) fn agent_config(
    credentials: Credentials,
    coordinator: SocketAddr,
    program: &str,
    arguments: &[&str],
) -> AgentConfig {
    AgentConfig {
        credentials: credentials.into(),
        coordinator: coordinator.into(),
        listen: LOOPBACK,
        advertise: None,
        host: "here".to_owned(),
        output: Output::Inherit,
        program: program.into(),
        arguments: arguments.iter().map(Into::into).collect(),
        environment: vec![],
        berths: vec![],
        checkpoint_dir: None,
        workers: 1,
        restarts: 0,
    }
}

/// What an agent tells.
#[derive(Debug)]
pub(crate) struct Told(mpsc::UnboundedReceiver<AgentEvent>);

/// Starts an agent.
pub(crate) async fn start_agent(config: AgentConfig) -> Result<(Agent, Told), AgentError> {
    let (agent, events) = agent::start(config).await?;
    Ok((agent, Told(events)))
}

impl Told {
    pub(crate) async fn next(&mut self) -> AgentEvent {
        soon(self.0.recv()).await.expect("the agent lives")
    }

    /// The next child that is started.
    pub(crate) async fn started(&mut self) -> (WorkerId, u32) {
        let event = self.next().await;
        let AgentEvent::Started { worker, pid } = event else {
            panic!("expected that a child is started, found {event:?}");
        };
        (worker, pid)
    }

    /// How the next child ends.
    pub(crate) async fn end(&mut self) -> String {
        loop {
            if let AgentEvent::Ended { how, .. } = self.next().await {
                return how;
            }
        }
    }
}

/// These credentials, with the site's authority believed.
pub(crate) fn believing(credentials: &Credentials, site: &Site) -> Credentials {
    let mut parts = serde_json::to_value(credentials).unwrap();
    parts["authority"] = serde_json::to_value(site.authority.certificate().to_vec()).unwrap();
    serde_json::from_value(parts).unwrap()
}
