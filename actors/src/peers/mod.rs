//! Connections between workers: links of rings, and what workers that are behind or join fetch.
//!
//! For links, of two workers the one with the smaller id dials, and both use the one connection in both directions. Must not know why a link
//! or a transfer is wanted, nor which others are members.

mod access_list;
mod copy;
mod fetch;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod incoming;
mod keeper;
mod lend;
pub mod limits;
mod links;
mod load;
mod meters;
#[cfg_attr(not(target_os = "linux"), path = "no_near.rs")]
mod near;
mod serve;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use quinn::{Connection, Endpoint};
use sardana_net::environment::Environment;
use sardana_net::quic::limits::{CONNECT_DEADLINE, CONNECTIONS_OF_PEER, UNNAMED, UNNAMED_DEADLINE};
use sardana_net::quic::{BindError, ConnectError, Door, Places, Reach, bind_peer_on, close, connect, widen};
use sardana_net::trust::{PeerIdentity, RotatingCredentials};
use sardana_protocol::messages::{HostHash, MemberAddress};
use sardana_protocol::state::StatePieces;
use sardana_protocol::words::{Generation, WorkerId};
use tokio::time::sleep;

use access_list::AccessList;
pub use access_list::PeerGroup;
pub use copy::CopyError;
pub use fetch::{FetchError, FollowedSum};
#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use keeper::{Keeper, OutgoingShare, OutgoingSum};
use lend::Lent;
pub(crate) use lend::{PutError, Reading};
pub use links::LinkingError;
use load::Loads;
use meters::Meters;
use near::Listening;
use table::LinkTable;

use crate::watched::Watched;

/// What the links of rings go through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LinkChoice {
    /// Memory that is shared, between workers of one host and user; else QUIC.
    #[default]
    Auto,
    /// QUIC, wherever the workers are.
    Quic,
}

/// This worker's end of all connections to other workers.
#[derive(Debug)]
pub struct Peers {
    environment: Environment,
    credentials: RotatingCredentials,
    endpoint: Endpoint,
    /// How far its peers are.
    reach: Reach,
    door: Door,
    /// Workers that have connected and are not named.
    unnamed: Places<WorkerId>,
    own: WorkerId,
    slots: Mutex<BTreeMap<WorkerId, Arc<Slot>>>,
    table: LinkTable,
    meters: Meters,
    loads: Loads,
    /// Links to workers of this host go through shared memory.
    near: bool,
    host_hash: Option<HostHash>,
    access: AccessList,
    lent: Watched<Lent>,
    keeper: Arc<dyn Keeper>,
    pieces: Arc<StatePieces>,
}

/// The connection to one other worker.
#[derive(Debug)]
struct Slot {
    /// The connection that new streams are opened on.
    live: Watched<Option<Connection>>,
    /// The connections before it: when both dialled at once, streams may go on there.
    earlier: Mutex<Vec<Connection>>,
    /// A link did not come in time: whatever this end has may be lost at the other end.
    doubted: AtomicBool,
    dialling: tokio::sync::Mutex<()>,
}

impl Slot {
    fn is_usable(&self, live: &Option<Connection>) -> bool {
        !self.doubted.load(Ordering::Relaxed) && live.as_ref().is_some_and(|live| live.close_reason().is_none())
    }

    /// What `look` finds in a connection before the live one.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "no links are made beside connections")
    )]
    fn earlier<T>(&self, look: impl FnMut(&Connection) -> Option<T>) -> Option<T> {
        let earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.iter().find_map(look)
    }

    fn is_closed(&self) -> bool {
        let live = self.live.read(Clone::clone);
        let earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier
            .iter()
            .chain(&live)
            .all(|connection| connection.close_reason().is_some())
    }

    fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    fn close(&self) {
        let earlier = std::mem::take(&mut *self.earlier.lock().unwrap_or_else(PoisonError::into_inner));
        let live = self.live.read(Clone::clone);
        for connection in earlier.iter().chain(&live) {
            connection.close(0_u32.into(), b"no longer named");
        }
    }
}

impl Peers {
    /// Listens at `address` and serves what other workers ask of `keeper`, once they are named. The state has these pieces.
    ///
    /// # Errors
    /// When the address cannot be bound or the credentials cannot be used.
    pub fn listen(
        credentials: impl Into<RotatingCredentials>,
        address: SocketAddr,
        keeper: Arc<impl Keeper + 'static>,
        pieces: Arc<StatePieces>,
    ) -> Result<Arc<Self>, BindError> {
        let paths = (LinkChoice::Auto, Reach::default());
        Self::listen_on(Environment::Host, credentials, address, paths, keeper, pieces)
    }

    /// Likewise, on another environment than the host, with links through these, and peers within this reach.
    ///
    /// # Errors
    /// As [`Self::listen`].
    pub fn listen_on(
        environment: Environment,
        credentials: impl Into<RotatingCredentials>,
        address: SocketAddr,
        (links, reach): (LinkChoice, Reach),
        keeper: Arc<impl Keeper + 'static>,
        pieces: Arc<StatePieces>,
    ) -> Result<Arc<Self>, BindError> {
        let credentials = credentials.into();
        let endpoint = bind_peer_on(&environment, &credentials, address, reach)?;
        let own = WorkerId::new(credentials.id());
        // Simulated processes share one host's memory, and are to behave as if each had its own.
        let near = links == LinkChoice::Auto && matches!(environment, Environment::Host);
        let listening = near.then(|| Listening::of(credentials.job(), own, &endpoint));
        let peers = Arc::new(Self {
            environment,
            own,
            credentials,
            door: Door::new(endpoint.clone()),
            unnamed: Places::new(UNNAMED),
            endpoint,
            reach,
            slots: Mutex::new(BTreeMap::new()),
            table: LinkTable::default(),
            meters: Meters::default(),
            loads: Loads::default(),
            near,
            host_hash: listening.as_ref().and_then(Listening::host_hash),
            access: AccessList::default(),
            lent: Watched::default(),
            keeper,
            pieces,
        });
        tokio::spawn(Arc::clone(&peers).accept_all(listening.unwrap_or_default()));
        Ok(peers)
    }

    /// So many more bytes of a state are here: see [`Keeper::moved`].
    pub(crate) fn moved(&self, bytes: usize) {
        self.keeper.moved(bytes);
    }

    /// Memory for a whole state, with anything in it.
    pub(crate) fn state_room(&self) -> BytesMut {
        self.keeper.reserve().whole(self.pieces.bytes())
    }

    /// A whole state that is in such memory, to be read.
    pub(crate) fn state_in(&self, room: BytesMut) -> Bytes {
        self.keeper.reserve().read_only(room)
    }

    #[cfg(test)]
    pub(crate) fn moved_so_far(&self) -> u64 {
        self.keeper.moved_so_far()
    }

    /// Where this worker listens.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn local_address(&self) -> std::io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Which workers it can share memory with. None if with none.
    pub(crate) const fn host_hash(&self) -> Option<HostHash> {
        self.host_hash
    }

    /// From now on links of generations older than `generation` are refused (GEN-3).
    pub fn fence(&self, generation: Generation) {
        self.table.fence(generation);
        self.meters.fence(generation);
    }

    /// The end that all its connections come from: for connections that are not to other workers.
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What this worker stands on.
    pub(crate) const fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Closes everything, without waiting.
    pub(crate) fn abandon(&self, reason: &str) {
        self.endpoint.close(0_u32.into(), reason.as_bytes());
    }

    /// Closes everything, and waits until the others have been told.
    pub async fn close(&self, reason: &str) {
        close(&self.endpoint, reason).await;
    }

    /// From now on these are named so, and no other worker is: they may fetch what this worker has. A transfer to a worker that is not
    /// named any more ends at once.
    pub fn name(&self, group: PeerGroup, workers: impl IntoIterator<Item = WorkerId>) {
        let workers: BTreeSet<WorkerId> = workers.into_iter().collect();
        self.access.name(group, workers);
    }

    /// The members of the prepared generation are those of the present one.
    pub fn switch_names(&self) {
        self.access.switch();
    }

    /// Workers that were named and are no longer, each once: their connections are of no use any more.
    pub fn parted(&self) -> Vec<WorkerId> {
        self.access.parted()
    }

    /// Closes the connections to these workers, but for those that are named by now.
    pub fn part(&self, workers: &[WorkerId]) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let parting = workers.iter().filter(|&&worker| !self.access.has(worker));
        for slot in parting.filter_map(|worker| slots.remove(worker)) {
            slot.close();
        }
    }

    async fn accept_all(self: Arc<Self>, near: Listening) {
        let peers = Arc::clone(&self);
        let meet = move |peer: PeerIdentity, connection| Arc::clone(&peers).meet(WorkerId::new(peer.id), connection);
        tokio::select! {
            () = self.door.let_in(self.credentials.identity(), meet) => {}
            // It has no end of its own.
            () = near.serve(&self) => {}
        }
    }

    /// Takes in a connection that `peer` has made. As long as it is not named it may open and send little, and not for long.
    async fn meet(self: Arc<Self>, peer: WorkerId, connection: Connection) {
        if !self.access.has(peer) {
            let Some(place) = self.unnamed.take(peer) else {
                return connection.close(0_u32.into(), b"too many are connected that are not named; try again");
            };
            self.adopt(peer, &connection);
            let why = tokio::select! {
                biased;
                () = self.access.learned(peer) => None,
                () = place.wanted() => Some("others connected that are not named"),
                () = sleep(UNNAMED_DEADLINE) => Some("the coordinator has not named this worker there"),
                _ = connection.closed() => Some("it was closed"),
            };
            if let Some(why) = why {
                connection.close(0_u32.into(), why.as_bytes());
                return self.forget(peer);
            }
        } else {
            self.adopt(peer, &connection);
        }
        widen(&connection, self.reach);
        self.door.know([connection.remote_address()]);
    }

    /// Makes `connection` the one to `peer`, and serves it until it breaks.
    fn adopt(self: &Arc<Self>, peer: WorkerId, connection: &Connection) {
        let slot = self.slot(peer);
        slot.doubted.store(false, Ordering::Relaxed);
        // At each moment it is in one of the two places: a greeting looks for it.
        let before = slot.live.read(Clone::clone);
        let mut earlier = slot.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.retain(|connection| connection.close_reason().is_none());
        earlier.extend(before.filter(|connection| connection.close_reason().is_none()));
        while earlier.len() >= CONNECTIONS_OF_PEER {
            earlier.remove(0).close(0_u32.into(), b"newer connections have replaced it");
        }
        drop(earlier);
        slot.live.replace(Some(connection.clone()));
        tokio::spawn(Arc::clone(self).serve_links(peer, connection.clone()));
        tokio::spawn(Arc::clone(self).serve_fetches(peer, connection.clone()));
    }

    /// Nothing is left of the connections to a worker that was never named.
    fn forget(&self, peer: WorkerId) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // A task that waits for it, or dials, has it as well.
        let is_idle = |slot: &Arc<Slot>| Arc::strong_count(slot) == 1 && slot.is_closed();
        if !self.access.has(peer) && slots.get(&peer).is_some_and(is_idle) {
            slots.remove(&peer);
        }
    }

    fn slot(&self, peer: WorkerId) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            Arc::new(Slot {
                live: Watched::new(None),
                earlier: Mutex::default(),
                doubted: AtomicBool::new(false),
                dialling: tokio::sync::Mutex::new(()),
            })
        };
        Arc::clone(slots.entry(peer).or_insert_with(fresh))
    }

    /// The connection to `peer` that both need for their links: the one there is, or a new one. Only one of the two dials, unless the
    /// one there was is in doubt.
    async fn connection(self: &Arc<Self>, peer: MemberAddress) -> Result<Connection, ConnectError> {
        let slot = self.slot(peer.worker);
        if self.own > peer.worker && !slot.doubted.load(Ordering::Relaxed) {
            let usable = |live: &Option<Connection>| live.clone().filter(|_| slot.is_usable(live));
            return Ok(slot.live.find(usable).await);
        }
        self.dial(peer).await
    }

    /// The connection to `peer` when only this worker needs it: the one there is, or a new one.
    async fn dial(self: &Arc<Self>, peer: MemberAddress) -> Result<Connection, ConnectError> {
        let slot = self.slot(peer.worker);
        let _one_at_a_time = slot.dialling.lock().await;
        let live = slot.live.read(Clone::clone);
        if let Some(live) = live.filter(|live| slot.is_usable(&Some(live.clone()))) {
            return Ok(live);
        }
        let expected = PeerIdentity::worker(self.credentials.job(), peer.worker);
        // The peer may have to dial this worker one day.
        self.door.know([peer.address]);
        let connection = connect(&self.endpoint, peer.address, expected, CONNECT_DEADLINE).await?;
        self.adopt(peer.worker, &connection);
        Ok(connection)
    }
}

#[cfg(test)]
impl Peers {
    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.endpoint.open_connections()
    }
}
