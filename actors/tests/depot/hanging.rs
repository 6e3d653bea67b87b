//! A depot whose disk does not return from a call, while its process and its connections live: it is named, and no client waits for it.

use std::time::Duration;

use bytes::Bytes;
use sardana_actors::depot::{Depot, DepotError, Depots, Opener, Patience};
use sardana_protocol::checkpoint::{DepotAddress, DepotId, PieceHash};
use tempfile::TempDir;

use crate::disk::{Faulty, Hang, place};
use crate::leader::{Leader, Session, depot_with, joined};
use crate::orders::{committed, refused as not_committed};
use crate::site::{
    Place, Read, WAYS, WORKER, authority, client, client_at, client_with, manifest, names, pieces, puts, reads, snapshot,
    soon,
};

/// A depot that notices soon.
const SHORT: Patience = Patience {
    silent: Duration::from_secs(20),
    disk: Duration::from_millis(300),
    wait_every: Duration::from_millis(100),
};

/// Patience that never ends.
const NEVER: Patience = Patience {
    silent: Duration::from_secs(3_600),
    disk: Duration::from_secs(3_600),
    wait_every: Duration::from_secs(3_600),
};

async fn refused(worker: &Depots, at: DepotAddress, step: u64) -> String {
    let two = pieces(2, 200);
    let error = soon(worker.put(at, snapshot(step), &two, || ())).await.unwrap_err();
    assert!(matches!(&error, DepotError::Refused { .. }), "{error}");
    error.to_string()
}

/// A real disk may take longer than a disk that hangs in these tests.
async fn put_at_last(worker: &Depots, at: DepotAddress, step: u64, pieces: &[(PieceHash, Bytes)]) {
    while worker.put(at, snapshot(step), pieces, || ()).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// A read that a busy disk does not do at once is refused, too, beside one that hangs. A client asks again.
async fn gets_at_last(worker: &Depots, at: DepotAddress, pieces: &[(PieceHash, Bytes)]) {
    let (mut read, asked) = (Read::of(pieces.len()), names(pieces));
    while worker.get(at, &asked, |index, bytes| read.take(index, bytes)).await.is_err() {
        read = Read::of(pieces.len());
        tokio::task::yield_now().await;
    }
    read.assert_all_but(pieces, &[]);
}

#[tokio::test]
async fn a_put_on_a_disk_that_hangs_is_refused_by_name_and_more_of_them_at_once() {
    let calls = [(Hang::Write, "to write "), (Hang::Sync, "to sync ")];
    for ((call, what), way) in calls.into_iter().flat_map(|call| WAYS.map(|way| (call, way))) {
        let authority = authority();
        let (place, wrong) = place(&authority, 1, SHORT);
        let worker = client_at(&authority, WORKER, (Patience::default(), way));
        let one = pieces(1, 40);
        soon(put_at_last(&worker, place.at, 5, &one)).await;
        let hung = wrong.hang(call);
        let said = refused(&worker, place.at, 6).await;
        let own = place.at.depot.to_string();
        assert!(
            said.contains(&own) && said.contains("its disk hangs") && said.contains(what),
            "{said}"
        );
        // More than may write at once, one after the other: none queues behind writers that hang, and nothing is sent.
        let received = place.server.received();
        for step in 7..27 {
            let said = refused(&worker, place.at, step).await;
            assert!(said.contains("its disk hangs"), "{said}");
        }
        assert_eq!(place.server.received(), received);
        // What can be read is read.
        soon(gets_at_last(&worker, place.at, &one)).await;
        drop(hung);
        // What hung has to return first.
        soon(put_at_last(&worker, place.at, 6, &pieces(2, 200))).await;
    }
}

#[tokio::test]
async fn a_share_names_the_depot_that_hangs() {
    let authority = authority();
    let worker = client(&authority, WORKER);
    let (whole, ill) = (Place::new(&authority, 1), place(&authority, 2, SHORT));
    let at = [whole.at, ill.0.at];
    let _hung = ill.1.hang(Hang::Sync);
    let all = pieces(1, 40);
    let (depot, reason) = soon(worker.write_share(&at, 2, snapshot(5), &all, || ())).await.unwrap_err();
    assert_eq!(depot, Some(DepotId::new(2)));
    assert!(reason.contains("its disk hangs"), "{reason}");
}

/// Also if the depot itself does not notice.
#[tokio::test]
async fn a_piece_on_a_disk_that_hangs_comes_from_another_depot() {
    for patience in [SHORT, NEVER] {
        let authority = authority();
        // A healthy depot moves sooner in any case.
        let patient = Patience {
            silent: Duration::from_secs(5),
            ..NEVER
        };
        let worker = client_with(&authority, WORKER, patient);
        let (whole, ill) = (Place::new(&authority, 1), place(&authority, 2, patience));
        let at = [whole.at, ill.0.at];
        let all = pieces(1, 60);
        soon(worker.write_share(&at, 2, snapshot(5), &all, || ())).await.unwrap();
        let _hung = ill.1.hang(Hang::Read);
        reads(&worker, &at, &all).await;
    }
}

#[tokio::test]
async fn a_client_gives_a_depot_up_that_says_nothing() {
    let authority = authority();
    let silent = Duration::from_millis(500);
    let worker = client_with(&authority, WORKER, Patience { silent, ..NEVER });
    let (place, wrong) = place(&authority, 1, NEVER);
    let (one, two) = (pieces(1, 10), pieces(2, 200));
    let hangs = |error: &DepotError| matches!(error, DepotError::Hangs { depot, after } if *depot == place.at.depot && *after == silent);
    puts(&client(&authority, WORKER), place.at, 5, &one).await;
    for call in [Hang::Write, Hang::Sync] {
        let _hung = wrong.hang(call);
        let error = soon(worker.put(place.at, snapshot(6), &two, || ())).await.unwrap_err();
        assert!(hangs(&error), "{error}");
        assert!(error.to_string().contains("nothing moved for 500ms"), "{error}");
    }
    let _hung = wrong.hang(Hang::Read);
    let error = soon(worker.get(place.at, &names(&one), |_, _| ())).await.unwrap_err();
    assert!(hangs(&error), "{error}");
    let key = sardana_storage::manifest::key_of(&manifest(5, &one, 1, &[place.at.depot]), b"x");
    // It is not there, for which no file is read.
    let error = soon(client(&authority, WORKER).manifest(place.at, key)).await.unwrap_err();
    assert!(matches!(&error, DepotError::NotHere { .. }), "{error}");
}

/// A depot on a disk that hangs when it is told to, which a coordinator leads and a worker has put these pieces to.
struct Led {
    leader: Leader,
    session: Session,
    own: Depot,
    disk: Faulty,
    one: Vec<(PieceHash, Bytes)>,
    _place: TempDir,
}

async fn led() -> Led {
    let (authority, place, disk) = (authority(), tempfile::tempdir().unwrap(), Faulty::default());
    let (leader, worker) = (Leader::new(&authority), client(&authority, WORKER));
    let opened = disk.clone();
    let opener = Opener::new(move |folder| opened.open_store(folder));
    let own = depot_with(&authority, &place.path().join("depot"), leader.address(), opener).await;
    let (session, _) = leader.lead(1).await;
    let one = pieces(1, 10);
    puts(&worker, session.address(), 5, &one).await;
    Led {
        leader,
        session,
        own,
        disk,
        one,
        _place: place,
    }
}

/// The coordinator is told, and goes on without this depot.
#[tokio::test]
async fn a_manifest_that_a_disk_does_not_take_is_refused() {
    let Led {
        leader: _leader,
        mut session,
        own,
        disk,
        one,
        _place,
    } = led().await;
    let whole = manifest(5, &one, 1, &[own.id()]);
    let hung = disk.0.hang(Hang::Rename);
    let reason = not_committed(session.commit(&whole).await);
    assert!(reason.contains("its disk hangs") && reason.contains("to rename "), "{reason}");
    drop(hung);
    committed(session.commit(&whole).await);
    own.end().await;
}

/// It is served, its orders are refused, and it is told what is there as soon as that can be known.
#[tokio::test]
async fn a_coordinator_that_comes_while_the_disk_hangs_is_not_kept_waiting() {
    let Led {
        leader,
        mut session,
        own,
        disk,
        one,
        _place,
    } = led().await;
    let whole = manifest(5, &one, 1, &[own.id()]);
    committed(session.commit(&whole).await);
    let hung = disk.0.hang(Hang::Read);
    session.cut();
    let mut session = leader.greet(&joined(2)).await;
    let reason = not_committed(session.commit(&manifest(6, &one, 1, &[own.id()])).await);
    assert!(reason.contains("its disk hangs"), "{reason}");
    session.cut();
    let mut session = leader.greet(&joined(3)).await;
    drop(hung);
    assert_eq!(session.held().await.len(), 1);
    own.end().await;
}
