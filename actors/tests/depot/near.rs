//! A depot on the reader's own host: what it keeps is read from its files, and what cannot be had like that is asked for as ever.

use std::fs;

use sardana_actors::depot::{Patience, Reach};
use sardana_protocol::checkpoint::placement::ranked;
use sardana_protocol::checkpoint::{DepotAddress, DepotId};
use sardana_storage::store::SEGMENTS_FOLDER;

use crate::site::{Place, WORKER, authority, bytes_of, client, client_at, damage, pieces, puts, reads, snapshot, soon};

#[tokio::test]
async fn pieces_on_the_same_host_are_read_from_files_and_others_over_the_network() {
    let authority = authority();
    let (near, far) = (
        client(&authority, WORKER),
        client_at(&authority, WORKER, (Patience::default(), Reach::Network)),
    );
    let place = Place::new(&authority, 1);
    let all = pieces(1, 120);
    puts(&near, place.at, 5, &all).await;
    // Twice the same, and not in the order in which they lie.
    let mut asked = all.clone();
    asked.reverse();
    asked.push(asked[7].clone());
    for (worker, given) in [(near, 0), (far, bytes_of(&asked))] {
        reads(&worker, &[place.at], &asked).await;
        assert_eq!(place.server.given(), given);
    }
}

#[tokio::test]
async fn what_is_damaged_in_a_file_comes_from_another_depot() {
    let authority = authority();
    let worker = client(&authority, WORKER);
    let places: Vec<Place> = (1..=2).map(|id| Place::new(&authority, id)).collect();
    let at: Vec<DepotAddress> = places.iter().map(|place| place.at).collect();
    let all = pieces(1, 40);
    soon(worker.write_share(&at, 2, snapshot(5), &all, || ())).await.unwrap();
    let ids: Vec<DepotId> = at.iter().map(|at| at.depot).collect();
    for (name, bytes) in &all[11..13] {
        let first = &places[usize::from(ranked(*name, &ids)[0] == ids[1])];
        damage(&first.folder.path().join("store"), bytes);
    }
    reads(&worker, &at, &all).await;
    let given: u64 = places.iter().map(|place| place.server.given()).sum();
    assert_eq!(given, bytes_of(&all[11..13]), "the rest did not pass the network");
    for (name, _) in &all[11..13] {
        let first = &places[usize::from(ranked(*name, &ids)[0] == ids[1])];
        assert_eq!(first.store.length_of(*name), None, "its depot knows, and heals it");
    }
}

/// As in another container with the same address.
#[tokio::test]
async fn files_that_the_reader_does_not_find_are_read_by_the_depot_for_it() {
    let authority = authority();
    let worker = client(&authority, WORKER);
    let place = Place::new(&authority, 1);
    let all = pieces(1, 40);
    puts(&worker, place.at, 5, &all).await;
    // It has the file open.
    place.store.read(all[0].0).unwrap();
    let segments = place.folder.path().join("store").join(SEGMENTS_FOLDER);
    let elsewhere = place.folder.path().join("elsewhere");
    fs::rename(&segments, &elsewhere).unwrap();
    for empty in [false, true] {
        if empty {
            fs::create_dir(&segments).unwrap();
        }
        let before = place.server.given();
        reads(&worker, &[place.at], &all).await;
        assert_eq!(place.server.given() - before, bytes_of(&all));
    }
}
