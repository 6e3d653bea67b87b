//! A job whose disks are lost goes on from its mirror.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sardana::{JobSpec, Step, reference};

use super::objects::{objects, url};
use super::program::{Running, as_worker, gone, has, said, sardana};
use super::site::Site;
use super::worker;

/// The hash of the state at a step, computed by a plain loop.
fn reference(step: u64) -> String {
    let spec = JobSpec {
        steps: Step::new(step),
        ..worker::job().spec().clone()
    };
    let mut model = worker::build(&spec).unwrap();
    reference::train(&spec, &mut model).unwrap().hash.to_string()
}

/// The step of the last state that a job's end has told of, and the hash.
fn end(running: Running) -> (u64, String) {
    let out = running.ends_well();
    let line = |start: &str| out.lines().find_map(|line| line.strip_prefix(start)).unwrap().to_owned();
    (line("steps: ").parse().unwrap(), line("state: "))
}

/// Each path has what the other had, and at no moment nothing: a running job would make what is missing.
fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Kills a job as a lost host does: everything at once.
fn kill_all(running: Running, pids: &[u64]) {
    running.killed();
    // They end since their agent is gone.
    pids.iter().for_each(|&pid| gone(pid));
}

/// A job of `workers` processes, often saved in `ckpt` and the mirror at `m`, in an environment that `show` prepares.
fn start(site: &Site, m: &str, workers: u32, show: &dyn Fn(&mut Command)) -> Running {
    let mut command = sardana(&format!("run --log-format json -n {workers} --restarts 0 --mirror {m}"));
    command.args(["--checkpoint-every", "20", "--keep", "last=2", "--checkpoint-dir"]);
    show(command.arg(site.path("ckpt")));
    Running::start(as_worker(command.arg("--")))
}

/// A job is killed with all its processes, its directory is removed, and the same job goes on with another number of workers from the
/// mirror at `m`. Returns the hash of its last state.
pub(crate) fn killed_and_brought_back(site: &Site, m: &str, show: &dyn Fn(&mut Command)) -> String {
    let running = start(site, m, 2, show);
    let pids = running.pids(2);
    running.event("sardana::event::mirrored");
    let mirrored = running.event("sardana::event::mirrored");
    let mirrored: u64 = mirrored["step"].as_str().unwrap().trim_start_matches('s').parse().unwrap();
    kill_all(running, &pids);
    fs::remove_dir_all(site.path("ckpt")).unwrap();

    let running = start(site, m, 3, show);
    let brought = running.event("sardana::event::brought");
    let step = brought["step"].as_str().unwrap().to_owned();
    assert!(step.trim_start_matches('s').parse::<u64>().unwrap() >= mirrored);
    assert_eq!(
        (brought["from"].as_str().unwrap(), brought["local"].as_str().unwrap()),
        (m, "none")
    );
    assert_eq!(running.event("sardana::event::resumes")["step"], *step);
    let first = running.event("sardana::event::mirrored")["step"].as_str().unwrap().to_owned();
    assert_ne!(first, step, "what is there is not copied again");
    running.signal("TERM");
    let (last, hash) = end(running);
    assert_eq!(hash, reference(last));
    hash
}

#[test]
fn a_job_goes_on_from_its_mirror_when_its_disk_is_lost() {
    let site = Site::new();
    let m = url(&site, "m");
    let hash = killed_and_brought_back(&site, &m, &|_| {});
    // The last state is in the mirror, and no more than is kept.
    site.says("verify @m", &[&format!("whole, state {hash}")]);
    assert!(objects(&site, "m", "manifests").len() <= 2);
    let shown = ["@m", "ckpt"].map(|place| site.json(&format!("show {place}"))["id"].clone());
    assert_eq!(shown[0], shown[1]);
}

#[test]
fn a_mirror_that_fails_neither_slows_nor_fails_a_job_but_is_not_ignored_at_its_beginning() {
    let site = Site::new();
    let m = url(&site, "m");
    let running = start(&site, &m, 1, &|_| {});
    running.event("sardana::event::mirrored");
    // Whatever is put there from now on cannot be.
    let v1 = site.path("m").join("v1");
    let away = site.path("m").join("away");
    fs::write(&away, b"a file").unwrap();
    exchange(&v1, &away);
    has(
        running.event("sardana::event::not_mirrored")["reason"].as_str().unwrap(),
        &["v1"],
    );
    running.event("sardana::event::saved");
    running.event("sardana::event::saved");
    exchange(&v1, &away);
    running.event("sardana::event::mirrored");
    running.signal("TERM");
    let (_, hash) = end(running);
    site.says("verify @m", &[&format!("whole, state {hash}")]);
}

#[test]
fn nothing_begins_anew_while_it_is_not_known_what_the_mirror_has() {
    let site = Site::new();
    let m = "s3://bucket/job";
    let mut command = sardana("run -n 1 --checkpoint-every 20 --checkpoint-dir");
    command.arg(site.path("ckpt")).args(["--mirror", m, "--", "true"]);
    command
        // No process listens there.
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_ACCESS_KEY_ID", "somebody")
        .env("AWS_SECRET_ACCESS_KEY", "hunter2");
    let [_, words] = said(&mut command, 1);
    has(&words, &[m, "is not known", "without --mirror"]);
    assert!(!words.contains("hunter2"), "{words}");
}
