//! A coordinator, and control connections spoken by hand.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, Past, Records, Succession};
use sardana_net::enrol::Registrar;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Authority, Credentials, PeerIdentity, Role};
use sardana_net::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_net::wire::{FrameError, read_frame, write_frame};
use sardana_protocol::job::{Fingerprint, JobIdentity, JobSpec, Order};
use sardana_protocol::membership::{Balance, JobEvent};
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{AgentHello, Call, Greeting, Hello, Introduction, Standing, Tally, WorkerHello};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, JobId, Step, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(crate) const JOB: JobId = JobId::new([3; 16]);
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Nothing in these tests takes long; whatever has not happened by then never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A coordinator that waits for two workers.
pub(crate) struct Site {
    pub(crate) authority: Arc<Authority>,
    pub(crate) coordinator: Coordinator,
    pub(crate) events: mpsc::UnboundedReceiver<JobEvent>,
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::of(Authority::new(JOB).unwrap()).await
    }

    /// The same, of this authority.
    pub(crate) async fn of(authority: Authority) -> Self {
        Self::that_records(authority, None).await
    }

    /// The same, with a job that is written down.
    pub(crate) async fn that_records(authority: Authority, records: Option<Records>) -> Self {
        let authority = Arc::new(authority);
        let config = CoordinatorConfig {
            registrar: Arc::new(Registrar::new(Arc::clone(&authority))),
            listen: LOOPBACK,
            incarnation: Incarnation::new(1),
            past: Past::None,
            succession: Succession::Resume,
            records,
            min: 2,
            expected: 2,
            max: 8,
            balance: Balance::default(),
            saves: None,
        };
        let (coordinator, events) = coordinator::start(config).await.unwrap();
        Self {
            authority,
            coordinator,
            events,
        }
    }

    pub(crate) async fn dial(&self, role: Role, id: u64) -> Wire {
        Wire::dial(&self.authority.issue(role, id).unwrap(), self.coordinator.address()).await
    }

    /// A worker that is welcome.
    pub(crate) async fn join(&self, id: u64) -> Wire {
        let mut wire = self.dial(Role::Worker, id).await;
        wire.say(&worker(hello(id))).await;
        assert!(matches!(
            wire.hear::<Greeting>().await.unwrap(),
            Some(Greeting::Joined { .. })
        ));
        wire
    }

    pub(crate) async fn event(&mut self) -> JobEvent {
        let event = timeout(PATIENCE, self.events.recv()).await;
        event.expect("something happens in time").expect("the coordinator lives")
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
        let heard = timeout(PATIENCE, read_frame(&mut self.receive, CONTROL_FRAME_BYTES));
        heard.await.expect("an answer comes in time")
    }

    /// Says `hello`, and returns the reason for which it is refused.
    pub(crate) async fn refused(&mut self, hello: &Hello) -> String {
        write_frame(&mut self.send, hello, HELLO_FRAME_BYTES).await.unwrap();
        match self.hear().await.unwrap() {
            Some(Greeting::Refused { reason }) => reason,
            other => panic!("expected a refusal, found {other:?}"),
        }
    }

    /// Why the other end closed the connection.
    pub(crate) async fn closed(&self) -> String {
        let closed = timeout(PATIENCE, self.connection.closed());
        sardana_net::quic::explain(&closed.await.expect("it is closed in time"))
    }
}

pub(crate) fn agent(job: JobId) -> Hello {
    Hello::Agent(AgentHello {
        job,
        host: "here".to_owned(),
        children: vec![],
    })
}

pub(crate) fn worker(hello: WorkerHello) -> Hello {
    Hello::Worker(Box::new(hello))
}

pub(crate) fn identity() -> JobIdentity {
    let hash = StateHash::of(b"x");
    JobIdentity {
        spec: JobSpec {
            name: "test".to_owned(),
            seed: 1,
            shards: 4,
            steps: Step::new(10),
            samples: 64,
            batch: 16,
            order: Order::Exact,
        },
        state_zero: hash,
        fingerprint: Fingerprint {
            program: hash,
            tensors: hash,
            processor: "x86_64 avx2".to_owned(),
            device: "cpu".to_owned(),
            libraries: "one".to_owned(),
            probe: hash,
        },
    }
}

pub(crate) fn hello(id: u64) -> WorkerHello {
    WorkerHello {
        job: JOB,
        worker: WorkerId::new(id),
        identity: identity(),
        introduction: Introduction {
            generation: Generation::NONE,
            incarnation: Incarnation::ZERO,
            seat: None,
            training: false,
            standing: Standing {
                step: Step::ZERO,
                kept: vec![],
                sum: None,
                stop_at: None,
                tally: Tally::default(),
            },
        },
        shard_capacity: 4,
        memory: GradientMemory::unbounded(1),
        address: LOOPBACK,
        auxiliary: vec!["loss".to_owned()],
        call: Call {
            process: [id as u8; 16],
            count: 0,
        },
    }
}
