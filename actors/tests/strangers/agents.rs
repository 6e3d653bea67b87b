//! An agent and its children: started, seen to end, replaced or not, and never left behind.

use std::path::Path;
use std::process::Command;

use sardana_actors::agent::{Agent, AgentConfig, AgentEvent};
use sardana_net::trust::{Authority, Credentials, Role};
use sardana_protocol::membership::JobEvent;
use sardana_protocol::messages::Greeting;

use super::log::Log;
use super::raw::{JOB, Site, Told, hello, soon, start_agent, worker};

/// An agent of `site` that runs `program`, and what it tells.
async fn start(site: &Site, program: &str, arguments: &[&str], workers: u32, restarts: u32) -> (Agent, Told) {
    let config = AgentConfig {
        workers,
        restarts,
        ..site.agent(program, arguments)
    };
    start_agent(config).await.unwrap()
}

/// How many were started and how each ended, until none is left.
async fn until_exhausted(told: &mut Told) -> (usize, Vec<String>) {
    let (mut started, mut ends) = (0, Vec::new());
    loop {
        match told.next().await {
            AgentEvent::Started { .. } => started += 1,
            AgentEvent::Ended { how, .. } | AgentEvent::NotStarted { reason: how } => ends.push(how),
            AgentEvent::Exhausted => return (started, ends),
            _other => {}
        }
    }
}

/// Kills each that is started, until none is left.
async fn killed_until_exhausted(told: &mut Told) {
    loop {
        match told.next().await {
            AgentEvent::Started { pid, .. } => kill(pid),
            AgentEvent::Exhausted => return,
            _other => {}
        }
    }
}

fn kill(pid: u32) {
    assert!(
        Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

/// Whether a process runs: it is there, and no zombie.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

async fn gone(pid: u32) {
    let waiting = async {
        while runs(pid) {
            tokio::task::yield_now().await;
        }
    };
    soon(waiting).await;
}

#[tokio::test]
async fn a_killed_child_is_replaced_and_dropping_the_agent_ends_the_last() {
    let site = Site::new().await;
    let (agent, mut told) = start(&site, "sleep", &["1000"], 1, 1).await;
    let (worker, pid) = told.started().await;
    assert_eq!(agent.pid(worker), Some(pid));
    assert!(runs(pid));
    kill(pid);
    let AgentEvent::Ended { how, .. } = told.next().await else {
        panic!("its end is seen");
    };
    assert_eq!(how, "signal 9");
    assert_eq!(agent.pid(worker), None);
    let (next, pid) = told.started().await;
    assert_ne!(worker, next, "an id is new with every incarnation");
    drop(agent);
    gone(pid).await;
}

#[tokio::test]
async fn exit_codes_decide_who_is_replaced() {
    let site = Site::new().await;
    let cases = [
        ("exit 0", 2, "exit code 0 before it computed anything"),
        ("exit 3", 2, "exit code 3, it would fail again in the same way"),
        ("exit 1", 4, "exit code 1"),
        ("kill -9 $$", 4, "signal 9"),
    ];
    for (script, expected, words) in cases {
        let (_agent, mut told) = start(&site, "sh", &["-c", script], 2, 2).await;
        let (started, ends) = until_exhausted(&mut told).await;
        assert_eq!(started, expected, "{script}");
        assert!(ends.iter().all(|how| how == words), "{script}: {ends:?}");
    }
}

#[tokio::test]
async fn one_that_gives_up_among_others_is_told_of() {
    let site = Site::new().await;
    let folder = tempfile::tempdir().unwrap();
    // The first to make the folder gives up, the others stay.
    let script = format!("mkdir {}/one 2>/dev/null && exit 3; exec sleep 1000", folder.path().display());
    let (_agent, mut told) = start(&site, "sh", &["-c", &script], 3, 9).await;
    let short = loop {
        match told.next().await {
            AgentEvent::Short { left } => break left,
            AgentEvent::Started { .. } | AgentEvent::Ended { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(short, 2);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_not_tried_again() {
    let site = Site::new().await;
    for program in ["/no/such/program", "/proc/version"] {
        let (_agent, mut told) = start(&site, program, &[], 2, 1_000).await;
        let (started, ends) = until_exhausted(&mut told).await;
        assert_eq!((started, ends.len()), (0, 2));
        assert!(ends[0].contains(program) && ends[0].contains("give the path"), "{ends:?}");
    }
}

#[tokio::test]
async fn the_end_of_the_job_ends_the_replacing() {
    let mut site = Site::new().await;
    let (_agent, mut told) = start(&site, "sleep", &["1000"], 1, 100_000).await;
    site.coordinator.steering().request_stop();
    assert!(matches!(site.event().await, JobEvent::Failed { .. }));
    // However soon they end before the news has come, it comes.
    killed_until_exhausted(&mut told).await;
}

#[tokio::test]
async fn an_agent_that_comes_after_the_job_is_told_so() {
    let mut site = Site::new().await;
    site.coordinator.steering().request_stop();
    assert!(matches!(site.event().await, JobEvent::Failed { .. }));
    let mut late = site.dial(Role::Worker, 1).await;
    assert_eq!(late.greeted(&worker(hello(1))).await, Greeting::Over);
    let (_agent, mut told) = start(&site, "sleep", &["1000"], 1, 100_000).await;
    killed_until_exhausted(&mut told).await;
}

#[tokio::test]
async fn an_agent_with_credentials_of_another_role_or_job_does_not_start() {
    let log = Log::new();
    let site = Site::new().await;
    let config = |credentials: Credentials| AgentConfig {
        credentials: credentials.into(),
        ..site.agent("true", &[])
    };
    let worker = site.authority.issue(Role::Worker, 1).unwrap();
    let error = start_agent(config(worker)).await.unwrap_err().to_string();
    assert!(error.contains("credentials of its own role"), "{error}");
    log.refused(&["a hello under a false name", "peer=worker w0000000000000001"])
        .await;
    let stranger = Authority::new(JOB).unwrap().issue(Role::Agent, 1).unwrap();
    let error = start_agent(config(stranger)).await.unwrap_err().to_string();
    assert!(error.contains("another job"), "{error}");
    log.refused(&["a connection was refused", "another job"]).await;
    log.nothing_more();
}
