//! What the coordinator orders of an agent, and how an agent leaves.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sardana_actors::agent::limits::LEAVE_PATIENCE;
use sardana_actors::agent::{Agent, AgentConfig, AgentEvent, Output};
use sardana_actors::operator::Operator;
use sardana_protocol::status::{JobStatus, OperatorAnswer, OperatorRequest};
use tokio::time::Instant;

use super::log::Log;
use super::raw::{Site, Told, soon, start_agent, until};

pub(crate) async fn start(site: &Site, script: &str, workers: u32, output: Output) -> (Agent, Told) {
    let config = AgentConfig {
        output,
        workers,
        restarts: 1,
        ..site.agent("sh", &["-c", script])
    };
    start_agent(config).await.unwrap()
}

pub(crate) async fn status(operator: &mut Operator) -> JobStatus {
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
        pids.push(told.started().await.1);
    }
    let mut operator = site.operator().await;
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
        told.started().await;
    }
    drop(agent);
}

/// What workers find in their environment is in files of a folder, a line for each worker that has found it.
async fn found(folder: &Path, gpu: &str, workers: usize) -> Vec<String> {
    let lines = || fs::read_to_string(folder.join(gpu)).unwrap_or_default();
    until(|| lines().lines().count() == workers).await;
    lines().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn workers_that_share_gpus_since_a_scale_are_said_and_know_how_many_they_are() {
    let log = Log::new();
    let site = Site::new().await;
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "echo $SARDANA_DEVICE_WORKERS >> {}/$CUDA_VISIBLE_DEVICES; exec sleep 1000",
        folder.path().display()
    );
    let config = AgentConfig {
        workers: 2,
        berths: ["a", "b"]
            .map(|gpu| vec![("CUDA_VISIBLE_DEVICES".into(), gpu.into())])
            .to_vec(),
        ..site.agent("sh", &["-c", &script])
    };
    let (agent, mut told) = start_agent(config).await.unwrap();
    for gpu in ["a", "b"] {
        told.started().await;
        assert_eq!(found(folder.path(), gpu, 1).await, ["1"]);
    }
    log.nothing_more();
    let mut operator = site.operator().await;
    operator.ask(&OperatorRequest::Scale { workers: 5 }).await.unwrap();
    log.refused(&["there are fewer GPUs than workers now", "workers=5", "gpus=2"])
        .await;
    assert_eq!(found(folder.path(), "a", 3).await, ["1", "3", "3"]);
    assert_eq!(found(folder.path(), "b", 2).await, ["1", "2"]);
    drop((agent, told));
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
    soon(leaving).await.unwrap();
}

#[tokio::test]
async fn children_that_do_not_leave_in_time_are_ended() {
    let site = Site::new().await;
    let (agent, mut told) = start(&site, "exec sleep 1000", 1, Output::Inherit).await;
    told.started().await;
    let mut operator = site.operator().await;
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
    told.started().await;
    assert!(matches!(told.next().await, AgentEvent::Ended { .. }));
    assert_eq!(told.next().await, AgentEvent::Exhausted);
}

/// By the agent that sees it, and by the coordinator that is told.
#[tokio::test]
async fn a_worker_that_stands_still_or_goes_on_is_logged_in_words() {
    let log = Log::new();
    let site = Site::new().await;
    let (agent, mut told) = start(&site, "exec sleep 1000", 1, Output::Inherit).await;
    let (worker, pid) = told.started().await;
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    for (signal, motion) in [(Signal::STOP, "motion=stands still "), (Signal::CONT, "motion=runs ")] {
        kill_process(pid, signal).unwrap();
        for _whose in ["the agent's", "the coordinator's"] {
            log.says(&[motion, &format!("worker={worker} ")]).await;
        }
    }
    drop(agent);
}
