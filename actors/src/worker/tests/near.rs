//! A worker loads a checkpoint that a depot on its own host keeps, and lends what it has read to a worker that does not see that disk.

use sardana_net::environment::Environment;
use sardana_net::trust::{Authority, Role};
use sardana_protocol::checkpoint::{DepotAddress, DepotId};
use sardana_protocol::messages::{MemberAddress, Restore};
use sardana_protocol::snapshot::Share;
use sardana_protocol::words::{Rank, WorkerId};
use sardana_storage::manifest::{encode, stored};
use sardana_storage::store::{PinId, SEGMENTS_FOLDER, Store};

use super::restoring::{GENERATION, STATE, key, loaded, manifest, pieces, ranked};
use super::*;
use crate::depot::{Depots, Patience, Reach, Server};
use crate::peers::Peers;
use crate::worker::restoring::Reader;

const DEPOT: DepotId = DepotId::new(1);

/// A store with the checkpoint.
fn store(folder: &std::path::Path) -> Store {
    let store = Store::open(folder).unwrap().store;
    let parts: Vec<&[u8]> = pieces().pieces_in(Share::WHOLE).map(|range| &STATE[range]).collect();
    store.put(PinId::new(1), &parts).unwrap();
    store.sync().unwrap();
    let manifest = manifest();
    store.commit(&stored(&manifest, encode(&manifest).unwrap(), DEPOT)).unwrap();
    store
}

#[tokio::test]
async fn who_sees_the_disk_reads_all_from_it_and_lends_it_to_who_does_not() {
    assert_eq!(given(|_, _| ()).await, 0, "nothing passed the network from the depot");
}

/// As in another container with the same address: the reader gets all over the network, once.
#[tokio::test]
async fn who_does_not_find_the_files_it_was_told_of_reads_as_if_there_were_none() {
    let hide = |folder: &std::path::Path, store: &Store| {
        let piece = manifest().pieces[0];
        // The depot has the file open.
        store.read(piece).unwrap();
        std::fs::rename(folder.join(SEGMENTS_FOLDER), folder.join("elsewhere")).unwrap();
    };
    assert_eq!(given(hide).await, STATE.len() as u64);
}

/// A piece is damaged: its depot is asked for it, and says so; no other has it.
#[tokio::test]
#[should_panic(expected = "checkpoint actor")]
async fn what_is_damaged_in_the_file_is_not_loaded() {
    given(|folder, _| {
        let segment = std::fs::read_dir(folder.join(SEGMENTS_FOLDER))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let mut bytes = std::fs::read(segment.path()).unwrap();
        let at = bytes.windows(4).position(|window| window == &STATE[4..8]).unwrap();
        bytes[at] ^= 1;
        std::fs::write(segment.path(), bytes).unwrap();
    })
    .await;
}

/// Two workers load the checkpoint, of which one sees the disk of the depot: how many bytes of pieces that has sent.
async fn given(before: impl FnOnce(&std::path::Path, &Store)) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(JOB).unwrap();
    let ids = [WorkerId::new(0), WorkerId::new(1)];
    let credentials = authority.issue(Role::Checkpoint, 9).unwrap();
    let place = folder.path().join("store");
    let store = store(&place);
    before(&place, &store);
    let server = Server::listen(Environment::Host, credentials, LOOPBACK, store).unwrap();
    server.serve_only(ids, []);
    let credentials = ids.map(|id| authority.issue(Role::Worker, id.get()).unwrap());
    let listen = |credentials: &_| Peers::listen(credentials, LOOPBACK, driver().0, pieces()).unwrap();
    let workers: Vec<_> = credentials.iter().map(listen).collect();
    let member = |(worker, peers): (WorkerId, &Arc<Peers>)| MemberAddress {
        worker,
        address: peers.local_address().unwrap(),
    };
    let restore = Restore {
        key: key(),
        depots: vec![DepotAddress {
            depot: DEPOT,
            certified: 9,
            address: server.local_address().unwrap(),
        }],
        members: ranked(ids.into_iter().zip(&workers).map(member)),
        readers: vec![Rank::new(0)],
    };
    let reaches = [Reach::Host, Reach::Network].into_iter();
    let loading = (0..).zip(workers.iter().zip(credentials)).zip(reaches);
    let loading: Vec<_> = loading
        .map(|((rank, (peers, credentials)), reach)| {
            let how = (Patience::default(), reach);
            let reader = Reader {
                depots: Depots::with(Environment::Host, peers.endpoint().clone(), credentials.into(), how),
                peers: Arc::clone(peers),
                pieces: pieces(),
                description: Arc::new([]),
            };
            tokio::spawn(reader.load(GENERATION, Rank::new(rank), restore.clone()))
        })
        .collect();
    for (loading, peers) in loading.into_iter().zip(&workers) {
        let (bytes, shares) = loaded(loading).await.unwrap();
        assert!(peers.moved_so_far() >= STATE.len() as u64, "it is told that they come");
        assert_eq!(bytes, &STATE[..]);
        assert_eq!(shares, [pieces().hash_of(Share::WHOLE, STATE)]);
    }
    server.given()
}
