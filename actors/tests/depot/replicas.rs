//! Several depots: each piece is on some of them, and comes from another one when the first does not give it.

use sardana_protocol::checkpoint::placement::{homes, ranked};
use sardana_protocol::checkpoint::{DepotAddress, DepotId};

use crate::site::{Place, Read, WORKER, authority, client, damage, names, pieces, reads, snapshot, soon};

fn addresses(places: &[Place]) -> Vec<DepotAddress> {
    places.iter().map(|place| place.at).collect()
}

#[tokio::test]
async fn a_share_is_written_where_it_should_be_and_read_from_anywhere() {
    let authority = authority();
    let worker = client(&authority, WORKER);
    let places: Vec<Place> = (1..=3).map(|id| Place::new(&authority, id)).collect();
    let at = addresses(&places);
    let ids: Vec<DepotId> = at.iter().map(|at| at.depot).collect();
    let all = pieces(1, 120);
    soon(worker.write_share(&at, 2, snapshot(5), &all, || ())).await.unwrap();
    for (name, bytes) in &all {
        for place in &places {
            let home = homes(*name, &ids, 2).contains(&place.at.depot);
            let found = place.store.read(*name).ok();
            assert!(found.as_deref() == home.then_some(&bytes[..]));
        }
    }
    // Damaged at its first home, and a whole depot gone.
    let (name, bytes) = &all[60];
    let (first, second) = (ranked(*name, &ids)[0], ranked(*name, &ids)[1]);
    let of = |id: DepotId| places.iter().find(|place| place.at.depot == id).unwrap();
    damage(&of(first).folder.path().join("store"), bytes);
    reads(&worker, &at, &all).await;
    of(second).server.close("it is gone").await;
    let (mut read, asked) = (Read::of(all.len()), names(&all));
    let error = soon(worker.read_pieces(&at, &asked, |index, bytes| read.take(index, bytes)))
        .await
        .unwrap_err();
    assert_eq!((error.count, &error.pieces[..]), (1, &[*name][..]), "{error}");
    let words = error.to_string();
    assert!(
        words.contains("fetch them from another holder") && words.contains(&second.to_string()),
        "{words}"
    );
    read.assert_all_but(&all, &[60]);
}

#[tokio::test]
async fn who_does_not_take_its_part_is_named() {
    let authority = authority();
    let worker = client(&authority, WORKER);
    let places: Vec<Place> = (1..=2).map(|id| Place::new(&authority, id)).collect();
    let at = addresses(&places);
    places[1].server.serve_only([], []);
    let all = pieces(1, 20);
    let (depot, reason) = soon(worker.write_share(&at, 2, snapshot(5), &all, || ())).await.unwrap_err();
    assert_eq!(depot, Some(at[1].depot));
    assert!(reason.contains("refused"), "{reason}");
    let (depot, reason) = soon(worker.write_share(&[], 2, snapshot(5), &all, || ())).await.unwrap_err();
    assert!(depot.is_none() && reason.contains("found none"), "{reason}");
    let error = soon(worker.read_pieces(&[], &names(&all), |_, _| ())).await.unwrap_err();
    assert_eq!(error.count, 20);
}
