//! A job of several processes, whose checkpoints are on another host than its coordinator's: here, in another depot.

use std::fs;

use sardana_actors::depot::{DEPOT_FILE, identity};

use super::objects::url;
use super::program::{Running, as_worker};
use super::running::{Site as Hosts, text};
use super::site::Site;

/// Of depots on one host only that with the lowest id is given checkpoints: it shall be the agent's.
fn choose_depots(site: &Site, agent: &str, coordinator: &str) {
    let coordinator = site.depot(coordinator);
    while identity(&site.path(agent)).unwrap() > coordinator {
        fs::remove_file(site.path(agent).join(DEPOT_FILE)).unwrap();
    }
}

#[test]
fn what_is_on_another_host_gets_into_the_mirror_even_when_the_job_ends() {
    let (site, hosts) = (Site::new(), Hosts::new());
    choose_depots(&site, "of agent", "of coordinator");
    let (here, there, m) = (site.path("of coordinator"), site.path("of agent"), url(&site, "m"));
    let flags = [
        "-n",
        "2",
        "--checkpoint-every",
        "1000000",
        "--checkpoint-dir",
        text(&here),
        "--mirror",
        &m,
    ];
    let (coordinator, _) = hosts.coordinator("state", "127.0.0.1:0", &flags);
    let join = hosts.invite("state", "agent", "1", "agent.join");
    let mut command = hosts.command(&[
        "agent",
        "--log-format",
        "json",
        "--notices",
        "none",
        "-n",
        "2",
        "--join",
        text(&join),
    ]);
    command.args(["--checkpoint-dir", text(&there), "--"]);
    let agent = Running::start(as_worker(&mut command).env("RUST_LOG", "info"));
    // The agent's depot, and the coordinator's own.
    let depot = "sardana::event::depot";
    coordinator.events([depot, depot, "sardana::event::formed"]);
    coordinator.signal("TERM");
    // The only checkpoint is that of the end, when workers and agent have nothing left to do.
    coordinator.event("sardana::event::saved");
    coordinator.event("sardana::event::mirrored");
    let out = coordinator.ends_well();
    agent.ends_well();
    let hash = out.lines().find_map(|line| line.strip_prefix("state: ")).unwrap();
    let verified = site.done(&format!("verify {m}"));
    assert!(verified.contains(&format!("whole, state {hash}")), "{verified}");
    let in_own = sardana::checkpoints::Checkpoints::open(&here, &[]).unwrap().list();
    assert!(in_own.entries.is_empty(), "it was read where it is: {:?}", in_own.entries);
}
