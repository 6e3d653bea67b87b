//! What a job has saved, as `sardana checkpoints` finds it.

use std::fs;

use super::hosts::agent;
use super::program::{Running, training};
use super::site::{Site, text};

/// The state that a job says it has ended in.
fn ends(running: Running) -> String {
    let out = running.ends_well();
    let state = out.lines().find_map(|line| line.strip_prefix("state: "));
    state.expect("it says its state").to_owned()
}

/// A job that is saved in `dir`, and stopped after two checkpoints. The state that it ended in.
fn save(dir: &str) -> String {
    let running = training(2, &["--checkpoint-every", "20", "--checkpoint-dir", dir]);
    running.event("sardana::event::saved");
    running.event("sardana::event::saved");
    running.signal("TERM");
    ends(running)
}

/// The newest checkpoint of a directory.
fn newest(site: &Site, dir: &str) -> serde_json::Value {
    serde_json::from_str(&site.done(&["checkpoints", "show", dir, "newest", "--json"])).unwrap()
}

/// A job goes on from what is in `dir`, which is of this step, with three workers.
fn goes_on(dir: &str, step: &serde_json::Value) {
    let running = training(3, &["--checkpoint-every", "20", "--checkpoint-dir", dir]);
    let resumes = running.event("sardana::event::resumes");
    assert_eq!(resumes["step"], format!("s{step}"));
    running.event("sardana::event::saved");
    running.signal("TERM");
    ends(running);
}

#[test]
fn what_a_job_has_saved_is_its_state_and_no_other_process_has_it_open_meanwhile() {
    let site = Site::new();
    let (dir, copy) = (site.path("saved"), site.path("copy"));
    let (dir, copy) = (text(&dir), text(&copy));
    let running = training(2, &["--checkpoint-every", "20", "--keep", "last=2", "--checkpoint-dir", dir]);
    running.event("sardana::event::saved");
    running.event("sardana::event::saved");
    let warned = running
        .warnings()
        .iter()
        .any(|line| line["target"].as_str().unwrap().starts_with("sled"));
    assert!(!warned, "a new directory is nothing to worry about");
    let words = site.failed(&["checkpoints", "list", dir], 1);
    let owner = format!("in use by process {}", running.child.id());
    assert!(words.contains(&owner) && words.contains("sardana stop"), "{words}");
    running.signal("TERM");
    let state = ends(running);

    let verified = site.done(&["checkpoints", "verify", dir]);
    assert!(verified.contains(&format!("whole, state {state}")), "{verified}");
    let shown: serde_json::Value = serde_json::from_str(&site.done(&["checkpoints", "show", dir, "--json"])).unwrap();
    assert_eq!(shown["state"], state);
    assert_eq!(shown["job"]["name"], "endless");
    assert_eq!(
        shown["tensors"],
        serde_json::json!([{ "name": "w", "dtype": "f64", "shape": [1], "bytes": 8 }])
    );
    site.done(&["checkpoints", "copy", dir, copy, "all"]);
    assert!(site.done(&["checkpoints", "verify", copy]).contains(&state));
    goes_on(copy, &shown["step"]);
}

#[test]
fn a_job_goes_on_from_a_file_that_was_imported() {
    let site = Site::new();
    let [dir, file, imported] = ["saved", "out.safetensors", "imported"].map(|name| site.path(name));
    let [dir, file, imported] = [&dir, &file, &imported].map(|path| text(path));
    let state = save(dir);
    site.done(&["checkpoints", "export", dir, "newest", "--out", file]);
    site.done(&["checkpoints", "import", imported, file, "--like", "newest", "--like-dir", dir]);
    let shown = newest(&site, imported);
    assert_eq!(shown["state"], state);
    goes_on(imported, &shown["step"]);
}

#[test]
fn checkpoint_actors_of_their_own_keep_a_job_of_which_all_else_is_lost() {
    let site = Site::new();
    let flags = ["-n", "2", "--checkpoint-every", "20", "--replicas", "2"];
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &flags);
    let dirs = ["one", "two"].map(|host| site.path(host));
    let [one, two] = ["one", "two"].map(|host| {
        let (join, dir) = (
            site.invite("state", "checkpoint", "1", &format!("{host}.join")),
            site.path(host),
        );
        let arguments = [
            "checkpoint",
            "--log-format",
            "json",
            "--join",
            text(&join),
            "--host",
            host,
            "--checkpoint-dir",
            text(&dir),
        ];
        Running::start(site.command(&arguments).env("RUST_LOG", "info"))
    });
    let join = site.invite("state", "agent", "1", "agent.join");
    let agent = agent(&site, text(&join), "2");
    let saved_on = |hosts: u64| while coordinator.event("sardana::event::saved")["hosts"] != hosts {};
    saved_on(2);
    one.signal("KILL");
    coordinator.event("sardana::event::depot_lost");
    saved_on(1);
    assert_eq!(one.end().0.code(), None, "it was killed");
    coordinator.signal("TERM");
    let state = ends(coordinator);
    for running in [agent, two] {
        assert_eq!(running.end().0.code(), Some(0));
    }
    let two = text(&dirs[1]);
    let shown = newest(&site, two);
    assert_eq!(shown["state"], state);
    goes_on(two, &shown["step"]);
}

#[test]
fn the_newest_that_is_whole_is_gone_on_from_and_it_is_said_why_not_from_a_newer_one() {
    let site = Site::new();
    let dir = site.path("saved");
    save(text(&dir));
    let last = newest(&site, text(&dir));
    let id = last["id"].as_str().unwrap();
    let mut paths = fs::read_dir(dir.join("manifests"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let path = paths.find(|path| text(path).contains(id)).expect("it has a manifest");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let running = training(2, &["--checkpoint-every", "20", "--checkpoint-dir", text(&dir)]);
    let passed_over = running.event("sardana::event::passed_over");
    let step = format!("s{}", last["step"]);
    assert_eq!((&passed_over["step"], &passed_over["id"]), (&step.into(), &last["id"]));
    assert!(
        passed_over["reason"].as_str().unwrap().contains("cannot be read"),
        "{passed_over}"
    );
    let resumes = running.event("sardana::event::resumes");
    let from: u64 = resumes["step"].as_str().unwrap()[1..].parse().unwrap();
    assert!((1..last["step"].as_u64().unwrap()).contains(&from), "{resumes}");
    running.signal("TERM");
    ends(running);
}

#[test]
fn a_directory_that_a_job_cannot_use_is_left_as_it_is() {
    let site = Site::new();
    let dir = site.path("saved");
    save(text(&dir));
    let (format, newer) = (dir.join("format"), "sardana-store 9 and more");
    let newer = format!("{newer} check={}\n", blake3::hash(newer.as_bytes()));
    fs::write(&format, &newer).unwrap();
    let fails = |dir: &str| training(2, &["--checkpoint-every", "20", "--checkpoint-dir", dir]).fails();
    let (status, why) = fails(text(&dir));
    assert_eq!(status.code(), Some(1), "{why}");
    assert!(why.contains("written by a newer version") && why.contains("found 9"), "{why}");
    assert_eq!(fs::read_to_string(&format).unwrap(), newer);
    let file = site.path("file");
    fs::write(&file, "mine").unwrap();
    let (status, why) = fails(text(&file));
    assert_eq!(status.code(), Some(1), "{why}");
    assert!(why.contains(text(&file)), "{why}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}
