//! Announced leaves, as a person meets them.

use std::time::Duration;

use super::cloud::{FakeCloud, Kind};
use super::program::{Running, has, said, sardana};
use super::site::Site;

const TWO_MINUTES: Duration = Duration::from_secs(118);

const NOTICE: &str = "sardana::event::notice";

/// What is said of notices next.
fn noticed(running: &Running) -> String {
    let fields = running.event(NOTICE);
    fields["message"].as_str().unwrap().to_owned()
}

#[test]
fn an_agent_says_which_notice_came_and_so_does_the_coordinator() {
    let site = Site::new();
    let cloud = FakeCloud::start(Kind::Aws);
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", "");
    let agent = |join: &str, notices: &str| {
        site.invite("state", "agent", join);
        site.start_workers(&format!("agent --join {join} -n 1 --notices {notices}"))
    };
    let stays = agent("one.join", "none");
    coordinator.event("sardana::event::formed");
    let goes = agent("two.join", &format!("auto --metadata {}", cloud.url()));
    assert_eq!(noticed(&goes), "notices of AWS are watched for");
    // It is joined to the ring, or, on a busy machine where it does not catch up, a new one is formed.
    coordinator.any_event(&["sardana::event::switched", "sardana::event::formed"]);
    cloud.interrupt("terminate", TWO_MINUTES);
    let said = noticed(&goes);
    assert!(
        said.starts_with("AWS spot: terminate at ") && said.ends_with("s left: the workers leave"),
        "{said}"
    );
    let told = coordinator.event("sardana::event::agent_leaves");
    let reason = told["reason"].as_str().unwrap();
    assert!(said.starts_with(reason), "{reason}");
    goes.event("sardana::event::away");
    // The machine ends.
    goes.stopped();
    coordinator.signal("TERM");
    for running in [coordinator, stays] {
        running.ends_well();
    }
}

#[test]
fn a_job_on_one_machine_ends_at_a_boundary() {
    let site = Site::new();
    let cloud = FakeCloud::start(Kind::Gce);
    let running = site.run(&format!("-n 2 --restarts 0 --notices gce --metadata {}", cloud.url()));
    let [watched, _] = running.events([NOTICE, "sardana::event::formed"]);
    assert_eq!(watched["message"], "notices of GCE are watched for");
    cloud.value(super::cloud::PREEMPTED, "TRUE");
    assert_eq!(noticed(&running), "GCE: preempted, about 30 s left: the workers leave");
    assert_eq!(noticed(&running), "the job ends at the next boundary");
    has(&running.ends_well(), &["steps: ", "state: "]);
}

#[test]
fn what_is_no_address_of_a_metadata_service_is_refused() {
    for wrong in ["https://127.0.0.1", "127.0.0.1:80", "http://127.0.0.1/latest"] {
        let line = format!("run -n 1 --notices aws --metadata {wrong} -- true");
        let [_, words] = said(&mut sardana(&line), 2);
        has(&words, &["expected http://HOST or http://HOST:PORT"]);
    }
}

#[test]
fn a_coordinator_that_is_restarted_hears_of_the_leave_again() {
    let site = Site::new();
    let cloud = FakeCloud::start(Kind::Aws);
    let (first, address) = site.coordinator("state", "127.0.0.1:0", "");
    site.invite("state", "agent", "agent.join");
    let agent = "agent --log-format json --join agent.join -n 1 --notices aws";
    let agent = format!("{agent} --metadata {} -- sleep 1000", cloud.url());
    let agent = Running::start(&mut site.command(&agent));
    agent.pids(1);
    cloud.interrupt("stop", Duration::from_secs(3));
    agent.event("sardana::event::away");
    first.killed();
    let (second, _) = site.coordinator("state", &address, "");
    let told = second.event("sardana::event::agent_leaves");
    assert!(told["reason"].as_str().unwrap().starts_with("AWS spot: stop at "), "{told}");
    agent.stopped();
    second.killed();
}
