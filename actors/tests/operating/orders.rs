//! What the coordinator orders of an agent, and how an agent leaves.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sardana_actors::agent::limits::LEAVE_PATIENCE;
use sardana_actors::agent::{self, Agent, AgentConfig, AgentEvent, Output};
use sardana_actors::operator::Operator;
use sardana_net::trust::Role;
use sardana_protocol::status::{JobStatus, OperatorAnswer, OperatorRequest};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::log::Log;
use super::raw::{LOOPBACK, PATIENCE, Site};

pub(crate) async fn start(site: &Site, script: &str, workers: u32, output: Output) -> (Agent, Told) {
    let config = AgentConfig {
        credentials: site.authority.issue(Role::Agent, 1).unwrap().into(),
        coordinator: site.coordinator.address().into(),
        listen: LOOPBACK,
        advertise: None,
        host: "here".to_owned(),
        output,
        program: PathBuf::from("sh"),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![],
        checkpoint_dir: None,
        workers,
        restarts: 1,
    };
    let (agent, events) = agent::start(config).await.unwrap();
    (agent, Told(events))
}

pub(crate) struct Told(mpsc::UnboundedReceiver<AgentEvent>);

impl Told {
    pub(crate) async fn next(&mut self) -> AgentEvent {
        let event = timeout(PATIENCE, self.0.recv()).await;
        event.expect("something happens in time").expect("the agent lives")
    }

    /// How the next child ends.
    pub(crate) async fn end(&mut self) -> String {
        loop {
            if let AgentEvent::Ended { how, .. } = self.next().await {
                return how;
            }
        }
    }
}

pub(crate) async fn operator(site: &Site) -> Operator {
    let credentials = site.authority.issue(Role::Operator, 1).unwrap();
    Operator::connect(&credentials, site.coordinator.address()).await.unwrap()
}

async fn status(operator: &mut Operator) -> JobStatus {
    match operator.ask(&OperatorRequest::Status).await.unwrap() {
        OperatorAnswer::Status(status) => *status,
        other => panic!("expected a status, found {other:?}"),
    }
}

#[tokio::test]
async fn an_operator_starts_more_than_at_first() {
    let site = Site::new().await;
    let (agent, mut told) = start(&site, "exec sleep 1000", 2, Output::Inherit).await;
    let mut pids = Vec::new();
    for _ in 0..2 {
        let AgentEvent::Started { pid, .. } = told.next().await else {
            panic!("a child is started");
        };
        pids.push(pid);
    }
    let mut operator = operator(&site).await;
    let children = loop {
        let status = status(&mut operator).await;
        if let Some(agent) = status.agents.first().filter(|agent| agent.children.len() == 2) {
            assert_eq!(agent.host, "here");
            break agent.children.clone();
        }
    };
    let mut told_pids: Vec<u32> = children.iter().filter_map(|(_, pid)| *pid).collect();
    told_pids.sort_unstable();
    pids.sort_unstable();
    assert_eq!(told_pids, pids);
    let answer = operator.ask(&OperatorRequest::Scale { workers: 5 }).await.unwrap();
    assert!(
        matches!(&answer, OperatorAnswer::Done { what } if what.contains("3 on here")),
        "{answer:?}"
    );
    assert_eq!(told.next().await, AgentEvent::Grown { left: 5 });
    for _ in 0..3 {
        assert!(matches!(told.next().await, AgentEvent::Started { .. }));
    }
    drop(agent);
}

#[tokio::test]
async fn an_agent_whose_coordinator_is_gone_asks_its_children_itself() {
    let site = Site::new().await;
    // It says when it is ready for the signal, by making a folder.
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = format!("trap 'exit 0' TERM; mkdir {}; while :; do sleep 0.01; done", ready.display());
    let (agent, mut told) = start(&site, &script, 1, Output::Inherit).await;
    while !ready.exists() {
        tokio::task::yield_now().await;
    }
    drop(site);
    let leaving = tokio::spawn(async move { agent.leave("a test").await });
    assert_eq!(told.end().await, "exit code 0");
    timeout(PATIENCE, leaving)
        .await
        .expect("it ends with its last child")
        .unwrap();
}

#[tokio::test]
async fn children_that_do_not_leave_in_time_are_ended() {
    let site = Site::new().await;
    let (agent, mut told) = start(&site, "exec sleep 1000", 1, Output::Inherit).await;
    assert!(matches!(told.next().await, AgentEvent::Started { .. }));
    let mut operator = operator(&site).await;
    let leaving = tokio::spawn(async move { agent.leave("a test").await });
    let told_so = |status: &JobStatus| status.events.iter().any(|(_, words)| words.contains("here leaves: a test"));
    while !told_so(&status(&mut operator).await) {}
    let asked = Instant::now();
    // From here on time passes as soon as nothing else happens.
    tokio::time::pause();
    leaving.await.unwrap();
    assert!(asked.elapsed() >= LEAVE_PATIENCE - Duration::from_secs(5));
}

#[tokio::test]
async fn a_child_that_ended_well_is_not_replaced() {
    let site = Site::new().await;
    let (_agent, mut told) = start(&site, "exit 0", 1, Output::Inherit).await;
    assert!(matches!(told.next().await, AgentEvent::Started { .. }));
    assert!(matches!(told.next().await, AgentEvent::Ended { .. }));
    assert_eq!(told.next().await, AgentEvent::Exhausted);
}

/// By the agent that sees it, and by the coordinator that is told.
#[tokio::test]
async fn a_worker_that_stands_still_or_goes_on_is_logged_in_words() {
    let log = Log::new();
    let site = Site::new().await;
    let (agent, mut told) = start(&site, "exec sleep 1000", 1, Output::Inherit).await;
    let AgentEvent::Started { worker, pid } = told.next().await else {
        panic!("a child is started");
    };
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    for (signal, motion) in [(Signal::STOP, "motion=stands still "), (Signal::CONT, "motion=runs ")] {
        kill_process(pid, signal).unwrap();
        for _whose in ["the agent's", "the coordinator's"] {
            log.says(&[motion, &format!("worker={worker} ")]).await;
        }
    }
    drop(agent);
}
