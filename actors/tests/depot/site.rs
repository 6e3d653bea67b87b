//! An authority, depots and workers, all in this process.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sardana_actors::depot::{Depots, Patience, Reach, Server};
use sardana_net::environment::Environment;
use sardana_net::quic::{Purpose, bind_server};
use sardana_net::trust::{Authority, Role, RotatingCredentials};
use sardana_protocol::checkpoint::{DepotAddress, DepotId, Manifest, ManifestId, ManifestKey, PieceHash, Placing};
use sardana_protocol::samples;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{Generation, Incarnation, JobId, Step, WorkerId};
use sardana_storage::manifest;
use sardana_storage::store::{SEGMENTS_FOLDER, Store};
use tempfile::TempDir;
use tokio::time::timeout;

pub(crate) const JOB: JobId = JobId::new([3; 16]);
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Nothing in these tests takes long; whatever has not happened by then never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The worker that most tests are about.
pub(crate) const WORKER: WorkerId = WorkerId::new(7);

pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it happens in time")
}

pub(crate) fn authority() -> Authority {
    Authority::new(JOB).unwrap()
}

/// What a worker asks depots with.
pub(crate) fn client(authority: &Authority, worker: WorkerId) -> Arc<Depots> {
    client_with(authority, worker, Patience::default())
}

pub(crate) fn client_with(authority: &Authority, worker: WorkerId, patience: Patience) -> Arc<Depots> {
    client_at(authority, worker, (patience, Reach::Host))
}

pub(crate) fn client_at(authority: &Authority, worker: WorkerId, how: (Patience, Reach)) -> Arc<Depots> {
    let rotating = RotatingCredentials::from(authority.issue(Role::Worker, worker.get()).unwrap());
    let endpoint = bind_server(&rotating, Purpose::Peer, LOOPBACK).unwrap();
    Depots::with(Environment::Host, endpoint, rotating, how)
}

/// Each way in which pieces go to depots and come from them.
pub(crate) const WAYS: [Reach; 2] = [Reach::Host, Reach::Network];

/// The bulk end of a depot, with a store of its own, that serves [`WORKER`].
pub(crate) struct Place {
    pub(crate) server: Arc<Server>,
    pub(crate) store: Store,
    pub(crate) at: DepotAddress,
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new(authority: &Authority, id: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store")).unwrap().store;
        Self::of(authority, id, store, folder)
    }

    pub(crate) fn of(authority: &Authority, id: u64, store: Store, folder: TempDir) -> Self {
        Self::with(authority, id, (store, folder), Patience::default())
    }

    pub(crate) fn with(authority: &Authority, id: u64, (store, folder): (Store, TempDir), patience: Patience) -> Self {
        // A certificate says nothing of which depot it is.
        let certified = id + 1_000;
        let credentials = authority.issue(Role::Checkpoint, certified).unwrap();
        let server = Server::listen_with(Environment::Host, credentials, LOOPBACK, store.clone(), patience).unwrap();
        server.serve_only([WORKER], []);
        let at = DepotAddress {
            depot: DepotId::new(id),
            certified,
            address: server.local_address().unwrap(),
        };
        Self {
            server,
            store,
            at,
            folder,
        }
    }
}

pub(crate) fn snapshot(step: u64) -> SnapshotId {
    SnapshotId {
        generation: Generation::new(Incarnation::new(1), 1),
        step: Step::new(step),
    }
}

/// Some pieces of different lengths, none of them alike.
pub(crate) fn pieces(seed: u8, count: usize) -> Vec<(PieceHash, Bytes)> {
    let piece = |number: usize| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[seed]).update(&(number as u64).to_le_bytes());
        let mut bytes = vec![0; 1 + number * 7_919 % 300_000];
        hasher.finalize_xof().fill(&mut bytes);
        (PieceHash::of(&bytes), Bytes::from(bytes))
    };
    (0..count).map(piece).collect()
}

pub(crate) fn names(pieces: &[(PieceHash, Bytes)]) -> Vec<PieceHash> {
    pieces.iter().map(|(name, _)| *name).collect()
}

pub(crate) fn bytes_of(pieces: &[(PieceHash, Bytes)]) -> u64 {
    pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum()
}

/// A depot takes these pieces of the snapshot at this step.
pub(crate) async fn puts(worker: &Depots, at: DepotAddress, step: u64, pieces: &[(PieceHash, Bytes)]) {
    soon(worker.put(at, snapshot(step), pieces, || ())).await.unwrap();
}

/// A depot gives all of these, as they should be.
pub(crate) async fn gets(worker: &Depots, at: DepotAddress, pieces: &[(PieceHash, Bytes)]) {
    let (mut read, asked) = (Read::of(pieces.len()), names(pieces));
    let got = worker.get(at, &asked, |index, bytes| read.take(index, bytes));
    assert_eq!(soon(got).await.unwrap(), []);
    read.assert_all_but(pieces, &[]);
}

/// All of these are had from some of these depots, as they should be.
pub(crate) async fn reads(worker: &Depots, at: &[DepotAddress], pieces: &[(PieceHash, Bytes)]) {
    let (mut read, asked) = (Read::of(pieces.len()), names(pieces));
    let reading = worker.read_pieces(at, &asked, |index, bytes| read.take(index, bytes));
    soon(reading).await.unwrap();
    read.assert_all_but(pieces, &[]);
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

/// What was read, by index.
#[derive(Default)]
pub(crate) struct Read(Vec<Option<Vec<u8>>>);

impl Read {
    pub(crate) fn of(count: usize) -> Self {
        Self(vec![None; count])
    }

    pub(crate) fn take(&mut self, index: usize, bytes: &[u8]) {
        assert!(self.0[index].replace(bytes.to_vec()).is_none(), "{index} came twice");
    }

    /// All of `pieces` but those came, as they should be.
    pub(crate) fn assert_all_but(&self, pieces: &[(PieceHash, Bytes)], missing: &[usize]) {
        assert_eq!(self.0.len(), pieces.len());
        for (index, (read, (_, bytes))) in self.0.iter().zip(pieces).enumerate() {
            let expected = (!missing.contains(&index)).then_some(&bytes[..]);
            assert!(read.as_deref() == expected, "piece {index}");
        }
    }
}

/// The placing of all manifests here.
pub(crate) const PLACING: Placing = Placing {
    incarnation: Incarnation::new(1),
    number: 1,
};

pub(crate) fn manifest(step: u64, pieces: &[(PieceHash, Bytes)], replicas: u32, depots: &[DepotId]) -> Manifest {
    Manifest {
        snapshot: snapshot(step),
        description: Vec::new(),
        pieces: names(pieces),
        bytes: bytes_of(pieces),
        replicas,
        depots: depots.to_vec(),
        placing: PLACING,
        ..samples::manifest(JOB)
    }
}

/// The key of a manifest that no depot has.
pub(crate) fn unknown_key() -> ManifestKey {
    ManifestKey {
        step: Step::new(5),
        id: ManifestId::of(b"x"),
    }
}

pub(crate) fn encoded(manifest: &Manifest) -> Vec<u8> {
    manifest::encode(manifest).unwrap()
}

/// Changes a byte of a piece where it is on the disk.
pub(crate) fn damage(store: &Path, bytes: &[u8]) {
    let mut changed = 0;
    for entry in fs::read_dir(store.join(SEGMENTS_FOLDER)).unwrap() {
        let path = entry.unwrap().path();
        let all = fs::read(&path).unwrap();
        for at in all
            .windows(bytes.len())
            .enumerate()
            .filter(|(_, window)| *window == bytes)
            .map(|(at, _)| at)
        {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[!bytes[0]], at as u64).unwrap();
            changed += 1;
        }
    }
    assert_eq!(changed, 1, "the piece is there once");
}
