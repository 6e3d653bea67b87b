//! A depot whose disk is full or breaks says so to its writers, and goes on giving what it has.

use std::sync::atomic::Ordering;

use sardana_actors::depot::{DepotError, Patience};

use crate::disk::place;
use crate::site::{WAYS, WORKER, authority, client_at, gets, pieces, puts, snapshot, soon};

#[tokio::test]
async fn a_full_disk_is_told_of_and_when_there_is_room_again_it_goes_on() {
    for way in WAYS {
        let authority = authority();
        let (place, wrong) = place(&authority, 1, Patience::default());
        let worker = client_at(&authority, WORKER, (Patience::default(), way));
        let (one, two) = (pieces(1, 40), pieces(2, 200));
        puts(&worker, place.at, 5, &one).await;
        wrong.full.store(true, Ordering::SeqCst);
        let error = soon(worker.put(place.at, snapshot(6), &two, || ())).await.unwrap_err();
        assert!(matches!(&error, DepotError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("delete old checkpoints and collect"), "{error}");
        gets(&worker, place.at, &one).await;
        wrong.full.store(false, Ordering::SeqCst);
        puts(&worker, place.at, 6, &two).await;
    }
}

#[tokio::test]
async fn after_a_sync_that_failed_no_other_one_is_believed() {
    for way in WAYS {
        let authority = authority();
        let (place, wrong) = place(&authority, 1, Patience::default());
        let worker = client_at(&authority, WORKER, (Patience::default(), way));
        let (one, two) = (pieces(1, 40), pieces(2, 40));
        puts(&worker, place.at, 5, &one).await;
        wrong.no_sync.store(true, Ordering::SeqCst);
        let error = soon(worker.put(place.at, snapshot(6), &two, || ())).await.unwrap_err();
        assert!(error.to_string().contains("the disk is on fire"), "{error}");
        wrong.no_sync.store(false, Ordering::SeqCst);
        let error = soon(worker.put(place.at, snapshot(6), &two, || ())).await.unwrap_err();
        assert!(error.to_string().contains("open the store anew"), "{error}");
        gets(&worker, place.at, &one).await;
    }
}
