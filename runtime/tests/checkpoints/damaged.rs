//! Every byte counts: what is wrong is said, where it is, and what to do.

use std::fs;
use std::os::unix::fs::FileExt;

use super::program::has;
use super::site::{Site, WEIGHT, copy_folder, hash, state};

#[test]
fn whole_ones_are_told_with_the_hash_of_their_state() {
    let site = Site::with(&[10, 20]);
    let said = site.done("verify a");
    let states = [10, 20].map(|step| format!("whole, state {}", hash(step, &state(step))));
    has(&said, &["a: 8 pieces of", "read and whole, 0 not", &states[0], &states[1]]);
}

#[test]
fn a_flipped_bit_is_found_and_only_what_needs_it_cannot_be_used() {
    let site = Site::with(&[10, 20, 30]);
    copy_folder(&site.path("a"), &site.path("b"));
    site.flip("a", &20_u64.to_le_bytes());
    let said = site.fails(
        "verify a",
        &[
            "1 not",
            "segments/00000000.seg at",
            "not usable",
            "bytes 0..8 of tensor \"count\"",
            "1 of 3 checkpoints cannot be used; s30",
            "is the newest that can",
            "--heal",
            "sardana checkpoints copy OTHER DIR STEP",
        ],
    );
    assert_eq!(said.matches(": whole, state").count(), 2, "{said}");
    assert_eq!(said.matches(": not usable").count(), 1, "{said}");
    // A bit that all checkpoints need.
    site.flip("a", &state(10)[0].1[..256]);
    let said = site.fails("verify a", &["3 of 3 checkpoints cannot be used; none of them can be used"]);
    has(&said, &["bytes 0..1048576 of tensor \"layer.weight\""]);
    let said = site.fails(
        "verify a --also b",
        &["every checkpoint can be read from the directories given", "--heal"],
    );
    assert_eq!(said.matches(": whole, state").count(), 3, "{said}");
}

#[test]
fn damages_are_healed_from_another_directory() {
    let site = Site::with(&[10, 20]);
    copy_folder(&site.path("a"), &site.path("b"));
    site.flip("a", &20_u64.to_le_bytes());
    site.fails("verify a --heal", &["0 pieces written anew; 1 piece in no directory"]);
    site.says(
        "verify a --also b --heal",
        &["1 piece written anew; 0 pieces in no directory", ": whole, state"],
    );
    site.done("verify a");
}

#[test]
fn a_segment_that_was_cut_or_is_gone_takes_what_was_in_it() {
    let site = Site::with(&[10, 20]);
    copy_folder(&site.path("a"), &site.path("b"));
    copy_folder(&site.path("a"), &site.path("c"));
    let segment = site.segments("a").remove(0);
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    // In the middle of the first piece.
    file.set_len(WEIGHT as u64).unwrap();
    site.fails(
        "verify a",
        &[
            "00000000.seg: expected",
            "found 263144",
            "s10",
            "s20",
            "2 of 2 checkpoints cannot be used",
        ],
    );
    site.says("list a", &["of its pieces are missing or damaged"]);
    site.fails(
        "export a newest --out x",
        &["none of its checkpoints can be used", "s20", "s10"],
    );
    fs::remove_file(site.segments("c").remove(0)).unwrap();
    site.fails("verify c", &["00000000.seg: it is gone", "2 of 2 checkpoints"]);
    site.says("verify c --also b --heal", &[": whole, state"]);
    site.says("verify c", &[": whole, state"]);
}

#[test]
fn manifests_that_are_gone_or_damaged_are_missed() {
    let site = Site::with(&[10, 20, 30]);
    fs::remove_file(site.manifest("a", 30)).unwrap();
    let manifest = fs::OpenOptions::new().write(true).open(site.manifest("a", 10)).unwrap();
    manifest.write_all_at(b"x", 100).unwrap();
    let said = site.fails(
        "verify a",
        &[
            "s30",
            "its file is gone",
            "s10",
            "expected contents with the hash",
            "2 of 3",
            "s20",
        ],
    );
    assert_eq!(said.matches(": not usable").count(), 2, "{said}");
    let listing = site.json("list a");
    let standing: Vec<_> = (0..3)
        .map(|at| listing["checkpoints"][at]["standing"].as_str().unwrap())
        .collect();
    assert_eq!(standing, ["harmed", "whole", "harmed"]);
    assert_eq!(site.json("show a newest")["step"], 20);
    site.fails(
        "show a 30",
        &["s30", "its file is gone", "commit it again from another holder, or delete it"],
    );
    site.done("export a newest --out x");
}

#[test]
fn an_index_that_is_gone_is_made_anew_without_a_loss() {
    let site = Site::with(&[10, 20]);
    fs::remove_dir_all(site.path("a/catalogue")).unwrap();
    site.says("verify a", &[": whole, state"]);
    fs::remove_file(site.path("a/format")).unwrap();
    site.says("verify a", &[": whole, state"]);
    assert_eq!(site.json("list a")["checkpoints"].as_array().unwrap().len(), 2);
}
