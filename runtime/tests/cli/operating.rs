//! A job as its operator meets it, from another shell.

use super::program::gone;
use super::site::Site;

fn ids(status: &serde_json::Value) -> Vec<String> {
    let workers = status["workers"].as_array().unwrap().iter();
    workers.map(|worker| worker["worker"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn workers_are_shown_drained_killed_and_added() {
    let site = Site::new();
    let running = site.run("3", "5");
    let mut pids = running.pids(3);
    running.event("sardana::event::formed");
    let table = site.done(&["status"]);
    assert!(table.contains("endless") && table.contains("r2"), "{table}");
    let first = site.status(&[]);
    assert_eq!(first["spec"]["name"], "endless");
    let workers = ids(&first);
    assert_eq!(workers.len(), 3, "{first}");

    let drained = site.done(&["drain", &workers[0]]);
    assert!(drained.contains(&workers[0]) && drained.contains("boundary"), "{drained}");
    assert_eq!(running.event("sardana::event::left")["worker"], workers[0]);
    site.done(&["drain", "r1"]);
    running.event("sardana::event::left");

    let left = ids(&site.status(&[]));
    assert_eq!(left.len(), 1, "{left:?}");
    let killed = site.done(&["kill", &left[0]]);
    assert!(killed.contains("told to kill"), "{killed}");
    let lost = running.event("sardana::event::lost");
    assert_eq!(lost["worker"], left[0]);
    assert!(lost["cause"].as_str().unwrap().contains("signal 9"), "{lost}");
    pids.extend(running.pids(1));
    running.event("sardana::event::joined");

    let scaled = site.done(&["scale", "-n", "3"]);
    assert!(scaled.contains("2 more are started"), "{scaled}");
    pids.extend(running.pids(2));
    while ids(&site.status(&[])).len() < 3 {}

    site.done(&["stop"]);
    let out = running.ends_well();
    assert!(out.contains("state: "), "{out}");
    for pid in pids {
        gone(pid);
    }
    // Its file goes with it.
    assert!(site.failed(&["status"], 1).contains("no job of this user runs on this host"));
}

#[test]
fn what_is_saved_is_shown_while_the_job_runs() {
    let site = Site::new();
    let folder = site.path("checkpoints");
    let folder = folder.to_str().unwrap();
    let running = site.run_with(&["-n", "2", "--checkpoint-every", "1", "--checkpoint-dir", folder]);
    let pids = running.pids(2);
    running.event("sardana::event::saved");
    let shown = site.status(&[]);
    let saved = &shown["checkpoints"];
    assert!(saved["newest"]["step"].as_u64().unwrap() >= 1, "{saved}");
    assert_eq!(
        (&saved["newest"]["hosts_placed"], &saved["newest"]["hosts_whole"]),
        (&1.into(), &1.into())
    );
    assert!(saved["committed"].as_u64().unwrap() >= 1, "{saved}");
    assert_eq!(saved["depots"].as_array().unwrap().len(), 1, "{saved}");
    let table = site.done(&["status"]);
    assert!(
        table.contains("whole on 1 of 1 host") && table.contains("committed"),
        "{table}"
    );
    // A job has its folder to itself; the refusal says where to look instead.
    let refused = site.failed(&["checkpoints", "list", folder], 1);
    assert!(refused.contains("in use") && refused.contains("sardana status"), "{refused}");
    site.done(&["stop"]);
    assert_eq!(running.end().0.code(), Some(0));
    for pid in pids {
        gone(pid);
    }
    let listed = site.done(&["checkpoints", "list", folder]);
    assert!(listed.contains("3 checkpoints"), "{listed}");
}

#[test]
fn two_jobs_must_be_told_apart() {
    let site = Site::new();
    let (one, _) = site.coordinator("one", "127.0.0.1:0", &[]);
    let (two, _) = site.coordinator("two", "127.0.0.1:0", &[]);
    for command in [
        &["status"][..],
        &["drain", "r0"],
        &["kill", "r0"],
        &["scale", "-n", "2"],
        &["stop"],
    ] {
        let words = site.failed(command, 1);
        assert!(
            words.contains("2 jobs of this user run on this host") && words.contains(".join"),
            "{words}"
        );
    }
    for coordinator in [one, two] {
        coordinator.signal("KILL");
        coordinator.end();
    }
    // Killed ones leave files that are seen through.
    assert!(site.failed(&["status"], 1).contains("no job of this user runs on this host"));
}
