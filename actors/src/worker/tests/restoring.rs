//! A worker that reaches no depot loads a checkpoint from members that read it, played by the test.

use bytes::{Bytes, BytesMut};
use sardana_net::environment::Environment;
use sardana_net::trust::{Authority, Role};
use sardana_protocol::checkpoint::{DepotAddress, DepotId, Manifest, ManifestKey, PieceHash};
use sardana_protocol::messages::{MemberAddress, Peer, Restore};
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::share_hash;
use sardana_protocol::words::{Generation, Incarnation, Rank, Step, WorkerId};
use sardana_storage::manifest::{encode, key_of};
use tokio::task::JoinHandle;

use super::*;
use crate::depot::Depots;
use crate::peers::{Peers, Reading};
use crate::worker::driver::SavedState;
use crate::worker::restoring::Reader;

/// Eleven pieces: one of two shares is read in one batch, a single share in two.
pub(super) const STATE: &[u8; 44] = b"the state of a job of which nobody has a bit";

pub(super) const GENERATION: Generation = Generation::new(Incarnation::new(1), 1);

pub(super) fn pieces() -> Arc<StatePieces> {
    Arc::new(StatePieces::new([4; 11]))
}

pub(super) fn manifest() -> Arc<Manifest> {
    Arc::new(Manifest {
        description: vec![],
        pieces: pieces().names_of(Share::WHOLE, STATE),
        bytes: STATE.len() as u64,
        replicas: 1,
        depots: vec![DepotId::new(1)],
        ..samples::manifest(JOB)
    })
}

pub(super) fn key() -> ManifestKey {
    let manifest = manifest();
    key_of(&manifest, &encode(&manifest).unwrap())
}

/// These members, in rank order.
pub(super) fn ranked(members: impl IntoIterator<Item = MemberAddress>) -> Vec<Peer> {
    let members = (0..).map(Rank::new).zip(members);
    members.map(|(rank, member)| Peer { rank, member }).collect()
}

/// Two members that read, and one that does not.
struct Site {
    workers: Vec<Arc<Peers>>,
    reader: Reader,
    restore: Restore,
}

impl Site {
    fn new(readers: &[u32]) -> Self {
        let authority = Authority::new(JOB).unwrap();
        let credentials: Vec<_> = (0..3).map(|id| authority.issue(Role::Worker, id).unwrap()).collect();
        let listen = |credentials: &_| Peers::listen(credentials, LOOPBACK, driver().0, pieces()).unwrap();
        let workers: Vec<_> = credentials.iter().map(listen).collect();
        let member = |(id, peers): (u64, &Arc<Peers>)| MemberAddress {
            worker: WorkerId::new(id),
            address: peers.local_address().unwrap(),
        };
        let members: Vec<MemberAddress> = (0..).zip(&workers).map(member).collect();
        let own = Arc::clone(&workers[2]);
        let endpoint = own.endpoint().clone();
        // A process is there, and is no depot.
        let nobody = DepotAddress {
            depot: DepotId::new(1),
            certified: 9,
            address: members[0].address,
        };
        for reader in &workers[..2] {
            reader.will_lend(GENERATION, members.iter().map(|member| member.worker));
        }
        Self {
            reader: Reader {
                depots: Depots::new(Environment::Host, endpoint, credentials[2].clone().into()),
                peers: own,
                pieces: pieces(),
                description: Arc::new([]),
            },
            workers,
            restore: Restore {
                key: key(),
                depots: vec![nobody],
                members: ranked(members),
                readers: readers.iter().copied().map(Rank::new).collect(),
            },
        }
    }

    /// The member that does not read loads all.
    fn load(&self) -> JoinHandle<Result<SavedState, String>> {
        tokio::spawn(self.reader.clone().load(GENERATION, Rank::new(2), self.restore.clone()))
    }

    /// A reader begins. Its share is returned.
    fn begins(&self, reader: usize) -> (Share, Vec<Vec<u8>>) {
        let of = self.restore.readers.len() as u32;
        let share = Share {
            index: reader as u32,
            of,
        };
        let bytes = &STATE[pieces().bytes_of(share)];
        let names = pieces().names_of(share, bytes);
        let hash = share_hash(bytes.len() as u64, &names);
        let room = BytesMut::zeroed(bytes.len());
        let reading = Reading::new(manifest(), &pieces(), share, hash, room);
        self.workers[reader].begin_lending(GENERATION, reading);
        let parts = pieces().pieces_in(share).map(|range| bytes[range].to_vec()).collect();
        (share, parts)
    }
}

pub(super) async fn loaded(loading: JoinHandle<Result<SavedState, String>>) -> Result<(Bytes, Vec<StateHash>), String> {
    let loaded = soon(loading).await.unwrap();
    loaded.map(|state| {
        assert!(!state.compared_here, "pieces were compared before they were put together");
        (state.bytes, state.shares)
    })
}

#[tokio::test]
async fn who_reaches_no_depot_gets_all_from_those_who_do_as_they_read() {
    for readers in [vec![0], vec![0, 1]] {
        let site = Site::new(&readers);
        let loading = site.load();
        let mut expected = Vec::new();
        for reader in 0..readers.len() {
            let (share, parts) = site.begins(reader);
            expected.push(pieces().hash_of(share, &parts.concat()));
            // The last comes first, as it may from several depots.
            for (index, part) in parts.iter().enumerate().rev() {
                tokio::task::yield_now().await;
                site.workers[reader].lend(GENERATION, index, part).unwrap();
            }
        }
        let (bytes, shares) = loaded(loading).await.unwrap();
        assert_eq!(bytes, &STATE[..]);
        assert_eq!(shares, expected);
        assert_eq!(site.workers[2].moved_so_far(), STATE.len() as u64);
    }
}

#[tokio::test]
async fn what_is_lent_is_there_before_all_of_it_has_come_and_when_it_has_been_put_together() {
    let site = Site::new(&[0]);
    let (share, parts) = site.begins(0);
    let [lender, borrower] = [0, 2].map(|place| &site.workers[place]);
    let when = (GENERATION, Step::new(5));
    let borrow = || borrower.borrow(site.restore.members[0].member, when, share, STATE.len());
    let mut borrowing = borrow().await.unwrap();
    for (index, part) in parts.iter().enumerate() {
        lender.lend(GENERATION, index, part).unwrap();
        let mut piece = [0; 4];
        // It comes before the next does.
        soon(borrowing.next(&mut piece)).await.unwrap();
        assert_eq!(piece, part[..]);
    }
    let whole = lender.take_lent(GENERATION).expect("it is read").freeze();
    assert_eq!(whole, &STATE[..]);
    let late = tokio::spawn({
        let (borrower, member) = (Arc::clone(borrower), site.restore.members[0].member);
        async move {
            let mut bytes = [0; STATE.len()];
            let mut borrowing = borrower.borrow(member, when, share, STATE.len()).await.unwrap();
            borrowing.next(&mut bytes).await.map(|()| bytes)
        }
    });
    tokio::task::yield_now().await;
    lender.lend_whole(GENERATION, whole);
    assert_eq!(&soon(late).await.unwrap().unwrap(), STATE);
    lender.end_lending();
    assert!(lender.lend(GENERATION, 0, &parts[0]).is_err(), "it is over");
}

#[tokio::test]
async fn a_damaged_part_is_not_taken_and_the_depots_are_asked_for_it() {
    let site = Site::new(&[0]);
    let loading = site.load();
    let (_, mut parts) = site.begins(0);
    parts[9][3] ^= 1;
    for (index, part) in parts.iter().enumerate() {
        site.workers[0].lend(GENERATION, index, part).unwrap();
    }
    let error = loaded(loading).await.unwrap_err();
    // Only the pieces in the batch of the damaged one, of which the last four are named.
    let [good, bad] = [7, 9].map(|index| PieceHash::of(&STATE[4 * index..4 * (index + 1)]).to_string());
    assert!(error.contains(&bad) && !error.contains(&good), "{error}");
}

#[tokio::test]
async fn a_piece_of_another_length_is_refused() {
    let site = Site::new(&[0]);
    site.begins(0);
    let error = site.workers[0].lend(GENERATION, 2, b"three").unwrap_err().to_string();
    assert!(
        error.contains("piece 2 of") && error.contains("5 bytes") && error.contains("4 in this model"),
        "{error}"
    );
    site.workers[0].lend(GENERATION, 11, b"four").unwrap_err();
}
