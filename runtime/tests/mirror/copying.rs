//! Checkpoints get to a mirror and back, and only what is missing is sent.

use std::fs;

use super::objects::{objects, url};
use super::program::has;
use super::site::Site;

#[test]
fn a_mirror_is_looked_at_like_a_directory() {
    let site = Site::with(&[10, 20]);
    // One pack, and the description.
    site.says("copy a @m", &["copied s20", "2 objects of 1.00 MiB written, 0 already there"]);
    site.says("copy a @m", &["0 objects of 0 B written, 2 already there"]);
    site.says(
        "copy a @m all",
        &["copied s10", "1 object of 1.00 MiB written, 1 already there"],
    );
    assert_eq!(
        [objects(&site, "m", "packs").len(), objects(&site, "m", "manifests").len()],
        [3, 2]
    );
    assert_eq!(objects(&site, "m", "marks").len(), 0, "no process is at work");

    let listed = site.json("list @m");
    let entries = listed["checkpoints"].as_array().unwrap();
    let steps: Vec<_> = entries.iter().map(|entry| entry["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [10, 20]);
    assert!(entries.iter().all(|entry| entry["standing"] == "whole"));
    // As many as the directory has.
    assert_eq!(
        listed["pieces"].as_u64().unwrap() + 1,
        site.json("list a")["pieces"].as_u64().unwrap()
    );
    site.says("list @m", &["s10", "s20", "whole", "2 checkpoints"]);

    for step in [10, 20] {
        let [there, here] = ["@m", "a"].map(|place| {
            let mut shown = site.json(&format!("show {place} {step}"));
            shown.as_object_mut().unwrap().remove("age");
            shown
        });
        assert_eq!(there, here);
    }
    let verified = site.done("verify @m");
    let state = site.json("show a 20")["state"].as_str().unwrap().to_owned();
    has(&verified, &["0 not", "s10", &format!("whole, state {state}")]);
}

#[test]
fn what_comes_back_is_what_was_copied() {
    let site = Site::with(&[10, 20]);
    site.done("copy a @m all");
    site.says("copy @m b", &["copied s20", "4 pieces of", "0 already there"]);
    // Two pieces of four are those of step 20.
    site.says("copy @m b 10", &["copied s10", "3 pieces of", "1 already there"]);
    site.says("copy @m b all", &["0 pieces of 0 B written, 4 already there"]);
    site.done("verify b");
    for step in [10, 20] {
        site.done(&format!("export a {step} --out a{step}"));
        site.done(&format!("export b {step} --out b{step}"));
        let [a, b] = ["a", "b"].map(|name| fs::read(site.path(&format!("{name}{step}"))).unwrap());
        assert_eq!(a, b);
    }
    // What is damaged here is healed by what is there.
    site.flip("b", &20_u64.to_le_bytes());
    site.fails("verify b", &["s20"]);
    site.says("copy @m b 20", &["1 piece there were damaged"]);
    site.done("verify b");
}

#[test]
fn what_is_spread_over_hosts_gets_there_as_a_whole() {
    let site = Site::spread(&[10]);
    let said = site.fails("copy a @m 10", &["s10", "was not copied", "--also"]);
    assert!(!said.contains("copied s10 ("), "{said}");
    assert_eq!(objects(&site, "m", "manifests").len(), 0);
    site.says("copy a @m 10 --also b", &["copied s10"]);
    site.done("verify @m");
    site.done("copy @m c");
    site.says("verify c", &[": whole, state"]);
}

#[test]
fn mistakes_are_said_with_what_to_do() {
    let site = Site::with(&[10]);
    let m = url(&site, "m");
    site.fails("list @m", &["expected a folder, found none"]);
    assert!(!site.path("m").exists(), "nothing is made where a path was mistyped");
    site.done("copy a @m");
    site.fails("show @m 20", &["expected a checkpoint of the step", "s10"]);
    site.misused("export @m 10 --out x", &["copy what you need", &format!("copy {m} DIR")]);
    site.misused("copy @m @m2", &["two mirrors", "by way of one"]);
    site.misused("verify @m --heal", &["--compare"]);
    site.misused("list @m --also a", &["no --also"]);
    site.fails("copy @m a/segments", &["expected a directory of checkpoints"]);
    let _ = site.folder("empty");
    site.fails("copy @empty b", &["there are no checkpoints in it yet"]);
    site.says("list @empty", &["0 checkpoints"]);
}
