//! Workers and checkpoint actors at the other end of real control connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quinn::{Connection, Endpoint};
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::quic::{Purpose, bind_client, connect};
use sardana_net::trust::{Credentials, PeerIdentity};
use sardana_net::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_net::wire::{read_frame, write_frame};
use sardana_protocol::checkpoint::{Condition, DepotId};
use sardana_protocol::codec::encode;
use sardana_protocol::limits::HEARTBEAT;
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{
    Call, CoordinatorMessage, DepotHello, DepotMessage, DepotOrder, Greeting, Hello, Trailer, WorkerHello, WorkerMessage,
};
use sardana_protocol::words::Incarnation;
use sardana_storage::manifest::{decode as decode_manifest, head_of, key_of};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::sleep;

use super::crowd::Result;
use super::job::{JOB, identity, worker_id};
use super::worker::{Said, Worker};

/// How often a worker tries to connect.
const TRIES: usize = 3;

/// Which life of the coordinator it is.
pub(crate) const LIFE: Incarnation = Incarnation::new(1);

/// What is said, both ways.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

impl Traffic {
    fn count<T: serde::Serialize>(&self, message: &T) {
        let bytes = encode(message, CONTROL_FRAME_BYTES).map_or(0, |bytes| bytes.len() as u64);
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A worker that is connected.
pub(crate) struct Remote {
    pub(crate) worker: Mutex<Worker>,
    pub(crate) queue: UnboundedSender<WorkerMessage>,
    pub(crate) connection: Connection,
    _endpoint: Endpoint,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn says(said: Said, queue: &UnboundedSender<WorkerMessage>, closing: &Mutex<Option<Trailer>>, traffic: &Traffic) {
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
        job: JOB,
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
        device_memory: None,
        host_hash: None,
    }
}

/// A checkpoint actor that keeps whatever it is told to.
pub(crate) async fn depot_comes(
    depot: DepotId,
    credentials: Credentials,
    coordinator: SocketAddr,
    holds: DepotMessage,
    traffic: Arc<Traffic>,
) -> Result<(Connection, Endpoint)> {
    let endpoint = bind_client(&credentials, Purpose::Control, coordinator)?;
    let connection = connect(&endpoint, coordinator, PeerIdentity::coordinator(JOB), CONNECT_DEADLINE).await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    let hello = Hello::Depot(DepotHello {
        job: JOB,
        depot,
        host: format!("host {depot}"),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 40_000)),
        incarnation: Incarnation::ZERO,
    });
    write_frame(&mut send, &hello, HELLO_FRAME_BYTES).await?;
    match read_frame::<Greeting>(&mut receive, HELLO_FRAME_BYTES).await? {
        Some(Greeting::Joined { .. }) => {}
        other => return Err(format!("depot {depot} was not taken in: {other:?}").into()),
    }
    write_frame(&mut send, &holds, CONTROL_FRAME_BYTES).await?;
    tokio::spawn(async move {
        let mut manifest = Vec::new();
        while let Ok(Some(order)) = read_frame::<DepotOrder>(&mut receive, CONTROL_FRAME_BYTES).await {
            traffic.count(&order);
            let DepotOrder::Commit {
                snapshot, part, bytes, ..
            } = order
            else {
                continue;
            };
            manifest.extend(bytes);
            if (manifest.len() as u64) < part.of {
                continue;
            }
            let bytes = std::mem::take(&mut manifest);
            // A manifest that cannot be read is not answered, and the phase does not end.
            let Ok(read) = decode_manifest(&bytes) else { continue };
            let head = head_of(&read, key_of(&read, &bytes), Condition::Whole);
            let answer = DepotMessage::Committed { snapshot, head };
            traffic.count(&answer);
            if write_frame(&mut send, &answer, CONTROL_FRAME_BYTES).await.is_err() {
                return;
            }
        }
    });
    Ok((connection, endpoint))
}

/// A worker that says hello, answers what it is told, and beats.
pub(crate) async fn join(
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
    let expected = PeerIdentity::coordinator(JOB);
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
        connection,
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
        // A worker that says nothing for long is left out. Heartbeats are not counted.
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
