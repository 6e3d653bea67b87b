//! A job as its operator meets it, from another shell.

use super::program::{gone, has};
use super::site::Site;

/// One of each kind.
pub(crate) const ORDERS: [&str; 5] = ["status", "drain r0", "kill r0", "scale -n 2", "stop"];

/// The workers in a status.
pub(crate) fn ids(status: &serde_json::Value) -> Vec<String> {
    let workers = status["workers"].as_array().unwrap().iter();
    workers.map(|worker| worker["worker"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn workers_are_shown_drained_killed_and_added() {
    let site = Site::new();
    let running = site.run("-n 3 --restarts 5");
    let mut pids = running.pids(3);
    running.event("sardana::event::formed");
    has(&site.done("status"), &["endless", "r2"]);
    let first = site.json("status");
    assert_eq!(first["spec"]["name"], "endless");
    let workers = ids(&first);
    assert_eq!(workers.len(), 3, "{first}");

    has(&site.done(&format!("drain {}", workers[0])), &[&workers[0], "boundary"]);
    assert_eq!(running.event("sardana::event::left")["worker"], workers[0]);
    site.done("drain r1");
    running.event("sardana::event::left");

    let left = ids(&site.json("status"));
    assert_eq!(left.len(), 1, "{left:?}");
    has(&site.done(&format!("kill {}", left[0])), &["told to kill"]);
    let lost = running.event("sardana::event::lost");
    assert_eq!(lost["worker"], left[0]);
    has(lost["cause"].as_str().unwrap(), &["signal 9"]);
    pids.extend(running.pids(1));
    running.event("sardana::event::joined");

    has(&site.done("scale -n 3"), &["2 more are started"]);
    pids.extend(running.pids(2));
    while ids(&site.json("status")).len() < 3 {}

    site.done("stop");
    has(&running.ends_well(), &["state: "]);
    pids.into_iter().for_each(gone);
    // Its file goes with it.
    site.fails("status", &["no job of this user runs on this host"]);
}

#[test]
fn what_is_saved_is_shown_while_the_job_runs() {
    let site = Site::new();
    let running = site.run("-n 2 --checkpoint-every 1 --checkpoint-dir saved");
    let pids = running.pids(2);
    running.event("sardana::event::saved");
    let shown = site.json("status");
    let saved = &shown["checkpoints"];
    assert!(saved["newest"]["step"].as_u64().unwrap() >= 1, "{saved}");
    assert_eq!(
        (&saved["newest"]["hosts_placed"], &saved["newest"]["hosts_whole"]),
        (&1.into(), &1.into())
    );
    assert!(saved["committed"].as_u64().unwrap() >= 1, "{saved}");
    assert_eq!(saved["depots"].as_array().unwrap().len(), 1, "{saved}");
    has(&site.done("status"), &["whole on 1 of 1 host", "committed"]);
    // A job has its folder to itself; the refusal says where to look instead.
    site.fails("checkpoints list saved", &["in use", "sardana status"]);
    site.done("stop");
    running.ends_well();
    pids.into_iter().for_each(gone);
    has(&site.done("checkpoints list saved"), &["3 checkpoints"]);
}

#[test]
fn two_jobs_must_be_told_apart() {
    let site = Site::new();
    let (one, _) = site.coordinator("one", "127.0.0.1:0", "");
    let (two, _) = site.coordinator("two", "127.0.0.1:0", "");
    for order in ORDERS {
        site.fails(order, &["2 jobs of this user run on this host", ".join"]);
    }
    one.killed();
    two.killed();
    // Killed ones leave files that are seen through.
    site.fails("status", &["no job of this user runs on this host"]);
}

/// What passes from rank 0 to rank 1 in a step: the running sum of one f64, with zeros up to 64 bytes, of a count of samples, and a header.
const STEP_BYTES: u64 = 64 + 8 + 48;

/// What is said of the links from the first worker, of its one kind.
fn from_first(status: &serde_json::Value) -> &serde_json::Value {
    let first = &status["workers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|worker| worker["rank"] == 0)
        .unwrap()["worker"];
    let mut lines = status["links"]["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| &line["from"] == first);
    let line = lines.next().unwrap_or_else(|| panic!("no links in {status}"));
    assert_eq!(lines.next(), None, "{status}");
    line
}

/// The next status in which the worker has told of its links anew.
fn told_anew(site: &Site, before: &serde_json::Value) -> serde_json::Value {
    loop {
        let status = site.json("status");
        assert_eq!(status["generation"], "g1.1");
        if from_first(&status)["sent_bytes"] != from_first(before)["sent_bytes"] {
            return status;
        }
    }
}

#[test]
fn links_have_their_kind_and_what_sums_must_have_moved() {
    let site = Site::new();
    for (link, kind) in [("auto", "shared memory"), ("quic", "QUIC")] {
        let running = site.run(&format!("-n 2 --link {link}"));
        running.event("sardana::event::formed");
        let step = |status: &serde_json::Value| status["step"].as_u64().unwrap();
        let sent = |status: &serde_json::Value| from_first(status)["sent_bytes"].as_u64().unwrap();
        let first = std::iter::repeat_with(|| site.json("status"))
            .find(|status| step(status) >= 1_000)
            .unwrap();
        // Of two reports that come later at least the second was made later.
        let later = told_anew(&site, &told_anew(&site, &first));
        let last = told_anew(&site, &later);
        assert!(sent(&later) >= step(&first) * STEP_BYTES, "{first} {later}");
        assert!(sent(&later) <= (step(&last) + 1) * STEP_BYTES, "{later} {last}");
        let line = from_first(&later);
        assert_eq!(line["kind"], kind);
        assert!(line["bytes_per_second"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(
            line["round_trip_ms"].as_f64().is_some_and(|trip| trip > 0.0),
            link == "quic",
            "{line}"
        );
        assert_eq!(
            line["sent_packets"].as_u64().is_some_and(|packets| packets > 0),
            link == "quic",
            "{line}"
        );
        has(&site.done("status --links"), &["links: ", kind, "r0    r1"]);
        site.done("stop");
        running.ends_well();
    }
}
