//! What workers, and other depots, ask of depots.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use quinn::{Connection, Endpoint};
use sardana_net::environment::Environment;
use sardana_net::quic::connect;
use sardana_net::quic::limits::CONNECT_DEADLINE;
use sardana_net::trust::{PeerIdentity, Role, RotatingCredentials};
use sardana_protocol::checkpoint::{DepotAddress, DepotId, Manifest, ManifestKey, PieceHash};
use sardana_protocol::snapshot::SnapshotId;
use sardana_storage::manifest::{self, MANIFEST_BYTES};
use tokio::time::timeout;

use super::asking::{Asking, Given, NowAndThen};
use super::error::DepotError;
use super::limits::{LIST_BYTES, PUT_MOST, REQUEST_BYTES};
use super::patience::Patience;
use super::rounds::Rounds;
use super::talk::{Answer, Request};
use super::window::Window;
use crate::fault;

/// The depots as a process sees them that puts pieces there or reads them. Keeps a connection to each that was asked.
#[derive(Debug)]
pub struct Depots {
    pub(super) environment: Environment,
    endpoint: Endpoint,
    credentials: RotatingCredentials,
    pub(super) patience: Patience,
    pub(super) reach: Reach,
    slots: Mutex<BTreeMap<DepotId, Arc<Slot>>>,
    /// Depots on this host that do not see what is shown to them.
    pub(super) unseeing: Mutex<BTreeSet<DepotId>>,
}

/// How pieces go to depots and come from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To depots on this host through memory that both see, and from the depots' files, as far as that may be; else over the network.
    Host,
    /// Over the network only.
    Network,
}

impl Default for Reach {
    fn default() -> Self {
        if fault::apart() { Self::Network } else { Self::Host }
    }
}

/// The connection to one depot, and to which address it was made.
type Slot = tokio::sync::Mutex<Option<(DepotAddress, Connection)>>;

impl Depots {
    /// The depots that can be reached from `endpoint`, which shows `credentials`.
    #[must_use]
    pub fn new(environment: Environment, endpoint: Endpoint, credentials: RotatingCredentials) -> Arc<Self> {
        Self::with(environment, endpoint, credentials, (Patience::default(), Reach::default()))
    }

    /// The same with other bounds than usual, or another reach: for tests.
    #[must_use]
    pub fn with(
        environment: Environment,
        endpoint: Endpoint,
        credentials: RotatingCredentials,
        (patience, reach): (Patience, Reach),
    ) -> Arc<Self> {
        Arc::new(Self {
            environment,
            endpoint,
            credentials,
            patience,
            reach,
            slots: Mutex::default(),
            unseeing: Mutex::default(),
        })
    }

    /// All of `pieces` are durable at `depot` when this returns. A depot on this host sees them in memory of this process; to another they
    /// are sent. Calls `progress` now and then while that goes on.
    ///
    /// # Errors
    /// See [`DepotError`]. What was written is there when it is tried again.
    pub async fn put(
        &self,
        depot: DepotAddress,
        snapshot: SnapshotId,
        pieces: &[(PieceHash, Bytes)],
        progress: impl Fn() + Send + Sync,
    ) -> Result<(), DepotError> {
        // States are often full of zeros.
        let mut seen = HashSet::new();
        let once = pieces.iter().filter(|(piece, _)| seen.insert(*piece));
        let pieces: &[(PieceHash, Bytes)] = &once.cloned().collect::<Vec<_>>();
        let window = self.window(depot, pieces.iter().map(|(_, bytes)| bytes.len()).sum());
        let mut progress = NowAndThen::new(progress);
        let put = self.put_with(window.as_ref(), depot, snapshot, pieces, &mut progress).await;
        // There are many pages in it.
        self.environment.blocking(move || drop(window)).await;
        match put {
            Err(error @ DepotError::Window { .. }) => {
                tracing::info!(%error, "what cannot be shown is sent");
                self.show_no_more(depot.depot);
                self.put_with(None, depot, snapshot, pieces, &mut progress).await
            }
            Err(_) | Ok(()) => put,
        }
    }

    async fn put_with<P: Fn() + Send + Sync>(
        &self,
        window: Option<&Arc<Window>>,
        depot: DepotAddress,
        snapshot: SnapshotId,
        pieces: &[(PieceHash, Bytes)],
        progress: &mut NowAndThen<P>,
    ) -> Result<(), DepotError> {
        let put = timeout(PUT_MOST, self.put_rounds(window, depot, snapshot, pieces, progress)).await;
        put.unwrap_or(Err(DepotError::Hangs {
            depot: depot.depot,
            after: PUT_MOST,
        }))
    }

    async fn put_rounds<P: Fn() + Send + Sync>(
        &self,
        window: Option<&Arc<Window>>,
        depot: DepotAddress,
        snapshot: SnapshotId,
        pieces: &[(PieceHash, Bytes)],
        progress: &mut NowAndThen<P>,
    ) -> Result<(), DepotError> {
        let mut talk = self.open(depot).await?;
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let request = Request::Put {
            snapshot,
            pieces: count,
            window: window.map(|window| window.at()),
        };
        talk.say(&request, REQUEST_BYTES).await?;
        let (mut left, mut rounds) = (pieces, Rounds::default());
        while !left.is_empty() {
            let (round, rest) = left.split_at(rounds.next().min(left.len()));
            left = rest;
            let (wanted, looks) = talk.offer(round, progress).await?;
            rounds.begins(round.len());
            match window {
                Some(window) if looks => talk.show(&self.environment, window, &wanted, progress).await?,
                Some(_) | None => talk.send_all(wanted, progress).await?,
            }
        }
        let answer = talk.answer(progress).await?;
        if answer == Answer::Durable {
            Ok(())
        } else {
            Err(talk.senseless("that all is durable", &answer))
        }
    }

    /// Calls `each` with the index and the bytes of every one of `pieces` that the depot has, compared with its hash. The indices of those
    /// that it did not give, and why.
    ///
    /// # Errors
    /// See [`DepotError`]: those that `each` was not called for were not given.
    pub async fn get(
        &self,
        depot: DepotAddress,
        pieces: &[PieceHash],
        mut each: impl FnMut(usize, &[u8]) + Send,
    ) -> Result<Vec<(usize, String)>, DepotError> {
        let mut lacking = Vec::new();
        let (mut start, mut rounds) = (0, Rounds::default());
        while start < pieces.len() {
            let round = &pieces[start..(start + rounds.next()).min(pieces.len())];
            rounds.begins(round.len());
            let mut talk = self.open(depot).await?;
            let count = u32::try_from(round.len()).unwrap_or(u32::MAX);
            talk.say(&Request::Get { pieces: count }, REQUEST_BYTES).await?;
            talk.say(round, LIST_BYTES).await?;
            let mut left = round.iter().copied().zip(start..);
            let mut batch = talk.batch(&mut left).await?;
            while !batch.is_empty() {
                // While one batch is compared the next batch comes.
                let (compared, next) = tokio::join!(self.environment.blocking(|| compare(batch)), talk.batch(&mut left));
                let depot = depot.depot;
                for Given { index, bytes, .. } in compared.ok_or(DepotError::Ending { depot })? {
                    match bytes {
                        Ok(bytes) => each(index, &bytes),
                        Err(reason) => lacking.push((index, reason)),
                    }
                }
                batch = next?;
            }
            start += round.len();
        }
        Ok(lacking)
    }

    /// The manifest `key`.
    ///
    /// # Errors
    /// See [`DepotError`].
    pub async fn manifest(&self, depot: DepotAddress, key: ManifestKey) -> Result<Manifest, DepotError> {
        let mut talk = self.open(depot).await?;
        talk.say(&Request::Manifest { key }, REQUEST_BYTES).await?;
        let depot = depot.depot;
        let given = talk.given("a manifest", MANIFEST_BYTES).await?;
        let bytes = given.map_err(|reason| DepotError::NotHere { depot, key, reason })?;
        let decoded = self.environment.blocking(move || manifest::decode_as(&bytes, key)).await;
        let decoded = decoded.ok_or(DepotError::Ending { depot })?;
        decoded.map_err(|source| DepotError::Manifest { depot, source })
    }

    pub(super) async fn open(&self, depot: DepotAddress) -> Result<Asking, DepotError> {
        let connection = self.connection(depot).await?;
        Asking::open(depot.depot, &connection, self.patience).await
    }

    /// The connection there is, or a new one.
    async fn connection(&self, wanted: DepotAddress) -> Result<Connection, DepotError> {
        let DepotAddress {
            depot,
            certified,
            address,
        } = wanted;
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(depot).or_default())
        };
        let mut slot = slot.lock().await;
        if let Some((at, live)) = &*slot
            && *at == wanted
            && live.close_reason().is_none()
        {
            return Ok(live.clone());
        }
        let expected = PeerIdentity {
            job: self.credentials.job(),
            role: Role::Checkpoint,
            id: certified,
        };
        let connected = connect(&self.endpoint, address, expected, CONNECT_DEADLINE).await;
        let connection = connected.map_err(|source| DepotError::Connect { depot, source })?;
        *slot = Some((wanted, connection.clone()));
        Ok(connection)
    }
}

fn compare(mut batch: Vec<Given>) -> Vec<Given> {
    for given in &mut batch {
        let found = given.bytes.as_ref().ok().map(|bytes| PieceHash::of(bytes));
        if let Some(found) = found.filter(|found| *found != given.piece) {
            given.bytes = Err(format!("expected the bytes of piece {}, found those of {found}", given.piece));
        }
    }
    batch
}
