//! A job of several processes, whose checkpoints are on another host than its coordinator's: here, in another depot.

use std::fs;

use sardana_actors::depot::{DEPOT_FILE, identity};

use super::objects::url;
use super::running::Site as Hosts;
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
    choose_depots(&site, "agents", "coordinators");
    let (here, there, m) = (site.path("coordinators"), site.path("agents"), url(&site, "m"));
    let flags = format!("--checkpoint-every 1000000 --checkpoint-dir {} --mirror {m}", here.display());
    let (coordinator, _) = hosts.coordinator("state", "127.0.0.1:0", &format!("-n 2 {flags}"));
    hosts.invite("state", "agent", "agent.join");
    let agent = "agent --notices none -n 2 --join agent.join";
    let agent = hosts.start_workers(&format!("{agent} --checkpoint-dir {}", there.display()));
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
    site.says("verify @m", &[&format!("whole, state {hash}")]);
    let in_own = sardana::checkpoints::Checkpoints::open(&here, &[]).unwrap().list();
    assert!(in_own.entries.is_empty(), "it was read where it is: {:?}", in_own.entries);
}
