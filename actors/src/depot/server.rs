//! Where workers put pieces, and they and other depots read them. Must not know of the coordinator: it is told which processes to serve.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quinn::{Connection, Endpoint, RecvStream, SendStream};
use sardana_net::environment::Environment;
use sardana_net::log::{bounded, refused};
use sardana_net::quic::limits::{OF_PEERS, UNNAMED};
use sardana_net::quic::{BindError, Door, Places, REFUSED, Reach, bind_peer_on, close, widen};
use sardana_net::trust::{Kind, PeerIdentity, Role, RotatingCredentials, may_send};
use sardana_net::wire::read_frame;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{JobId, WorkerId};
use sardana_storage::store::{Store, UnderWay, Watch};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::access_list::AccessList;
use super::limits::{MAX_GETS, MAX_MANIFESTS, MAX_PUTS, REQUEST_BYTES, REQUEST_DEADLINE};
use super::near::is_here;
use super::patience::Patience;
use super::pins::Pins;
use super::shelf::Shelf;
use super::stream::{End, Talk};
use super::talk::{Answer, Request, cut};

/// The code of a stream that was given up.
const GIVEN_UP: u32 = 1;

/// A depot's end of all connections to workers and other depots.
#[derive(Debug)]
pub struct Server {
    pub(super) environment: Environment,
    rotating: RotatingCredentials,
    pub(super) endpoint: Endpoint,
    door: Door,
    /// Connections of processes that are not named.
    unnamed: Places<PeerIdentity>,
    /// Connections of processes that are.
    served: Places<PeerIdentity>,
    pub(super) shelf: Arc<Shelf>,
    access: AccessList,
    pub(super) pins: Pins,
    pub(super) puts: Semaphore,
    pub(super) gets: Semaphore,
    pub(super) manifests: Semaphore,
    /// Bytes of pieces that have come.
    pub(super) received: AtomicU64,
    /// Of those, the bytes that were seen in windows.
    pub(super) seen: AtomicU64,
    /// Bytes of pieces that were sent.
    pub(super) given: AtomicU64,
    /// A client was not given a piece, since it is damaged.
    pub(super) damage: Notify,
    /// What the disk of the store is at that was used last.
    watch: Mutex<Watch>,
    pub(super) patience: Patience,
}

impl Server {
    /// Listens at `address`, and serves from `store` the processes that are named.
    ///
    /// # Errors
    /// When the address cannot be bound or the credentials cannot be used.
    pub fn listen(
        environment: Environment,
        rotating: impl Into<RotatingCredentials>,
        address: SocketAddr,
        store: Store,
    ) -> Result<Arc<Self>, BindError> {
        Self::listen_with(environment, rotating, address, store, Patience::default())
    }

    /// The same with other bounds than usual: for tests.
    ///
    /// # Errors
    /// See [`Server::listen`].
    pub fn listen_with(
        environment: Environment,
        rotating: impl Into<RotatingCredentials>,
        address: SocketAddr,
        store: Store,
        patience: Patience,
    ) -> Result<Arc<Self>, BindError> {
        let rotating = rotating.into();
        let endpoint = bind_peer_on(&environment, &rotating, address, Reach::default())?;
        let watch = Mutex::new(store.watch().clone());
        let shelf = Arc::new(Shelf::new(store));
        let server = Arc::new(Self {
            environment,
            rotating,
            door: Door::new(endpoint.clone()),
            unnamed: Places::new(UNNAMED),
            served: Places::new(OF_PEERS),
            endpoint,
            pins: Pins::new(Arc::clone(&shelf)),
            shelf,
            access: AccessList::default(),
            puts: Semaphore::new(MAX_PUTS),
            gets: Semaphore::new(MAX_GETS),
            manifests: Semaphore::new(MAX_MANIFESTS),
            received: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            given: AtomicU64::new(0),
            damage: Notify::new(),
            watch,
            patience,
        });
        tokio::spawn(Arc::clone(&server).accept_all());
        Ok(server)
    }

    /// The job that it serves.
    pub(super) fn job(&self) -> JobId {
        self.rotating.job()
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Bytes of pieces that have come. Those that were there already have not.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Of those the bytes that were seen in memory of their writers, on this host, and did not pass the network.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Bytes of pieces that were sent from here. Those that others read from its files are not.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// From now on these are served, and no other process: connections of others end. Depots are named by the ids in their certificates.
    pub fn serve_only(&self, workers: impl IntoIterator<Item = WorkerId>, depots: impl IntoIterator<Item = u64>) {
        let (workers, depots): (BTreeSet<_>, BTreeSet<_>) = (workers.into_iter().collect(), depots.into_iter().collect());
        self.access.name(workers, depots);
    }

    /// What was put for this snapshot, or for any before it, need not be kept for its sake any more.
    pub fn release(&self, snapshot: SnapshotId) {
        self.pins.release(snapshot);
    }

    /// Closes everything, and waits until the others have been told.
    pub async fn close(&self, reason: &str) {
        close(&self.endpoint, reason).await;
    }

    async fn accept_all(self: Arc<Self>) {
        let server = Arc::clone(&self);
        let serve = move |peer, connection| Arc::clone(&server).serve(peer, connection);
        self.door.let_in(self.rotating.identity(), serve).await;
    }

    /// Serves what `peer` asks for, until its connection breaks or it is not named any more.
    async fn serve(self: Arc<Self>, peer: PeerIdentity, connection: Connection) {
        let busy = |why: &str| connection.close(0_u32.into(), why.as_bytes());
        let Some(unnamed) = self.unnamed.take(peer) else {
            return busy("too many are connected that are not named; try again");
        };
        // The coordinator's word may have reached the peer before it reaches this depot.
        let named = tokio::select! {
            biased;
            named = timeout(REQUEST_DEADLINE, self.access.named(peer)) => named,
            () = unnamed.wanted() => return busy("others connected that are not named; try again"),
        };
        drop(unnamed);
        if named.is_err() {
            refused!(%peer, "a process that is not named connected");
            let reason =
                format!("expected one that the coordinator has named, found {peer}; see whether the coordinator knows it");
            return connection.close(REFUSED, reason.as_bytes());
        }
        let Some(place) = self.served.take(peer) else {
            return busy("it has too many connections; try again");
        };
        widen(&connection, Reach::default());
        self.door.know([connection.remote_address()]);
        let from = connection.remote_address();
        let streams = async {
            while let Ok((send, receive)) = connection.accept_bi().await {
                tokio::spawn(Arc::clone(&self).serve_stream((peer, from), send, receive));
            }
        };
        tokio::select! {
            biased;
            () = streams => {}
            () = place.wanted() => connection.close(0_u32.into(), b"newer connections have replaced it"),
            () = self.access.revoked(peer) => {
                refused!(at info, %peer, "a process is no longer named: its connection ends");
                connection.close(REFUSED, b"the coordinator does not name this process any more");
            }
        }
    }

    async fn serve_stream(
        self: Arc<Self>,
        (peer, from): (PeerIdentity, SocketAddr),
        send: SendStream,
        mut receive: RecvStream,
    ) {
        let request = timeout(REQUEST_DEADLINE, read_frame::<Request>(&mut receive, REQUEST_BYTES)).await;
        let server = Arc::clone(&self);
        let mut talk = Talk { send, receive, server };
        let outcome = match request {
            Ok(Ok(Some(request))) if may_send(peer.role, Kind::from(&request), Role::Checkpoint) => {
                self.answer(request, from, &mut talk).await
            }
            Ok(Ok(Some(request))) => Err(End::Refused(format!("{peer} may not ask for {request:?}"))),
            Ok(Ok(None)) => Err(End::Broken("it ended before a request".to_owned())),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(End::Broken(format!("no request came within {REQUEST_DEADLINE:?}"))),
        };
        match outcome {
            Ok(()) => talk.delivered().await,
            Err(End::Refused(reason)) => {
                refused!(%peer, %reason, "what a process asked for was refused");
                // It must not go on sending. That fails only if it has ended.
                let _ = talk.receive.stop(GIVEN_UP.into());
                let refused = Answer::Refused { reason: cut(reason) };
                if talk.say(&refused).await.is_ok() {
                    talk.delivered().await;
                }
            }
            Err(End::Broken(reason)) => {
                bounded!(info, %peer, %reason, "a stream of pieces broke");
                let _ = talk.receive.stop(GIVEN_UP.into());
                let _ = talk.send.reset(GIVEN_UP.into());
            }
        }
    }

    async fn answer(&self, request: Request, from: SocketAddr, talk: &mut Talk) -> Result<(), End> {
        match request {
            Request::Put {
                snapshot,
                pieces,
                window,
            } => {
                // No process on another host has memory that is seen here.
                let window = window.filter(|_| is_here(from));
                self.put(snapshot, (pieces, window), talk).await
            }
            Request::Get { pieces } => self.get(pieces, talk).await,
            Request::Manifest { key } => self.manifest(key, talk).await,
            Request::Places { pieces } => self.places(pieces, talk).await,
        }
    }

    /// What `work` on the store gives.
    pub(super) async fn on_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, End> {
        let lent = self.shelf.lend().await;
        if let Some(store) = &*lent {
            *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = store.watch().clone();
        }
        let shelf = Arc::clone(&self.shelf);
        let worked = self.environment.blocking(move || {
            let store = lent.as_ref()?;
            let worked = work(store);
            shelf.used(store);
            Some(worked)
        });
        let worked = worked.await.ok_or_else(|| End::Broken("this process ends".to_owned()))?;
        worked.ok_or_else(|| End::Refused("its store has failed, and cannot be opened anew so far; see its log".to_owned()))
    }

    /// The same, unless the disk hangs.
    pub(super) async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, End> {
        let mut work = pin!(self.on_store(work));
        loop {
            match timeout(self.patience.wait_every, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.unless_it_hangs()?,
            }
        }
    }

    /// Whether it makes sense to wait for the disk.
    pub(super) fn unless_it_hangs(&self) -> Result<(), End> {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(UnderWay { what, path, age }) = watch.oldest().filter(|call| call.age >= self.patience.disk) else {
            return Ok(());
        };
        Err(End::Refused(format!(
            "its disk hangs: expected it to {what} {} within {:?}, it is still at it after {age:.1?}; see what is wrong with the disk, and \
             start the checkpoint actor again",
            path.display(),
            self.patience.disk
        )))
    }
}
