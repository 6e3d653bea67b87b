//! Announced leaves, as a person meets them.

use std::time::Duration;

use super::cloud::{FakeCloud, Kind};
use super::program::{Running, as_worker, output, words};
use super::site::{Site, text};

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
    let (coordinator, _) = site.coordinator("state", "127.0.0.1:0", &[]);
    let join = site.invite("state", "agent", "2", "agent.join");
    let agent = |more: &[&str]| {
        let mut command = site.command(&["agent", "--log-format", "json", "--join", text(&join), "-n", "1"]);
        Running::start(as_worker(command.args(more).arg("--")).env("RUST_LOG", "info"))
    };
    let stays = agent(&["--notices", "none"]);
    coordinator.event("sardana::event::formed");
    let goes = agent(&["--notices", "auto", "--metadata", &cloud.url()]);
    assert_eq!(noticed(&goes), "notices of AWS are watched for");
    coordinator.event("sardana::event::switched");
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
    let mut command = site.command(&["run", "--log-format", "json", "-n", "2", "--restarts", "0"]);
    command.args(["--notices", "gce", "--metadata", &cloud.url(), "--"]);
    let running = Running::start(as_worker(&mut command).env("RUST_LOG", "info"));
    let [watched, _] = running.events([NOTICE, "sardana::event::formed"]);
    assert_eq!(watched["message"], "notices of GCE are watched for");
    cloud.value(super::cloud::PREEMPTED, "TRUE");
    assert_eq!(noticed(&running), "GCE: preempted, about 30 s left: the workers leave");
    assert_eq!(noticed(&running), "the job ends at the next boundary");
    let out = running.ends_well();
    assert!(out.contains("steps: ") && out.contains("state: "), "{out}");
}

#[test]
fn what_is_no_address_of_a_metadata_service_is_refused() {
    for wrong in ["https://127.0.0.1", "127.0.0.1:80", "http://127.0.0.1/latest"] {
        let output = output(&["run", "-n", "1", "--notices", "aws", "--metadata", wrong, "--", "true"]);
        let words = words(&output);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains("expected http://HOST or http://HOST:PORT"), "{words}");
    }
}

#[test]
fn a_coordinator_that_is_restarted_hears_of_the_leave_again() {
    let site = Site::new();
    let cloud = FakeCloud::start(Kind::Aws);
    let (first, address) = site.coordinator("state", "127.0.0.1:0", &[]);
    let join = site.invite("state", "agent", "1", "agent.join");
    let mut command = site.command(&["agent", "--log-format", "json", "--join", text(&join), "-n", "1"]);
    command.args(["--notices", "aws", "--metadata", &cloud.url(), "--", "sleep", "1000"]);
    let agent = Running::start(command.env("RUST_LOG", "info"));
    agent.pids(1);
    cloud.interrupt("stop", Duration::from_secs(3));
    agent.event("sardana::event::away");
    first.signal("KILL");
    first.end();
    let (second, _) = site.coordinator("state", &address, &[]);
    let told = second.event("sardana::event::agent_leaves");
    assert!(told["reason"].as_str().unwrap().starts_with("AWS spot: stop at "), "{told}");
    agent.stopped();
    second.signal("KILL");
    second.end();
}
