//! A coordinator, join files for its job, and the processes that use them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quinn::Connection;
use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, CoordinatorError, Past, Succession};
use sardana_net::enrol::{Invitation, JoinFile, Moment, Registrar, Terms, invite};
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Authority, Credentials, PeerIdentity, Role};
use sardana_net::wire::limits::HELLO_FRAME_BYTES;
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::membership::{Balance, JobEvent};
use sardana_protocol::messages::{AgentHello, Greeting, Hello};
use sardana_protocol::words::{Incarnation, JobId};
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(crate) const JOB: JobId = JobId::new([3; 16]);
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Nothing in these tests takes long; whatever has not happened by then never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

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

    pub(crate) async fn of(authority: Authority) -> Self {
        Self::with(Arc::new(authority), LOOPBACK, Past::None).await.unwrap()
    }

    /// The next life of the coordinator that was at `address`, and that this very process may still be letting go of.
    pub(crate) async fn again(authority: Authority, address: SocketAddr) -> Self {
        let authority = Arc::new(authority);
        let trying = async {
            loop {
                match Self::with(Arc::clone(&authority), address, Past::Unknown).await {
                    Ok(site) => return site,
                    Err(CoordinatorError::Bind(_)) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        timeout(PATIENCE, trying).await.expect("the address is free in time")
    }

    async fn with(authority: Arc<Authority>, listen: SocketAddr, past: Past) -> Result<Self, CoordinatorError> {
        let registrar = Arc::new(Registrar::new(Arc::clone(&authority)));
        let config = CoordinatorConfig {
            registrar: Arc::clone(&registrar),
            listen,
            incarnation: Incarnation::new(if past == Past::None { 1 } else { 2 }),
            past,
            succession: Succession::Resume,
            records: None,
            min: 2,
            expected: 2,
            max: 8,
            balance: Balance::default(),
            saves: None,
        };
        let (coordinator, events) = coordinator::start(config).await?;
        Ok(Self {
            authority,
            registrar,
            coordinator,
            events,
        })
    }

    pub(crate) fn join_file(&self, role: Role, uses: u32) -> JoinFile {
        let invitation = invitation(&self.authority, role, uses);
        JoinFile::new(invitation, &self.authority, vec![self.coordinator.address()])
    }
}

pub(crate) fn invitation(authority: &Authority, role: Role, uses: u32) -> Invitation {
    let now = Moment::of(SystemTime::now());
    let expires = Moment::new(now.seconds() + 3_600);
    invite(authority, Terms { role, expires, uses }, now).unwrap()
}

/// Says hello as an agent, and returns the answer.
pub(crate) async fn greeted(credentials: &Credentials, address: SocketAddr) -> Greeting {
    let endpoint = bind_client(credentials, Purpose::Control, address).unwrap();
    let coordinator = PeerIdentity::coordinator(JOB);
    let connection = connect(&endpoint, address, coordinator, CONNECT_DEADLINE).await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let hello = Hello::Agent(AgentHello {
        job: JOB,
        host: "here".to_owned(),
        children: vec![],
    });
    write_frame(&mut send, &hello, HELLO_FRAME_BYTES).await.unwrap();
    let greeting = timeout(PATIENCE, read_frame(&mut receive, HELLO_FRAME_BYTES)).await;
    greeting.unwrap().unwrap().unwrap()
}

/// Why the other end closed the connection.
pub(crate) async fn closed(connection: &Connection) -> String {
    let closed = timeout(PATIENCE, connection.closed()).await;
    sardana_net::quic::explain(&closed.expect("it is closed in time"))
}
