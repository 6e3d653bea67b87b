//! A depot whose disk is full or breaks says so to its writers, and goes on giving what it has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sardana_actors::depot::{DepotError, Patience};
use sardana_storage::store::{Options, Store};

use crate::disk::{Faulty, Wrong};
use crate::site::{Place, Read, WAYS, WORKER, authority, client_at, names, pieces, snapshot, soon};

fn place(authority: &sardana_net::trust::Authority) -> (Place, Arc<Wrong>) {
    let folder = tempfile::tempdir().unwrap();
    let disk = Faulty::default();
    let wrong = Arc::clone(&disk.0);
    let opened = Store::open_on(Arc::new(disk), &folder.path().join("store"), None, Options::default()).unwrap();
    (Place::of(authority, 1, opened.store, folder), wrong)
}

#[tokio::test]
async fn a_full_disk_is_told_of_and_when_there_is_room_again_it_goes_on() {
    for way in WAYS {
        let authority = authority();
        let (place, wrong) = place(&authority);
        let worker = client_at(&authority, WORKER, (Patience::default(), way));
        let (one, two) = (pieces(1, 40), pieces(2, 200));
        soon(worker.put(place.at, snapshot(5), &one, || ())).await.unwrap();
        wrong.full.store(true, Ordering::SeqCst);
        let error = soon(worker.put(place.at, snapshot(6), &two, || ())).await.unwrap_err();
        assert!(matches!(&error, DepotError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("delete old checkpoints and collect"), "{error}");
        let mut read = Read::of(one.len());
        let asked = names(&one);
        let got = worker.get(place.at, &asked, |index, bytes| read.take(index, bytes));
        assert_eq!(soon(got).await.unwrap(), []);
        read.assert_all_but(&one, &[]);
        wrong.full.store(false, Ordering::SeqCst);
        soon(worker.put(place.at, snapshot(6), &two, || ())).await.unwrap();
    }
}

#[tokio::test]
async fn after_a_sync_that_failed_no_other_one_is_believed() {
    for way in WAYS {
        let authority = authority();
        let (place, wrong) = place(&authority);
        let worker = client_at(&authority, WORKER, (Patience::default(), way));
        let (one, two) = (pieces(1, 40), pieces(2, 40));
        soon(worker.put(place.at, snapshot(5), &one, || ())).await.unwrap();
        wrong.no_sync.store(true, Ordering::SeqCst);
        let error = soon(worker.put(place.at, snapshot(6), &two, || ())).await.unwrap_err();
        assert!(error.to_string().contains("the disk is on fire"), "{error}");
        wrong.no_sync.store(false, Ordering::SeqCst);
        let error = soon(worker.put(place.at, snapshot(6), &two, || ())).await.unwrap_err();
        assert!(error.to_string().contains("open the store anew"), "{error}");
        let mut read = Read::of(one.len());
        let asked = names(&one);
        let got = worker.get(place.at, &asked, |index, bytes| read.take(index, bytes));
        assert_eq!(soon(got).await.unwrap(), []);
        read.assert_all_but(&one, &[]);
    }
}
