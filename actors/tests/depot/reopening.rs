//! A store that has failed, and is opened anew while its depot runs; and a coordinator that cannot be written down.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sardana_actors::depot::{Opener, SERVED_FILE};
use sardana_protocol::messages::{DepotMessage, DepotOrder};
use sardana_storage::store::OpenError;

use crate::disk::Faulty;
use crate::leader::{Leader, depot, depot_with, joined};
use crate::orders::{committed, refused};
use crate::site::{WORKER, authority, client, gets, manifest, pieces, puts, snapshot, soon};

/// After its first opening the disk breaks when the test says so. The second opening fails, the third finds a disk that is broken still, the
/// fourth one that works.
fn opener(disk: &Faulty) -> (Opener, Arc<AtomicU32>) {
    let (disk, times) = (disk.clone(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&times);
    let opener = Opener::new(move |folder| {
        let time = times.fetch_add(1, Ordering::SeqCst);
        if time == 1 {
            let (path, pid) = (folder.to_owned(), "unknown".to_owned());
            return Err(OpenError::Locked { path, pid });
        }
        disk.0.no_sync.store(time == 2, Ordering::SeqCst);
        disk.open_store(folder)
    });
    (opener, counted)
}

#[tokio::test]
async fn a_store_that_has_failed_is_opened_anew_and_what_is_kept_is_told_again() {
    let (authority, place, disk) = (authority(), tempfile::tempdir().unwrap(), Faulty::default());
    let (leader, worker) = (Leader::new(&authority), client(&authority, WORKER));
    let (opener, opened) = opener(&disk);
    let own = depot_with(&authority, &place.path().join("depot"), leader.address(), opener).await;
    let (mut session, _) = leader.lead(1).await;
    let (one, two) = (pieces(1, 40), pieces(2, 40));
    puts(&worker, session.address(), 5, &one).await;
    let head = committed(session.commit(&manifest(5, &one, 1, &[own.id()])).await);
    disk.0.no_sync.store(true, Ordering::SeqCst);
    let error = soon(worker.put(session.address(), snapshot(6), &two, || ()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("the disk is on fire"), "{error}");
    // It is not asked: it says so by itself, once it is open.
    assert_eq!(session.held().await, [head]);
    assert_eq!(opened.load(Ordering::SeqCst), 4, "it was tried until it worked");
    gets(&worker, session.address(), &one).await;
    puts(&worker, session.address(), 6, &two).await;
    committed(session.commit(&manifest(6, &two, 1, &[own.id()])).await);
    own.end().await;
}

#[tokio::test]
async fn a_deletion_that_failed_is_not_confirmed_and_succeeds_once_the_store_is_open_again() {
    let (authority, place, disk) = (authority(), tempfile::tempdir().unwrap(), Faulty::default());
    let (leader, worker) = (Leader::new(&authority), client(&authority, WORKER));
    let (opener, _) = opener(&disk);
    let own = depot_with(&authority, &place.path().join("depot"), leader.address(), opener).await;
    let (mut session, _) = leader.lead(1).await;
    let one = pieces(1, 4);
    puts(&worker, session.address(), 5, &one).await;
    let key = committed(session.commit(&manifest(5, &one, 1, &[own.id()])).await).key;
    disk.0.no_sync.store(true, Ordering::SeqCst);
    session.say(&DepotOrder::Delete { key }).await;
    // Whether it is deleted by then depends on what of it the disk had done; nothing was confirmed.
    let held = session.held().await;
    assert!(held.iter().all(|head| head.key == key), "{held:?}");
    session.say(&DepotOrder::Delete { key }).await;
    assert_eq!(session.hear().await, DepotMessage::Deleted { key });
    own.end().await;
}

#[tokio::test]
async fn for_a_coordinator_that_cannot_be_noted_nothing_is_committed_and_all_is_read() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let folder = place.path().join("depot");
    let (leader, worker) = (Leader::new(&authority), client(&authority, WORKER));
    let own = depot(&authority, &folder, leader.address()).await;
    let (mut session, _) = leader.lead(1).await;
    let (one, two) = (pieces(1, 10), pieces(2, 10));
    puts(&worker, session.address(), 5, &one).await;
    let head = committed(session.commit(&manifest(5, &one, 1, &[own.id()])).await);
    // As on a disk without room for it.
    let (note, aside) = (folder.join(SERVED_FILE), folder.join("aside"));
    fs::rename(&note, &aside).unwrap();
    fs::create_dir(&note).unwrap();
    session.cut();
    let (mut session, held) = leader.lead(2).await;
    assert_eq!((held, session.hello.incarnation.get()), (vec![head], 1));
    gets(&worker, session.address(), &one).await;
    puts(&worker, session.address(), 6, &two).await;
    let newer = manifest(6, &two, 1, &[own.id()]);
    let reason = refused(session.commit(&newer).await);
    assert!(reason.contains(SERVED_FILE), "{reason}");
    fs::remove_dir(&note).unwrap();
    committed(session.commit(&newer).await);
    // It is on the disk now: no older coordinator is obeyed after a restart.
    own.end().await;
    let own = depot(&authority, &folder, leader.address()).await;
    let older = leader.greet(&joined(1)).await;
    assert_eq!(older.hello.incarnation.get(), 2);
    own.end().await;
}

/// CKPT-1: a coordinator that was followed by another knows nothing of it, and orders as before.
#[tokio::test]
async fn what_a_coordinator_orders_that_another_has_followed_is_not_done() {
    let (authority, place) = (authority(), tempfile::tempdir().unwrap());
    let (leader, worker) = (Leader::new(&authority), client(&authority, WORKER));
    let own = depot(&authority, &place.path().join("depot"), leader.address()).await;
    let (mut session, _) = leader.lead(2).await;
    let one = pieces(1, 10);
    puts(&worker, session.address(), 5, &one).await;
    let kept = committed(session.commit(&manifest(5, &one, 1, &[own.id()])).await);
    puts(&worker, session.address(), 6, &one).await;
    session.cut();
    let mut older = leader.greet(&joined(1)).await;
    // The depot may have closed by then.
    older.order_vainly(&manifest(6, &one, 1, &[own.id()]), kept.key).await;
    assert_eq!(older.next().await, None, "it answers nothing");
    let (mut session, held) = leader.lead(2).await;
    assert_eq!(held, [kept], "nothing was committed, and nothing deleted");
    committed(session.commit(&manifest(6, &one, 1, &[own.id()])).await);
    own.end().await;
}
