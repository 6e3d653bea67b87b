//! An agent that heeds notices: its workers leave, the coordinator and every operator hear why, and they come back.

use std::time::Duration;

use sardana_actors::agent::notices::Service;
use sardana_actors::agent::{Agent, AgentConfig, AgentEvent};
use sardana_protocol::notices::Cloud;
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};

use super::cloud::{ACTION, FakeCloud, Kind};
use super::config;
use super::raw::{Site, Told, soon, start_agent};

struct Watching {
    agent: Agent,
    told: Told,
}

impl Watching {
    async fn start(site: &Site, cloud: &FakeCloud, script: &str, workers: u32) -> Self {
        let agent = AgentConfig {
            workers,
            ..site.agent("sh", &["-c", script])
        };
        let (mut agent, told) = start_agent(agent).await.unwrap();
        agent.watch(config(cloud, Service::Of(Cloud::Aws)));
        Self { agent, told }
    }

    /// The next event that is no word about notices.
    async fn next(&mut self) -> AgentEvent {
        loop {
            match self.told.next().await {
                AgentEvent::Notice(_) => {}
                event => return event,
            }
        }
    }

    async fn started(&mut self, workers: u32) {
        for _ in 0..workers {
            let event = self.next().await;
            assert!(matches!(event, AgentEvent::Started { .. }), "{event:?}");
        }
    }

    /// How so many workers end.
    async fn ended(&mut self, workers: u32) -> Vec<String> {
        let mut ends = Vec::new();
        for _ in 0..workers {
            match self.next().await {
                AgentEvent::Ended { how, .. } => ends.push(how),
                other => panic!("{other:?}"),
            }
        }
        ends
    }
}

async fn operator_hears(site: &Site, expected: &str) {
    let mut operator = site.operator().await;
    let hearing = async {
        loop {
            let answer = operator.ask(&OperatorRequest::Status).await.unwrap();
            let OperatorAnswer::Status(status) = answer else {
                panic!("expected a status, found {answer:?}");
            };
            if status.events.iter().any(|(_, words)| words.contains(expected)) {
                return;
            }
        }
    };
    soon(hearing).await;
}

#[tokio::test]
async fn workers_that_do_not_leave_in_time_are_ended_and_come_back_when_it_is_withdrawn() {
    let site = Site::new().await;
    let cloud = FakeCloud::start(Kind::Aws);
    let mut watching = Watching::start(&site, &cloud, "exec sleep 1000", 2).await;
    watching.started(2).await;
    // They know nothing of any boundary.
    cloud.interrupt("terminate", Duration::from_secs(3));
    assert_eq!(watching.ended(2).await, ["signal 9"; 2]);
    assert_eq!(watching.next().await, AgentEvent::Away);
    operator_hears(&site, "here leaves: AWS spot: terminate at ").await;
    cloud.set(|told| told.resources.remove(ACTION));
    let reason = "withdrawn or over: AWS spot: terminate".to_owned();
    assert_eq!(watching.next().await, AgentEvent::Back { left: 2, reason });
    watching.started(2).await;
    operator_hears(&site, "here stays: withdrawn or over: AWS spot: terminate").await;
}

#[tokio::test]
async fn a_notice_that_is_withdrawn_half_way_keeps_the_number_of_workers() {
    let site = Site::new().await;
    let cloud = FakeCloud::start(Kind::Aws);
    // The first two leave when they may; workers that come later stay.
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "cd {} && if mkdir one || mkdir two; then while ! [ -e leave ]; do sleep 0.01; done; else exec sleep 1000; fi 2>/dev/null",
        folder.path().display()
    );
    let mut watching = Watching::start(&site, &cloud, &script, 2).await;
    watching.started(2).await;
    while !folder.path().join("two").exists() {
        tokio::task::yield_now().await;
    }
    cloud.interrupt("terminate", Duration::from_secs(600));
    operator_hears(&site, "here leaves").await;
    cloud.set(|told| told.resources.remove(ACTION));
    assert!(matches!(watching.next().await, AgentEvent::Back { left: 2, .. }));
    // One worker comes at once, and may take over what the others hold.
    watching.started(1).await;
    std::fs::write(folder.path().join("leave"), []).unwrap();
    // The first that ends has its successor already, the second gets one.
    let ends = watching.ended(2).await;
    assert!(ends.iter().all(|how| how.starts_with("exit code 0")), "{ends:?}");
    watching.started(1).await;
    operator_hears(&site, "here stays").await;
}

#[tokio::test]
async fn an_agent_that_is_away_can_be_asked_to_end() {
    let site = Site::new().await;
    let cloud = FakeCloud::start(Kind::Aws);
    let mut watching = Watching::start(&site, &cloud, "exec sleep 1000", 1).await;
    watching.started(1).await;
    cloud.interrupt("stop", Duration::from_secs(3));
    watching.ended(1).await;
    assert_eq!(watching.next().await, AgentEvent::Away);
    soon(watching.agent.leave("SIGTERM")).await;
}

#[tokio::test]
async fn without_a_coordinator_the_workers_get_sigterm_and_the_agent_stays() {
    let site = Site::new().await;
    let cloud = FakeCloud::start(Kind::Aws);
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = format!("trap 'exit 0' TERM; mkdir {}; while :; do sleep 0.01; done", ready.display());
    let mut watching = Watching::start(&site, &cloud, &script, 1).await;
    watching.started(1).await;
    while !ready.exists() {
        tokio::task::yield_now().await;
    }
    drop(site);
    cloud.interrupt("stop", Duration::from_secs(600));
    assert_eq!(watching.ended(1).await, ["exit code 0"]);
    assert_eq!(watching.next().await, AgentEvent::Away);
}
