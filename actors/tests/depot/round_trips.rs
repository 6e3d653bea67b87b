//! What is put can be got, by processes that are named.

use sardana_actors::depot::DepotError;
use sardana_actors::depot::limits::MAX_SNAPSHOTS;
use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::words::WorkerId;
use sardana_storage::store::PinId;

use crate::site::{
    Place, Read, WORKER, authority, bytes_of, client, encoded, gets, manifest, names, pieces, puts, snapshot, soon,
    unknown_key,
};

#[tokio::test]
async fn pieces_come_back_and_what_is_there_is_not_sent_again() {
    let authority = authority();
    let (place, worker) = (Place::new(&authority, 1), client(&authority, WORKER));
    let all = pieces(1, 150);
    let bytes = bytes_of(&all);
    // A piece that is there twice is sent once.
    let mut twice = all.clone();
    twice.extend_from_slice(&all[..3]);
    puts(&worker, place.at, 5, &twice).await;
    assert_eq!(place.server.received(), bytes);
    assert!(place.store.pin(PinId::new(99), &names(&all)).is_empty(), "all are durable");
    puts(&worker, place.at, 6, &all).await;
    assert_eq!(place.server.received(), bytes, "nothing was sent again");
    let new = pieces(2, 1);
    let mixed = [&all[..50], &new, &all[50..]].concat();
    puts(&worker, place.at, 7, &mixed).await;
    assert_eq!(place.server.received(), bytes + new[0].1.len() as u64);
    let mut asked = names(&mixed);
    asked.insert(10, PieceHash::of(b"nobody has this"));
    let mut read = Read::of(mixed.len());
    let got = worker.get(place.at, &asked, |index, bytes| {
        read.take(index - usize::from(index > 10), bytes)
    });
    let lacking = soon(got).await.unwrap();
    assert_eq!(lacking, [(10, "it does not have it".to_owned())]);
    read.assert_all_but(&mixed, &[]);
}

#[tokio::test]
async fn more_pieces_than_fit_one_round_come_back_in_order() {
    let authority = authority();
    let (place, worker) = (Place::new(&authority, 1), client(&authority, WORKER));
    let many: Vec<_> = (0_u32..9_000)
        .map(|number| {
            let bytes = bytes::Bytes::copy_from_slice(&number.to_le_bytes());
            (PieceHash::of(&bytes), bytes)
        })
        .collect();
    puts(&worker, place.at, 5, &many).await;
    gets(&worker, place.at, &many).await;
}

#[tokio::test]
async fn nothing_is_nothing() {
    let authority = authority();
    let (place, worker) = (Place::new(&authority, 1), client(&authority, WORKER));
    puts(&worker, place.at, 5, &[]).await;
    let got = soon(worker.get(place.at, &[], |_, _| panic!("there is nothing"))).await;
    assert_eq!(got.unwrap(), []);
    assert_eq!(place.server.received(), 0);
}

#[tokio::test]
async fn a_manifest_comes_back() {
    let authority = authority();
    let (place, worker) = (Place::new(&authority, 1), client(&authority, WORKER));
    let all = pieces(1, 20);
    puts(&worker, place.at, 5, &all).await;
    let manifest = manifest(5, &all, 1, &[place.at.depot]);
    let stored = sardana_storage::manifest::stored(&manifest, encoded(&manifest), place.at.depot);
    let key = place.store.commit(&stored).unwrap();
    assert_eq!(soon(worker.manifest(place.at, key)).await.unwrap(), manifest);
    let error = soon(worker.manifest(place.at, unknown_key())).await.unwrap_err();
    assert!(matches!(error, DepotError::NotHere { .. }), "{error}");
}

#[tokio::test]
async fn who_is_not_named_gets_nothing() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    let stranger = client(&authority, WorkerId::new(8));
    let all = pieces(1, 3);
    let error = soon(stranger.put(place.at, snapshot(5), &all, || ())).await.unwrap_err();
    assert!(matches!(&error, DepotError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("the coordinator has named"), "{error}");
    assert_eq!(place.store.usage().pieces, 0);
    // From now on it is named, and the other one is not any more.
    let worker = client(&authority, WORKER);
    puts(&worker, place.at, 5, &all).await;
    place.server.serve_only([WorkerId::new(8)], []);
    puts(&stranger, place.at, 5, &all).await;
    let error = soon(worker.get(place.at, &names(&all), |_, _| ())).await.unwrap_err();
    assert!(matches!(&error, DepotError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn who_has_been_named_too_late_need_not_ask_again() {
    let authority = authority();
    let place = Place::new(&authority, 1);
    place.server.serve_only([], []);
    let worker = client(&authority, WORKER);
    let all = pieces(1, 3);
    let putting = worker.put(place.at, snapshot(5), &all, || ());
    let naming = async {
        tokio::task::yield_now().await;
        place.server.serve_only([WORKER], []);
    };
    let (put, ()) = soon(async { tokio::join!(putting, naming) }).await;
    put.unwrap();
}

#[tokio::test]
async fn another_jobs_worker_and_another_depots_certificate_are_not_believed() {
    let (ours, theirs) = (authority(), authority());
    let place = Place::new(&ours, 1);
    let error = soon(client(&theirs, WORKER).put(place.at, snapshot(5), &pieces(1, 1), || ())).await;
    assert!(matches!(error, Err(DepotError::Connect { .. })));
    let mut at = place.at;
    at.certified += 1;
    let error = soon(client(&ours, WORKER).put(at, snapshot(5), &pieces(1, 1), || ())).await;
    assert!(matches!(error, Err(DepotError::Connect { .. })));
    assert_eq!(place.store.usage().pieces, 0);
}

#[tokio::test]
async fn what_is_released_is_collected_and_what_is_not_stays() {
    let authority = authority();
    let (place, worker) = (Place::new(&authority, 1), client(&authority, WORKER));
    let (one, two) = (pieces(1, 5), pieces(2, 5));
    puts(&worker, place.at, 5, &one).await;
    puts(&worker, place.at, 6, &two).await;
    place.store.collect().unwrap();
    assert_eq!(place.store.usage().pieces, 10);
    place.server.release(snapshot(5));
    place.store.collect().unwrap();
    assert_eq!(place.store.usage().pieces, 5);
    assert!(two.iter().all(|(name, bytes)| place.store.read(*name).unwrap() == *bytes));
    // Once more from the beginning.
    puts(&worker, place.at, 5, &one).await;
    place.server.release(snapshot(9));
    place.store.collect().unwrap();
    assert_eq!(place.store.usage().pieces, 0);
}

#[tokio::test]
async fn snapshots_that_nobody_releases_are_bounded() {
    let authority = authority();
    let (place, worker) = (Place::new(&authority, 1), client(&authority, WORKER));
    let all = pieces(1, 1);
    for step in 0..MAX_SNAPSHOTS as u64 {
        puts(&worker, place.at, step, &all).await;
    }
    let error = soon(worker.put(place.at, snapshot(1_000), &all, || ())).await.unwrap_err();
    assert!(error.to_string().contains("not released"), "{error}");
    place.server.release(snapshot(0));
    puts(&worker, place.at, 1_000, &all).await;
}
