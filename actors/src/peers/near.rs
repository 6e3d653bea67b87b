//! Links to workers of this host, through memory that both processes map.
//!
//! The worker that will send connects to the Unix socket of the other, which has a name but no place in the file system: it is found only
//! within one network namespace, that is, on one host. Both prove with a secret of their QUIC connection, which no other process has, that they are its
//! ends (keying material exporters, RFC 8446, section 7.5), so that nothing but a certificate of this job leads to the memory. Whatever
//! fails here, or takes long, the link is made over QUIC instead.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener as StdListener};
use std::sync::Arc;
use std::{fs, io};

use quinn::{Connection, Endpoint};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use sardana_collectives::links::descriptors::{receive_with_memory, send_with_memory};
use sardana_collectives::links::{LinkReceiver, LinkSender, SharedMemory};
use sardana_net::log::refused;
use sardana_protocol::codec::{decode, encode};
use sardana_protocol::messages::HostHash;
use sardana_protocol::words::{JobId, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::Peers;
use super::limits::{
    NEAR_DEADLINE, NEAR_GREETINGS, NEAR_PROOF_DEADLINE, NEAR_REST, STREAM_HELLO_BYTES, STREAM_HELLO_DEADLINE,
};
use super::load::Ticket;
use super::table::LinkKey;

/// What passes through memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Carries {
    /// A link of a ring.
    Link(LinkKey),
    /// What follows an answer.
    Load(Ticket),
}

/// First message, from the worker that will send, together with the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NearHello {
    pub(super) carries: Carries,
    pub(super) from: WorkerId,
    pub(super) proof: Proof,
}

/// What only an end of a connection can know.
pub(super) type Proof = [u8; 32];

/// What the worker that will send says last.
const AGREED: u8 = 1;

/// What the two ends of a link show each other.
struct Proofs {
    sender: Proof,
    receiver: Proof,
}

/// The name of a worker's socket.
fn name(job: JobId, worker: WorkerId, port: u16) -> String {
    format!("sardana/{job}/{worker}/{port}")
}

/// The socket at which workers of this host are met. None where they are not, or where there can be none: links are made over QUIC then.
#[derive(Debug, Default)]
pub(super) struct Listening(Option<UnixListener>);

impl Listening {
    /// The socket of the worker that listens for others at `endpoint`.
    pub(super) fn of(job: JobId, worker: WorkerId, endpoint: &Endpoint) -> Self {
        let listening = endpoint.local_addr().and_then(|address| listen(job, worker, address.port()));
        if let Err(error) = &listening {
            tracing::debug!(%worker, %error, "workers of this host make links over QUIC");
        }
        Self(listening.ok())
    }

    /// Which workers can make links through memory with this one. None if none can, or the system does not tell.
    pub(super) fn host_hash(&self) -> Option<HostHash> {
        self.0.as_ref()?;
        let hash = host_hash().inspect_err(|error| {
            tracing::debug!(%error, "the system does not tell which host this is");
        });
        hash.ok()
    }

    /// Takes in the links that workers of this host make. Never ends.
    pub(super) async fn serve(self, peers: &Arc<Peers>) {
        let Self(Some(listener)) = self else {
            return std::future::pending().await;
        };
        let places = Arc::new(Semaphore::new(NEAR_GREETINGS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                // It concerns the one that came, or the descriptors that this process has left: others may come later.
                Err(error) => {
                    tracing::debug!(%error, "a worker of this host could not be met");
                    sleep(NEAR_REST).await;
                    continue;
                }
            };
            let peers = Arc::clone(peers);
            tokio::spawn(async move {
                let met = timeout(STREAM_HELLO_DEADLINE, peers.meet_near(socket)).await;
                if let Ok(Err(error)) = met {
                    tracing::debug!(%error, "a link through shared memory could not be made");
                }
                drop(place);
            });
        }
    }
}

/// The same for all processes that find each other's sockets, which have a name within a network namespace, and are of the same user.
fn host_hash() -> io::Result<HostHash> {
    // Drawn at random when the system starts (random(4)). Namespaces have an inode each (namespaces(7)).
    let boot = fs::read("/proc/sys/kernel/random/boot_id")?;
    let inode = |namespace| Ok::<_, io::Error>(fs::metadata(namespace)?.ino());
    let namespaces = [inode("/proc/self/ns/net")?, inode("/proc/self/ns/user")?];
    Ok(hash_of(&boot, namespaces, geteuid().as_raw()))
}

/// Another one, if any of these is another.
pub(super) fn hash_of(boot: &[u8], namespaces: [u64; 2], user: u32) -> HostHash {
    let mut hasher = blake3::Hasher::new_derive_key("sardana workers that can share memory");
    hasher.update(&user.to_le_bytes());
    for namespace in namespaces {
        hasher.update(&namespace.to_le_bytes());
    }
    hasher.update(boot);
    let mut bytes = [0; 16];
    hasher.finalize_xof().fill(&mut bytes);
    HostHash::new(bytes)
}

fn listen(job: JobId, worker: WorkerId, port: u16) -> io::Result<UnixListener> {
    let address = UnixAddress::from_abstract_name(name(job, worker, port))?;
    let listener = StdListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// A socket to a worker of this host. An error if there is none, which shows at once.
fn reach(job: JobId, worker: WorkerId, port: u16) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(name(job, worker, port).as_bytes())?,
    )?;
    UnixStream::from_std(socket.into())
}

impl Proofs {
    /// Of the link that carries this, and that `from` sends on, beside this connection.
    fn of(connection: &Connection, carries: Carries, from: WorkerId) -> Option<Self> {
        let context = encode(&(carries, from), STREAM_HELLO_BYTES).ok()?;
        let proof = |label: &[u8]| {
            let mut proof = Proof::default();
            connection.export_keying_material(&mut proof, label, &context).ok()?;
            Some(proof)
        };
        Some(Self {
            sender: proof(b"EXPORTER-sardana-link-sender")?,
            receiver: proof(b"EXPORTER-sardana-link-receiver")?,
        })
    }
}

/// Whether two proofs are the same, in a time that does not tell how much of them is.
fn same(one: Proof, other: Proof) -> bool {
    blake3::Hash::from(one) == blake3::Hash::from(other)
}

impl Peers {
    /// A link to `peer`, if that is a worker of this host; it has this connection with it, and listens at this port.
    pub(super) async fn open_near(
        &self,
        carries: Carries,
        (peer, port): (WorkerId, u16),
        connection: &Connection,
    ) -> Option<LinkSender> {
        if !self.near {
            return None;
        }
        let mut socket = reach(self.credentials.job(), peer, port).ok()?;
        let greeted = timeout(NEAR_DEADLINE, self.greet(carries, &mut socket, connection)).await;
        match greeted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(memory) => Some(LinkSender::shared_memory(memory, socket)),
            Err(error) => {
                tracing::debug!(%peer, %error, "a link could not be made through shared memory, and is made over QUIC");
                None
            }
        }
    }

    /// Shows the process at the other end that this one has a secret of the connection, and is shown it.
    pub(super) async fn greet(
        &self,
        carries: Carries,
        socket: &mut UnixStream,
        connection: &Connection,
    ) -> io::Result<SharedMemory> {
        if !is_own_user(socket)? {
            return Err(io::Error::other("a process of another user is at that socket"));
        }
        let proofs =
            Proofs::of(connection, carries, self.own).ok_or_else(|| io::Error::other("the connection has no secret"))?;
        let (memory, shared) = SharedMemory::create()?;
        let hello = NearHello {
            carries,
            from: self.own,
            proof: proofs.sender,
        };
        let hello = encoded(&hello)?;
        socket
            .async_io(Interest::WRITABLE, || send_with_memory(&*socket, &hello, &shared))
            .await?;
        let mut answer = Proof::default();
        socket.read_exact(&mut answer).await?;
        if !same(answer, proofs.receiver) {
            let unproven = "the process at that socket did not prove that it is the peer";
            return Err(io::Error::other(unproven));
        }
        // From here on the other end has a link.
        socket.write_all(&[AGREED]).await?;
        Ok(memory)
    }

    async fn meet_near(&self, mut socket: UnixStream) -> io::Result<()> {
        if !is_own_user(&socket)? {
            return Err(io::Error::other("it is a process of another user"));
        }
        let (hello, memory) = socket.async_io(Interest::READABLE, || receive(&socket)).await?;
        let hello: NearHello = decode(&hello, STREAM_HELLO_BYTES).map_err(io::Error::other)?;
        let NearHello { carries, from, proof } = hello;
        // The connection that the proof is of may not have been taken in yet. If there is none, nothing stays of that name.
        let _forgets = Forgets(self, from);
        let slot = self.slot(from);
        let proves = |connection: &Connection| {
            let proofs = Proofs::of(connection, carries, from)?;
            same(proof, proofs.sender).then_some(proofs.receiver)
        };
        let proven = slot
            .live
            .find(|live| live.iter().find_map(&proves).or_else(|| slot.earlier(&proves)));
        let Ok(answer) = timeout(NEAR_PROOF_DEADLINE, proven).await else {
            refused!(claimed = %from, "a link through shared memory with a false name");
            return Ok(());
        };
        if let Carries::Link(key) = carries
            && !self.table.has_room(key, from)
        {
            return Err(io::Error::other("many links of that worker wait for their generation"));
        }
        let memory = SharedMemory::open(&memory)?;
        socket.write_all(&answer).await?;
        // A worker that has given up meanwhile makes its link over QUIC.
        socket.read_exact(&mut [0]).await?;
        let link = LinkReceiver::shared_memory(memory, socket);
        match carries {
            Carries::Link(key) => self.arrived(key, from, link),
            Carries::Load(ticket) => self.loads.arrive(ticket, from, link),
        }
        Ok(())
    }
}

/// Whether the process at the other end is of this one's user.
fn is_own_user(socket: &UnixStream) -> io::Result<bool> {
    Ok(socket.peer_cred()?.uid() == geteuid().as_raw())
}

/// At its end nothing stays of a worker that is not named and has no connection.
struct Forgets<'a>(&'a Peers, WorkerId);

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

/// A first message's bytes.
pub(super) fn encoded(hello: &NearHello) -> io::Result<Vec<u8>> {
    encode(hello, STREAM_HELLO_BYTES).map_err(io::Error::other)
}

/// A message that came together with memory.
fn receive(socket: &UnixStream) -> io::Result<(Vec<u8>, OwnedFd)> {
    let mut message = vec![0; STREAM_HELLO_BYTES];
    let (bytes, memory) = receive_with_memory(socket, &mut message)?;
    message.truncate(bytes);
    Ok((message, memory.ok_or_else(|| io::Error::other("it came without memory"))?))
}
