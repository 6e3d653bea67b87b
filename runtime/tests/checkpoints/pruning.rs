//! What is old goes, and nothing else.

use std::fs;

use sardana_protocol::limits::PIECE_BYTES;
use sardana_storage::store::{PinId, Store};

use super::site::{Site, copy_folder, save, state};

fn steps(site: &Site) -> Vec<u64> {
    let listing = site.json("list a");
    let entries = listing["checkpoints"].as_array().unwrap();
    entries.iter().map(|entry| entry["step"].as_u64().unwrap()).collect()
}

#[test]
fn old_checkpoints_go_and_their_room_with_them() {
    let site = Site::with(&[10, 20, 30, 40, 50]);
    copy_folder(&site.path("a"), &site.path("b"));
    // 10 and 30 are the first of their multiples.
    site.says(
        "prune a --keep last=2,every=30 --dry-run",
        &["would delete s20", "would delete 1 checkpoint, which alone need 3.94 KiB"],
    );
    assert_eq!(steps(&site), [10, 20, 30, 40, 50]);
    site.says(
        "prune a --keep last=2,every=30",
        &["deleted s20", "deleted 1 checkpoint; 3 pieces let go of"],
    );
    assert_eq!(steps(&site), [10, 30, 40, 50]);
    site.says("prune a --keep last=1", &["deleted 3 checkpoints; 9 pieces let go of"]);
    assert_eq!(steps(&site), [50]);
    site.done("verify a");
    assert_eq!(site.json("list a")["pieces"], 5);
    site.says("prune a --keep last=1", &["deleted 0 checkpoints; 0 pieces"]);
    // It stays deleted, wherever a copy comes from.
    site.fails("copy b a 10", &["s10", "was deleted here"]);
}

#[test]
fn the_newest_complete_one_stays_and_what_is_not_complete_does_not_count() {
    let site = Site::with(&[10, 20, 30]);
    site.fails(
        "prune a --delete 30",
        &["s30", "the newest complete checkpoint and is never deleted"],
    );
    // The only piece that the last one has alone.
    site.flip("a", &30_u64.to_le_bytes());
    site.says("list a", &["whole"]);
    site.says(
        "prune a --keep last=1",
        &[
            "s30",
            "is left alone, since it is not complete",
            "deleted s10",
            "deleted 1 checkpoint",
        ],
    );
    assert_eq!(steps(&site), [20, 30]);
    site.fails("prune a --delete 20", &["s20", "never deleted"]);
    site.says("prune a --delete 30", &["deleted s30"]);
    site.done("verify a");
}

#[test]
fn nothing_is_deleted_while_it_is_not_known_what_another_one_needs() {
    let site = Site::with(&[10, 20, 30]);
    let manifest = site.manifest("a", 20);
    let id = site.json("show a 20")["id"].as_str().unwrap().to_owned();
    fs::remove_file(&manifest).unwrap();
    let said = site.fails(
        "prune a --keep last=1",
        &["which pieces checkpoint s20", "its file is gone", "--delete"],
    );
    assert!(said.contains(&id), "{said}");
    assert_eq!(steps(&site), [10, 20, 30]);
    site.says(
        &format!("prune a --keep last=1 --delete {id}"),
        &["deleted s10", "deleted s20"],
    );
    assert_eq!(steps(&site), [30]);
    site.done("verify a");
}

/// A job died while its last checkpoint was committed: one host has it, and the others do not. That checkpoint does not take
/// the place of the one before.
#[test]
fn what_only_this_host_has_committed_takes_no_other_ones_place() {
    let site = Site::spread(&[10, 20]);
    let depots = ["a", "b"].map(|name| site.depot(name));
    let store = Store::open(&site.path("a")).unwrap().store;
    save(&store, 30, depots[0], &depots);
    drop(store);
    // What the other hosts have is not known here.
    let on_others = "on other hosts; name their directories with --also";
    site.says(
        "prune a --keep last=1",
        &["s10", "s20", "s30", "left alone", on_others, "deleted 0 checkpoints"],
    );
    assert_eq!(steps(&site), [10, 20, 30]);
    site.fails("prune a --delete 30", &["s30", on_others]);
    site.says(
        "prune a --keep last=1 --also b --dry-run",
        &[
            "s30",
            "in none of the directories",
            "would delete s10",
            "would delete 1 checkpoint",
        ],
    );
    // Also if the other host has the pieces: it does not keep them.
    let store = Store::open(&site.path("b")).unwrap().store;
    for (_, bytes) in state(30) {
        let parts: Vec<&[u8]> = bytes.chunks(PIECE_BYTES).collect();
        store.put(PinId::new(1), &parts).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    site.says(
        "prune a --keep last=1 --also b",
        &[
            "s30",
            "left alone",
            "never committed there",
            "deleted s10",
            "deleted 1 checkpoint",
        ],
    );
    assert_eq!(steps(&site), [20, 30]);
    // What is left of it on the other host goes too, as soon as that is pruned.
    site.says("prune b --keep last=1 --also a", &["deleted s10", "deleted 1 checkpoint"]);
    site.fails("prune a --delete 20 --also b", &["s20", "never deleted"]);
    site.says("prune a --delete 30 --also b", &["deleted s30"]);
    site.done("verify a --also b");
}
