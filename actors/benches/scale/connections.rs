//! The same join over real control connections: a real coordinator, and workers that are connections with their own machines behind them,
//! all in this process and on one host.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quinn::{Connection, Endpoint};
use rustix::time::{ClockId, clock_gettime};
use sardana_actors::coordinator::{self, CoordinatorConfig, Past, Succession};
use sardana_actors::enrol::Registrar;
use sardana_actors::quic::limits::CONNECT_DEADLINE;
use sardana_actors::quic::{Purpose, bind_client, connect};
use sardana_actors::trust::{Authority, Credentials, PeerIdentity, Role};
use sardana_actors::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_actors::wire::{encode, read_frame, write_frame};
use sardana_protocol::limits::HEARTBEAT;
use sardana_protocol::membership::{Balance, JobEvent};
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{Call, CoordinatorMessage, Greeting, Hello, Trailer, WorkerHello, WorkerMessage};
use sardana_protocol::words::{Generation, Incarnation, Step};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::crowd::{Result, identity, worker_id};
use super::worker::{Said, Worker};

/// Handshakes under way at once: few, since both ends' arithmetic is done here.
const AT_ONCE: usize = 4;

/// How often a worker tries to connect.
const TRIES: usize = 3;

/// Between two boundaries.
const STEP: Duration = Duration::from_millis(50);

/// Nothing takes so long.
const LIMIT: Duration = Duration::from_secs(300);

const LIFE: Incarnation = Incarnation::new(1);

/// What a join has cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// From the first newcomer's hello until all are members.
    pub(crate) took: Duration,
    /// Processor time of both ends, handshakes among it.
    pub(crate) processor: Duration,
    /// Messages in both directions; heartbeats are not counted.
    pub(crate) messages: u64,
    /// Their payloads.
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
struct Traffic {
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Traffic {
    fn count<T: serde::Serialize>(&self, message: &T) {
        let bytes = encode(message, CONTROL_FRAME_BYTES).map_or(0, |bytes| bytes.len() as u64);
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A worker that is connected.
struct Remote {
    worker: Mutex<Worker>,
    queue: mpsc::UnboundedSender<WorkerMessage>,
    _connection: Connection,
    _endpoint: Endpoint,
}

/// All of them, and the ring that they make.
#[derive(Default)]
struct Site {
    remotes: BTreeMap<u32, Arc<Remote>>,
    closing: Arc<Mutex<Option<Trailer>>>,
    closed: BTreeMap<Step, Trailer>,
    traffic: Arc<Traffic>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn says(said: Said, queue: &mpsc::UnboundedSender<WorkerMessage>, closing: &Mutex<Option<Trailer>>, traffic: &Traffic) {
    if let Some(trailer) = said.closing {
        let mut closing = locked(closing);
        *closing = Some(closing.unwrap_or(Trailer::Continue).and(trailer));
    }
    for message in said.messages {
        traffic.count(&message);
        // A connection that is gone is noticed by the coordinator.
        let _ = queue.send(message);
    }
}

fn hello(number: u32, shards: u32, worker: &mut Worker) -> WorkerHello {
    let arrival = worker.arrives(worker_id(number), shards, LIFE);
    WorkerHello {
        job: super::crowd::JOB,
        worker: arrival.worker,
        identity: identity(shards),
        introduction: arrival.introduction,
        shard_capacity: shards,
        memory: GradientMemory::unbounded(1),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000)),
        auxiliary: vec![],
        call: Call {
            process: [0; 16],
            count: 0,
        },
    }
}

impl Site {
    /// These workers connect and say hello.
    async fn come(
        &mut self,
        authority: &Authority,
        coordinator: SocketAddr,
        shards: u32,
        numbers: std::ops::Range<u32>,
    ) -> Result<()> {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let mut joining = JoinSet::new();
        for number in numbers {
            let credentials = authority.issue(Role::Worker, worker_id(number).get())?;
            let (room, traffic, closing) = (Arc::clone(&room), Arc::clone(&self.traffic), Arc::clone(&self.closing));
            joining.spawn(async move {
                let _room = room.acquire_owned().await?;
                let remote = join(number, shards, credentials, coordinator, traffic, closing).await?;
                Result::Ok((number, remote))
            });
        }
        for joined in joining.join_all().await {
            let (number, remote) = joined?;
            self.remotes.insert(number, remote);
        }
        Ok(())
    }

    /// The ring closes a sum, if it is whole, and those who follow get what there is.
    fn step(&mut self) {
        let at = |remote: &Remote| -> Option<(Generation, u32, Step)> {
            let worker = locked(&remote.worker);
            let introduction = worker.member.introduction();
            let seat = introduction.seat?;
            Some((introduction.generation, seat.world_size, worker.member.step()))
        };
        let seats: Vec<_> = self.remotes.values().map(|remote| (at(remote), Arc::clone(remote))).collect();
        let newest = seats.iter().filter_map(|(seat, _)| *seat).max();
        if let Some((generation, world_size, step)) = newest {
            let ring = seats.iter().filter(|(seat, _)| *seat == newest);
            if ring.clone().count() == world_size as usize {
                let trailer = locked(&self.closing).take().unwrap_or(Trailer::Continue);
                self.closed.insert(step, trailer);
                for (_, remote) in ring {
                    let said = locked(&remote.worker).summed(generation, step, trailer);
                    says(said, &remote.queue, &self.closing, &self.traffic);
                }
            }
        }
        let keeper_at = self.closed.keys().next_back().map_or(Step::ZERO, |step| step.next());
        for remote in self.remotes.values() {
            let said = locked(&remote.worker).copied();
            says(said, &remote.queue, &self.closing, &self.traffic);
            loop {
                let mut worker = locked(&remote.worker);
                let follows = worker.follows.and_then(|step| Some((step, *self.closed.get(&step)?)));
                let Some((step, trailer)) = follows else { break };
                let said = worker.followed(step, trailer, keeper_at);
                drop(worker);
                says(said, &remote.queue, &self.closing, &self.traffic);
            }
        }
    }

    /// Trains until there are so many members.
    async fn until(&mut self, events: &mut mpsc::UnboundedReceiver<JobEvent>, members: usize) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            while let Ok(event) = events.try_recv() {
                if matches!(event, JobEvent::Lost { .. } | JobEvent::Failed { .. }) {
                    return Err(format!("{event:?}").into());
                }
                let formed = if let JobEvent::Formed { world_size, .. } = event {
                    world_size as usize
                } else if let JobEvent::Switched { members, .. } = event {
                    members.len()
                } else {
                    0
                };
                if formed == members {
                    return Ok(());
                }
            }
            self.step();
            sleep(STEP).await;
        }
        Err(format!("{members} workers were not all members within {LIMIT:?}").into())
    }
}

async fn join(
    number: u32,
    shards: u32,
    credentials: Credentials,
    coordinator: SocketAddr,
    traffic: Arc<Traffic>,
    closing: Arc<Mutex<Option<Trailer>>>,
) -> Result<Arc<Remote>> {
    let mut worker = Worker::new(&identity(shards).spec);
    let hello = Hello::Worker(Box::new(hello(number, shards, &mut worker)));
    let endpoint = bind_client(&credentials, Purpose::Control, coordinator)?;
    let expected = PeerIdentity::coordinator(super::crowd::JOB);
    let mut connection = connect(&endpoint, coordinator, expected, CONNECT_DEADLINE).await;
    for _ in 1..TRIES {
        if connection.is_err() {
            connection = connect(&endpoint, coordinator, expected, CONNECT_DEADLINE).await;
        }
    }
    let connection = connection?;
    let (mut send, mut receive) = connection.open_bi().await?;
    write_frame(&mut send, &hello, HELLO_FRAME_BYTES).await?;
    match read_frame::<Greeting>(&mut receive, HELLO_FRAME_BYTES).await? {
        Some(Greeting::Joined { .. }) => {}
        other => return Err(format!("worker {number} was not admitted: {other:?}").into()),
    }
    let (queue, mut outgoing) = mpsc::unbounded_channel::<WorkerMessage>();
    let remote = Arc::new(Remote {
        worker: Mutex::new(worker),
        queue,
        _connection: connection,
        _endpoint: endpoint,
    });
    let told = Arc::clone(&remote);
    tokio::spawn(async move {
        while let Ok(Some(message)) = read_frame::<CoordinatorMessage>(&mut receive, CONTROL_FRAME_BYTES).await {
            traffic.count(&message);
            let said = locked(&told.worker).told(message);
            says(said, &told.queue, &closing, &traffic);
        }
    });
    tokio::spawn(async move {
        while let Some(message) = outgoing.recv().await {
            if write_frame(&mut send, &message, CONTROL_FRAME_BYTES).await.is_err() {
                return;
            }
        }
    });
    let beating = Arc::clone(&remote);
    tokio::spawn(async move {
        // Who says nothing for long is left out. Heartbeats are not counted.
        loop {
            sleep(HEARTBEAT).await;
            let mut messages = locked(&beating.worker).beats().messages.into_iter();
            if messages.any(|message| beating.queue.send(message).is_err()) {
                return;
            }
        }
    });
    Ok(remote)
}

/// Half of the workers train; the other half come at once.
pub(crate) async fn measure(workers: u32) -> Result<Cost> {
    let half = workers / 2;
    let authority = Arc::new(Authority::new(super::crowd::JOB)?);
    let config = CoordinatorConfig {
        registrar: Arc::new(Registrar::new(Arc::clone(&authority))),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        incarnation: LIFE,
        past: Past::None,
        succession: Succession::Resume,
        records: None,
        min: 1,
        expected: half,
        max: half,
        balance: Balance::Off,
        saves: None,
    };
    let (coordinator, mut events) = coordinator::start(config).await?;
    let (address, mut site) = (coordinator.address(), Site::default());
    site.come(&authority, address, half, 0..half).await?;
    site.until(&mut events, half as usize).await?;
    let count = |site: &Site| {
        let (messages, bytes) = (&site.traffic.messages, &site.traffic.bytes);
        (messages.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    };
    let (before, begun, processor) = (count(&site), Instant::now(), processor_time());
    site.come(&authority, address, half, half..workers).await?;
    site.until(&mut events, workers as usize).await?;
    let after = count(&site);
    let cost = Cost {
        took: begun.elapsed(),
        processor: processor_time() - processor,
        messages: after.0 - before.0,
        bytes: after.1 - before.1,
    };
    coordinator.end().await;
    Ok(cost)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}
