//! Checkpoints get to a mirror and back, and only what is missing is sent.

use std::fs;

use super::objects::{objects, url};
use super::site::{Site, has};

#[test]
fn a_mirror_is_looked_at_like_a_directory() {
    let site = Site::with(&[10, 20]);
    let m = url(&site, "m");
    // One pack, and the description.
    has(
        &site.done(&format!("copy a {m}")),
        &["copied s20", "2 objects of 1.00 MiB written, 0 already there"],
    );
    has(
        &site.done(&format!("copy a {m}")),
        &["0 objects of 0 B written, 2 already there"],
    );
    has(
        &site.done(&format!("copy a {m} all")),
        &["copied s10", "1 object of 1.00 MiB written, 1 already there"],
    );
    assert_eq!(
        [objects(&site, "m", "packs").len(), objects(&site, "m", "manifests").len()],
        [3, 2]
    );
    assert_eq!(objects(&site, "m", "marks").len(), 0, "no process is at work");

    let listed = site.json(&format!("list {m}"));
    let entries = listed["checkpoints"].as_array().unwrap();
    let steps: Vec<_> = entries.iter().map(|entry| entry["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [10, 20]);
    assert!(entries.iter().all(|entry| entry["standing"] == "whole"));
    // As many as the directory has.
    assert_eq!(
        listed["pieces"].as_u64().unwrap() + 1,
        site.json("list a")["pieces"].as_u64().unwrap()
    );
    has(&site.done(&format!("list {m}")), &["s10", "s20", "whole", "2 checkpoints"]);

    for step in [10, 20] {
        let [there, here] = [&m, "a"].map(|place| {
            let mut shown = site.json(&format!("show {place} {step}"));
            shown.as_object_mut().unwrap().remove("age");
            shown
        });
        assert_eq!(there, here);
    }
    let verified = site.done(&format!("verify {m}"));
    let state = site.json("show a 20")["state"].as_str().unwrap().to_owned();
    has(&verified, &["0 not", "s10", &format!("whole, state {state}")]);
}

#[test]
fn what_comes_back_is_what_was_copied() {
    let site = Site::with(&[10, 20]);
    let m = url(&site, "m");
    site.done(&format!("copy a {m} all"));
    has(
        &site.done(&format!("copy {m} b")),
        &["copied s20", "4 pieces of", "0 already there"],
    );
    // Two pieces of four are those of step 20.
    has(
        &site.done(&format!("copy {m} b 10")),
        &["copied s10", "3 pieces of", "1 already there"],
    );
    has(
        &site.done(&format!("copy {m} b all")),
        &["0 pieces of 0 B written, 4 already there"],
    );
    site.done("verify b");
    for step in [10, 20] {
        site.done(&format!("export a {step} --out a{step}"));
        site.done(&format!("export b {step} --out b{step}"));
        let [a, b] = ["a", "b"].map(|name| fs::read(site.path(&format!("{name}{step}"))).unwrap());
        assert_eq!(a, b);
    }
    // What is damaged here is healed by what is there.
    site.flip("b", &20_u64.to_le_bytes());
    site.fails("verify b", 1, &["s20"]);
    has(&site.done(&format!("copy {m} b 20")), &["1 piece there were damaged"]);
    site.done("verify b");
}

#[test]
fn what_is_spread_over_hosts_gets_there_as_a_whole() {
    let site = Site::spread(&[10]);
    let m = url(&site, "m");
    let said = site.fails(&format!("copy a {m} 10"), 1, &["s10", "was not copied", "--also"]);
    assert!(!said.contains("copied s10 ("), "{said}");
    assert_eq!(objects(&site, "m", "manifests").len(), 0);
    has(&site.done(&format!("copy a {m} 10 --also b")), &["copied s10"]);
    site.done(&format!("verify {m}"));
    site.done(&format!("copy {m} c"));
    has(&site.done("verify c"), &[": whole, state"]);
}

#[test]
fn mistakes_are_said_with_what_to_do() {
    let site = Site::with(&[10]);
    let m = url(&site, "m");
    site.fails(&format!("list {m}"), 1, &["expected a folder, found none"]);
    assert!(!site.path("m").exists(), "nothing is made where a path was mistyped");
    site.done(&format!("copy a {m}"));
    site.fails(&format!("show {m} 20"), 1, &["expected a checkpoint of the step", "s10"]);
    site.fails(
        &format!("export {m} 10 --out x"),
        2,
        &["copy what you need", &format!("copy {m} DIR")],
    );
    site.fails(&format!("copy {m} {m}2"), 2, &["two mirrors", "by way of one"]);
    site.fails(&format!("verify {m} --heal"), 2, &["--compare"]);
    site.fails(&format!("list {m} --also a"), 2, &["no --also"]);
    site.fails(&format!("copy {m} a/segments"), 1, &["expected a directory of checkpoints"]);
    let _ = site.folder("empty");
    let empty = url(&site, "empty");
    site.fails(&format!("copy {empty} b"), 1, &["there are no checkpoints in it yet"]);
    has(&site.done(&format!("list {empty}")), &["0 checkpoints"]);
}
