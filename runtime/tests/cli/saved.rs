//! What a job has saved, as `sardana checkpoints` finds it.

use std::fs;

use super::hosts::agent;
use super::program::{Running, has};
use super::site::Site;

/// The state that a job says it has ended in.
fn ends(running: Running) -> String {
    let out = running.ends_well();
    let state = out.lines().find_map(|line| line.strip_prefix("state: "));
    state.expect("it says its state").to_owned()
}

/// A job of so many workers that is saved in `dir`, often.
fn saving(site: &Site, workers: u32, dir: &str) -> Running {
    site.run(&format!(
        "-n {workers} --restarts 0 --checkpoint-every 20 --checkpoint-dir {dir}"
    ))
}

/// A job that is saved in `saved`, and stopped after two checkpoints. The state that it ended in.
fn save(site: &Site) -> String {
    let running = saving(site, 2, "saved");
    running.event("sardana::event::saved");
    running.event("sardana::event::saved");
    running.signal("TERM");
    ends(running)
}

/// The newest checkpoint of a directory.
fn newest(site: &Site, dir: &str) -> serde_json::Value {
    site.json(&format!("checkpoints show {dir}"))
}

/// A job goes on from what is in `dir`, which is of this step, with three workers.
fn goes_on(site: &Site, dir: &str, step: &serde_json::Value) {
    let running = saving(site, 3, dir);
    let resumes = running.event("sardana::event::resumes");
    assert_eq!(resumes["step"], format!("s{step}"));
    running.event("sardana::event::saved");
    running.signal("TERM");
    ends(running);
}

#[test]
fn what_a_job_has_saved_is_its_state_and_no_other_process_has_it_open_meanwhile() {
    let site = Site::new();
    let running = saving(&site, 2, "saved --keep last=2");
    running.event("sardana::event::saved");
    running.event("sardana::event::saved");
    let of_sled = |line: &serde_json::Value| line["target"].as_str().unwrap().starts_with("sled");
    let warned = running.warnings().iter().any(of_sled);
    assert!(!warned, "a new directory is nothing to worry about");
    let owner = format!("in use by process {}", running.child.id());
    site.fails("checkpoints list saved", &[&owner, "sardana stop"]);
    running.signal("TERM");
    let state = ends(running);

    has(&site.done("checkpoints verify saved"), &[&format!("whole, state {state}")]);
    let shown = newest(&site, "saved");
    assert_eq!(shown["state"], state);
    assert_eq!(shown["job"]["name"], "endless");
    assert_eq!(
        shown["tensors"],
        serde_json::json!([{ "name": "w", "dtype": "f64", "shape": [1], "bytes": 8 }])
    );
    site.done("checkpoints copy saved copy all");
    has(&site.done("checkpoints verify copy"), &[&state]);
    goes_on(&site, "copy", &shown["step"]);
}

#[test]
fn a_job_goes_on_from_a_file_that_was_imported() {
    let site = Site::new();
    let state = save(&site);
    site.done("checkpoints export saved newest --out out.safetensors");
    site.done("checkpoints import imported out.safetensors --like newest --like-dir saved");
    let shown = newest(&site, "imported");
    assert_eq!(shown["state"], state);
    goes_on(&site, "imported", &shown["step"]);
}

#[test]
fn checkpoint_actors_of_their_own_keep_a_job_of_which_all_else_is_lost() {
    let site = Site::new();
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "-n 2 --checkpoint-every 20 --replicas 2");
    let [one, two] = ["one", "two"].map(|host| {
        site.invite("state", "checkpoint", &format!("{host}.join"));
        site.start(&format!(
            "checkpoint --join {host}.join --host {host} --checkpoint-dir {host}"
        ))
    });
    site.invite("state", "agent", "agent.join");
    let agent = agent(&site, "agent.join", 2);
    let saved_on = |hosts: u64| while coordinator.event("sardana::event::saved")["hosts"] != hosts {};
    saved_on(2);
    one.signal("KILL");
    coordinator.event("sardana::event::depot_lost");
    saved_on(1);
    assert_eq!(one.end().0.code(), None, "it was killed");
    coordinator.signal("TERM");
    let state = ends(coordinator);
    agent.ends_well();
    two.ends_well();
    let shown = newest(&site, "two");
    assert_eq!(shown["state"], state);
    goes_on(&site, "two", &shown["step"]);
}

#[test]
fn the_newest_that_is_whole_is_gone_on_from_and_it_is_said_why_not_from_a_newer_one() {
    let site = Site::new();
    save(&site);
    let last = newest(&site, "saved");
    let id = last["id"].as_str().unwrap();
    let entries = fs::read_dir(site.path("saved/manifests")).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let path = paths
        .find(|path| path.to_str().unwrap().contains(id))
        .expect("it has a manifest");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let running = saving(&site, 2, "saved");
    let passed_over = running.event("sardana::event::passed_over");
    let step = format!("s{}", last["step"]);
    assert_eq!((&passed_over["step"], &passed_over["id"]), (&step.into(), &last["id"]));
    has(passed_over["reason"].as_str().unwrap(), &["cannot be read"]);
    let resumes = running.event("sardana::event::resumes");
    let from: u64 = resumes["step"].as_str().unwrap()[1..].parse().unwrap();
    assert!((1..last["step"].as_u64().unwrap()).contains(&from), "{resumes}");
    running.signal("TERM");
    ends(running);
}

#[test]
fn a_directory_that_a_job_cannot_use_is_left_as_it_is() {
    let site = Site::new();
    save(&site);
    let newer = "sardana-store 9 and more";
    let newer = format!("{newer} check={}\n", blake3::hash(newer.as_bytes()));
    fs::write(site.path("saved/format"), &newer).unwrap();
    fs::write(site.path("file"), "mine").unwrap();
    let newer_words = ["written by a newer version", "found 9"];
    for (dir, words, kept, text) in [
        ("saved", &newer_words[..], "saved/format", newer.as_str()),
        ("file", &["file"], "file", "mine"),
    ] {
        let (status, why) = saving(&site, 2, dir).fails();
        assert_eq!(status.code(), Some(1), "{why}");
        has(&why, words);
        assert_eq!(fs::read_to_string(site.path(kept)).unwrap(), text);
    }
}
