//! Copies are whole, and only what is missing is written.

use std::fs;

use super::program::has;
use super::site::Site;

#[test]
fn only_what_is_missing_is_copied() {
    let site = Site::with(&[10, 20]);
    // The description, and three pieces of four that no other step has.
    site.says("copy a b", &["copied s20", "5 pieces of", "0 already there"]);
    site.says(
        "copy a b 10",
        &["copied s10", "3 pieces of 3.94 KiB written, 2 already there"],
    );
    site.says("copy a b all", &["0 pieces of 0 B written, 5 already there"]);
    site.done("verify b");
    for step in [10, 20] {
        let mut shown = ["a", "b"].map(|name| site.json(&format!("show {name} {step}")));
        shown
            .iter_mut()
            .for_each(|shown| drop(shown.as_object_mut().unwrap().remove("age")));
        assert_eq!(shown[0], shown[1]);
    }
    site.says("copy a c all", &["copied s10", "copied s20"]);
    assert_eq!(site.json("list c")["pieces"], 8);
    // A job can use the copies: each is a depot of its own.
    let depots = ["a", "b", "c"].map(|name| site.depot(name));
    assert!(depots[0] != depots[1] && depots[1] != depots[2]);
}

#[test]
fn what_cannot_be_read_is_not_copied_and_what_is_damaged_there_is_healed() {
    let site = Site::with(&[10, 20]);
    site.done("copy a b all");
    site.flip("b", &20_u64.to_le_bytes());
    site.fails("verify b", &["s20"]);
    site.says("copy a b", &["1 piece of 8 B written", "1 piece there were damaged"]);
    site.done("verify b");
    site.flip("a", &10_u64.to_le_bytes());
    let said = site.fails(
        "copy a c all",
        &[
            "was not copied",
            "1 of its pieces are damaged or missing",
            "bytes 0..8 of tensor \"count\"",
            "1 of 2 checkpoints",
            "--also",
        ],
    );
    has(&said, &["copied s20"]);
    site.done("verify c");
    assert_eq!(site.json("list c")["checkpoints"].as_array().unwrap().len(), 1);
    site.says("copy a c all --also b", &["copied s10"]);
    site.done("verify c");
}

#[test]
fn a_manifest_that_is_gone_comes_back_with_a_copy() {
    let site = Site::with(&[10, 20]);
    site.done("copy a b all");
    fs::remove_file(site.manifest("b", 20)).unwrap();
    site.fails("verify b", &["s20", "its file is gone"]);
    site.says("copy a b", &["0 pieces of 0 B written, 5 already there"]);
    site.done("verify b");
}

#[test]
fn what_is_spread_over_hosts_is_put_together() {
    let site = Site::spread(&[10, 20]);
    site.says("list a", &["of its pieces are on other hosts", "--also", "1 of 2"]);
    let entries = site.json("list a")["checkpoints"].clone();
    assert_eq!(entries[0]["standing"], "spread");
    site.says("verify a", &["what is here is whole", "of other hosts", "--also"]);
    site.fails("export a newest --out x", &["none of its checkpoints can be used", "--also"]);
    site.fails("export a 20 --out x", &["--also"]);
    site.fails("copy a c 20", &["s20", "--also"]);
    site.done("show a");
    assert_eq!(site.json("list a --also b")["checkpoints"][0]["standing"], "whole");
    site.says("verify a --also b", &["s10", "s20", ": whole, state"]);
    site.done("show a --also b");
    site.done("export a newest --out x --also b");
    site.says("copy a c all --also b", &["copied s10", "copied s20"]);
    site.done("verify c");
    site.done("export c newest --out y");
    assert_eq!(fs::read(site.path("x")).unwrap(), fs::read(site.path("y")).unwrap());
    // A part of a checkpoint becomes a whole one, too.
    site.done("copy c b all");
    site.says("verify b", &[": whole, state"]);
}
