//! A joiner that copies a snapshot from holders that may be gone, damaged or unwilling.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sardana_protocol::limits::NAMING_DEADLINE;
use sardana_protocol::member::Command;
use sardana_protocol::messages::{MemberAddress, Snapshot};
use sardana_protocol::snapshot::{Share, SnapshotId, shares_of};
use sardana_protocol::words::{Step, WorkerId};

use super::{CopyError, FetchError, PeerGroup, Worker, generation, large, pieces, soon, until, workers, workers_with};
use crate::peers::copy::Holders;
use crate::peers::incoming::IncomingShare;
use crate::watched::Watched;
use crate::worker::HeldShare;

const STATE: &[u8; 19] = b"the state at step 5";

/// So many take the snapshot; one more joins.
const HOLDERS: u32 = 3;

pub(super) const JOINER: WorkerId = WorkerId::new(HOLDERS as u64);

pub(super) fn id() -> SnapshotId {
    SnapshotId {
        generation: generation(1),
        step: Step::new(5),
    }
}

fn bytes_of(share: Share) -> Bytes {
    Bytes::from_static(&STATE[pieces().bytes_of(share)])
}

fn hold(holder: &Worker, shares: impl IntoIterator<Item = (Share, Bytes)>) {
    let held = shares
        .into_iter()
        .map(|(share, bytes)| HeldShare::new(&pieces(), share, bytes));
    let (snapshot, shares) = (id(), Vec::new());
    holder.driver.execute(Command::Snapshot { snapshot, shares });
    holder.driver.snapshotted(snapshot, held.collect());
}

pub(super) fn snapshot(holders: &[MemberAddress]) -> Snapshot {
    let of = holders.len() as u32;
    let hash = |index| {
        let share = Share { index, of };
        pieces().hash_of(share, &bytes_of(share))
    };
    Snapshot {
        id: id(),
        holders: holders.iter().copied().map(Some).collect(),
        shares: (0..of).map(hash).collect(),
    }
}

/// Three holders with all their shares, which serve a fourth worker, and what that worker is told.
fn site() -> (Vec<Worker>, Holders) {
    let (workers, ring) = workers(u64::from(HOLDERS) + 1);
    for (place, holder) in (0..HOLDERS).zip(&workers) {
        holder.name(PeerGroup::Joiners, [JOINER]);
        hold(
            holder,
            shares_of(place, HOLDERS).into_iter().map(|share| (share, bytes_of(share))),
        );
    }
    let known = snapshot(&ring.members[..HOLDERS as usize]);
    (workers, Arc::new(Watched::new(known)))
}

async fn copy(workers: &[Worker], known: &Holders) -> Result<Bytes, CopyError> {
    let copying = workers[HOLDERS as usize].copy_state(known);
    soon(copying).await
}

#[tokio::test]
async fn a_state_is_put_together_from_its_shares() {
    let (workers, known) = site();
    assert_eq!(&copy(&workers, &known).await.unwrap()[..], STATE);
    // Each of the three gave something.
    assert!(workers[..3].iter().all(|holder| holder.endpoint.open_connections() == 1));
}

#[tokio::test]
async fn each_share_is_had_from_its_second_holder_if_the_first_is_gone() {
    for place in 0..HOLDERS as usize {
        let (workers, known) = site();
        known.modify(|known| known.holders[place] = None);
        assert_eq!(&copy(&workers, &known).await.unwrap()[..], STATE);
        assert_eq!(
            workers[place].endpoint.open_connections(),
            0,
            "a holder that is gone is not asked"
        );
    }
}

#[tokio::test]
async fn a_holder_that_ends_is_as_good_as_gone() {
    let (workers, known) = site();
    // Connected, and then closed.
    copy(&workers, &known).await.unwrap();
    workers[1].close("it ends").await;
    assert_eq!(&copy(&workers, &known).await.unwrap()[..], STATE);
}

#[tokio::test]
async fn a_share_that_is_damaged_is_had_from_the_other() {
    let (workers, known) = site();
    let damaged = shares_of(1, HOLDERS).into_iter().map(|share| {
        let mut bytes = bytes_of(share).to_vec();
        bytes[0] ^= 1;
        (share, bytes.into())
    });
    hold(&workers[1], damaged);
    assert_eq!(&copy(&workers, &known).await.unwrap()[..], STATE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_share_of_several_batches_that_is_damaged_or_breaks_off_is_had_from_the_other() {
    for breaks_off in [false, true] {
        let (pieces, state) = large();
        let (workers, ring) = workers_with(3, |_| Arc::clone(&pieces));
        let of = 2;
        let bytes_of = |share| state.slice(pieces.bytes_of(share));
        for (place, holder) in (0..of).zip(&workers) {
            holder.name(PeerGroup::Joiners, [WorkerId::new(2)]);
            let held = shares_of(place, of).into_iter().map(|share| {
                let mut bytes = bytes_of(share).to_vec();
                // The first holder's last batch.
                if let (0, false, Some(last)) = (place, breaks_off, bytes.last_mut()) {
                    *last ^= 1;
                }
                HeldShare::new(&pieces, share, bytes.into())
            });
            let held = held.collect();
            let (snapshot, shares) = (id(), Vec::new());
            holder.driver.execute(Command::Snapshot { snapshot, shares });
            holder.driver.snapshotted(snapshot, held);
        }
        let hash = |index| {
            let share = Share { index, of };
            pieces.hash_of(share, &bytes_of(share))
        };
        let known = Arc::new(Watched::new(Snapshot {
            id: id(),
            holders: ring.members[..of as usize].iter().copied().map(Some).collect(),
            shares: (0..of).map(hash).collect(),
        }));
        let begun = workers[2].moved_so_far();
        let copying = soon(workers[2].copy_state(&known));
        let breaking = async {
            if breaks_off {
                until(|| workers[2].moved_so_far() > begun).await;
                workers[0].close("it ends").await;
            }
        };
        let (copied, ()) = tokio::join!(copying, breaking);
        assert!(copied.unwrap() == state, "breaks off: {breaks_off}");
    }
}

#[tokio::test]
async fn a_share_of_another_length_is_had_from_the_other() {
    let (workers, known) = site();
    hold(
        &workers[2],
        shares_of(2, HOLDERS)
            .into_iter()
            .map(|share| (share, Bytes::from_static(b"no"))),
    );
    assert_eq!(&copy(&workers, &known).await.unwrap()[..], STATE);
}

#[tokio::test]
async fn what_nobody_gives_is_told_with_all_reasons() {
    let (workers, known) = site();
    hold(&workers[0], []);
    known.modify(|known| known.holders[2] = None);
    // Share 0 is first with worker 0 and then with the last.
    let error = copy(&workers, &known).await.unwrap_err().to_string();
    assert!(
        error.contains("share 0 of 3") && error.contains("at s5") && error.contains("worker w0"),
        "{error}"
    );
    assert!(error.contains("it stands at s0; the one at place 2 is gone"), "{error}");
}

#[tokio::test]
async fn a_snapshot_that_contradicts_itself_is_not_copied() {
    let (workers, known) = site();
    known.modify(|known| known.shares.truncate(2));
    let error = copy(&workers, &known).await.unwrap_err();
    assert!(matches!(error, CopyError::Senseless { holders: 3, shares: 2 }), "{error}");
    known.modify(|known| (known.holders, known.shares) = (vec![], vec![]));
    let error = copy(&workers, &known).await.unwrap_err();
    assert!(matches!(error, CopyError::Senseless { holders: 0, shares: 0 }), "{error}");
}

#[tokio::test]
async fn a_lone_holder_gives_the_whole_snapshot_and_shares_may_be_empty() {
    let (workers, ring) = workers(8);
    let of = 7;
    for (place, holder) in (0..of).zip(&workers) {
        holder.name(PeerGroup::Joiners, [WorkerId::new(7)]);
        hold(holder, shares_of(place, of).into_iter().map(|share| (share, bytes_of(share))));
    }
    assert!((0..of).any(|index| bytes_of(Share { index, of }).is_empty()));
    let known = Arc::new(Watched::new(snapshot(&ring.members[..of as usize])));
    assert_eq!(&workers[7].copy_state(&known).await.unwrap()[..], STATE);

    hold(&workers[0], [(Share::WHOLE, bytes_of(Share::WHOLE))]);
    let known = Arc::new(Watched::new(snapshot(&ring.members[..1])));
    assert_eq!(&workers[7].copy_state(&known).await.unwrap()[..], STATE);
}

#[tokio::test]
async fn a_holder_that_turns_none_is_given_up_at_once() {
    let (workers, known) = site();
    // It says nothing for a while: it waits to hear which workers it serves.
    workers[0].name(PeerGroup::Joiners, []);
    let begun = std::time::Instant::now();
    let turn = async {
        until(|| workers[0].access.asked() == 1).await;
        known.modify(|known| known.holders[0] = None);
    };
    let (copied, ()) = tokio::join!(copy(&workers, &known), turn);
    assert_eq!(&copied.unwrap()[..], STATE);
    assert!(begun.elapsed() < NAMING_DEADLINE);
}

#[tokio::test]
async fn a_worker_that_is_not_named_is_refused_and_one_that_is_named_late_is_served() {
    let (workers, known) = site();
    let share = Share { index: 0, of: HOLDERS };
    let holder = known.read(Clone::clone).holders[0].unwrap();
    workers[0].name(PeerGroup::Joiners, [WorkerId::new(2)]);
    let ask = || {
        let joiner = Arc::clone(&workers[3].peers);
        tokio::spawn(async move {
            let memory = BytesMut::zeroed(pieces().bytes_of(share).len());
            let mut incoming = IncomingShare::new(&joiner, share, memory);
            let fetched = joiner.fetch_share(holder, Step::new(5), None, &mut incoming).await;
            fetched.map(|()| incoming.into_bytes())
        })
    };
    let waiting = ask();
    until(|| workers[0].access.asked() == 1).await;
    workers[0].name(PeerGroup::Prepared, [JOINER]);
    let came = soon(waiting).await.unwrap().unwrap();
    assert_eq!(came, bytes_of(share));

    until(|| workers[0].access.asked() == 0).await;
    workers[0].name(PeerGroup::Prepared, []);
    let refused = ask();
    until(|| workers[0].access.asked() == 1).await;
    tokio::time::pause();
    tokio::time::advance(NAMING_DEADLINE).await;
    tokio::time::resume();
    let error = soon(refused).await.unwrap().unwrap_err();
    assert!(
        matches!(error, FetchError::NotNamed { donor } if donor == holder.worker),
        "{error}"
    );
}
