//! A real coordinator, and members that are only control connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quinn::{Connection, Endpoint};
use sardana_actors::coordinator::{self, CoordinatorConfig, Past, Succession};
use sardana_net::enrol::Registrar;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Authority, Credentials, PeerIdentity, Role};
use sardana_net::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::job::{Fingerprint, JobIdentity, JobSpec, Order};
use sardana_protocol::limits::{MAX_SHARDS, SILENCE};
use sardana_protocol::membership::{Balance, GenerationEvent, JobEvent};
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{Call, CoordinatorMessage, Greeting, Hello, Tally, WorkerHello, WorkerMessage};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, JobId, Step, WorkerId};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::machine::{answer, introduction, length};
use super::{Cost, Result};

const JOB: JobId = JobId::new([3; 16]);

/// Handshakes under way at once: few, since both ends' arithmetic is done here.
const AT_ONCE: usize = 4;

/// How often a member tries to connect.
const TRIES: usize = 3;

/// Nothing takes so long.
const LIMIT: Duration = Duration::from_secs(60);

/// What all members have sent and received.
#[derive(Debug, Default)]
struct Traffic {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    fn count<T: serde::Serialize>(&self, message: &T) -> Result<()> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(length(message)?, Ordering::Relaxed);
        Ok(())
    }
}

fn hello(worker: WorkerId) -> WorkerHello {
    let hash = StateHash::of(b"x");
    WorkerHello {
        job: JOB,
        worker,
        identity: JobIdentity {
            spec: JobSpec {
                name: "forming".to_owned(),
                seed: 1,
                shards: MAX_SHARDS,
                steps: Step::new(1_000_000),
                samples: 1 << 20,
                batch: 1 << 13,
                order: Order::Exact,
            },
            state_zero: hash,
            fingerprint: Fingerprint {
                program: hash,
                tensors: hash,
                processor: "x86_64".to_owned(),
                device: "cpu".to_owned(),
                libraries: String::new(),
                probe: hash,
            },
        },
        introduction: introduction(),
        shard_capacity: MAX_SHARDS,
        memory: GradientMemory::unbounded(1),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000)),
        auxiliary: vec![],
        call: Call {
            process: [0; 16],
            count: 0,
        },
    }
}

/// A member that is connected. It answers on a task of its own.
struct Member {
    worker: WorkerId,
    connection: Connection,
    _endpoint: Endpoint,
}

async fn join(credentials: Credentials, coordinator: SocketAddr, traffic: Arc<Traffic>) -> Result<Member> {
    let worker = WorkerId::new(credentials.id());
    let endpoint = bind_client(&credentials, Purpose::Control, coordinator)?;
    let expected = PeerIdentity::coordinator(JOB);
    let mut connection = connect(&endpoint, coordinator, expected, CONNECT_DEADLINE).await;
    for _ in 1..TRIES {
        if connection.is_err() {
            connection = connect(&endpoint, coordinator, expected, CONNECT_DEADLINE).await;
        }
    }
    let connection = connection?;
    let (mut send, mut receive) = connection.open_bi().await?;
    write_frame(&mut send, &Hello::Worker(Box::new(hello(worker))), HELLO_FRAME_BYTES).await?;
    match read_frame::<Greeting>(&mut receive, HELLO_FRAME_BYTES).await? {
        Some(Greeting::Joined { .. }) => {}
        other => return Err(format!("worker {worker} was not admitted: {other:?}").into()),
    }
    let (queue, mut answers) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(Some(message)) = read_frame::<CoordinatorMessage>(&mut receive, CONTROL_FRAME_BYTES).await {
            traffic.count(&message)?;
            if let Some(answer) = answer(&message) {
                traffic.count(&answer)?;
                let _ = queue.send(answer);
            }
        }
        Result::Ok(())
    });
    tokio::spawn(async move {
        // A worker that says nothing for long is left out. Heartbeats are not part of forming, and not counted.
        let mut beat = interval(SILENCE / 3);
        loop {
            let message = tokio::select! {
                answer = answers.recv() => match answer {
                    Some(answer) => answer,
                    None => return,
                },
                _ = beat.tick() => heartbeat(),
            };
            if write_frame(&mut send, &message, CONTROL_FRAME_BYTES).await.is_err() {
                return;
            }
        }
    });
    Ok(Member {
        worker,
        connection,
        _endpoint: endpoint,
    })
}

fn heartbeat() -> WorkerMessage {
    WorkerMessage::Progress {
        generation: Generation::NONE,
        step: Step::ZERO,
        tally: Tally::default(),
        moved: 0,
        pace: None,
        reports: vec![],
    }
}

/// Waits until all members of a generation of so many are ready.
async fn formed(events: &mut mpsc::UnboundedReceiver<JobEvent>, members: u32) -> Result<()> {
    let mut told = Vec::new();
    let waiting = async {
        loop {
            let event = events.recv().await.ok_or("the coordinator ended")?;
            // Forming lists all members.
            told.push(format!("{event:?}").chars().take(120).collect::<String>());
            if let JobEvent::Generation(GenerationEvent::Formed { world_size, .. }) = event {
                let expected = format!("{world_size} members formed a generation, expected {members}");
                return if world_size == members { Ok(()) } else { Err(expected.into()) };
            }
        }
    };
    match timeout(LIMIT, waiting).await {
        Ok(formed) => formed,
        Err(_) => {
            let last = &told[told.len().saturating_sub(5)..];
            Err(format!("not all of {members} were ready within {LIMIT:?}; told last: {last:#?}").into())
        }
    }
}

pub(super) async fn measure(members: u32, losses: usize) -> Result<Vec<Cost>> {
    let authority = Arc::new(Authority::new(JOB)?);
    let config = CoordinatorConfig {
        registrar: Arc::new(Registrar::new(Arc::clone(&authority))),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        incarnation: Incarnation::new(1),
        past: Past::None,
        succession: Succession::Resume,
        records: None,
        min: members - losses as u32,
        expected: members,
        max: members,
        balance: Balance::Off,
        saves: None,
    };
    let credentials = (0..members).map(|id| authority.issue(Role::Worker, u64::from(id) << 40 | 0x5a5a));
    let credentials = credentials.collect::<std::result::Result<Vec<_>, _>>()?;
    let (coordinator, mut events) = coordinator::start(config).await?;
    let (address, room, traffic) = (
        coordinator.address(),
        Arc::new(Semaphore::new(AT_ONCE)),
        Arc::<Traffic>::default(),
    );
    let mut joining = JoinSet::new();
    for credentials in credentials {
        let (room, traffic) = (Arc::clone(&room), Arc::clone(&traffic));
        joining.spawn(async move {
            let _room = room.acquire_owned().await?;
            join(credentials, address, traffic).await
        });
    }
    let mut joined = joining.join_all().await.into_iter().collect::<Result<Vec<Member>>>()?;
    joined.sort_by_key(|member| member.worker);
    formed(&mut events, members).await?;
    let mut costs = Vec::new();
    for (left, lost) in (0..members).rev().zip(joined.drain(..losses)) {
        let count = || {
            (
                traffic.messages.load(Ordering::Relaxed),
                traffic.bytes.load(Ordering::Relaxed),
            )
        };
        let (messages, bytes) = count();
        let began = Instant::now();
        lost.connection.close(0_u32.into(), b"lost");
        formed(&mut events, left).await?;
        let took = began.elapsed();
        let after = count();
        costs.push(Cost {
            took,
            messages: after.0 - messages,
            bytes: after.1 - bytes,
            ..Cost::default()
        });
    }
    coordinator.end().await;
    Ok(costs)
}
