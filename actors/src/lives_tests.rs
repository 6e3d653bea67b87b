//! A coordinator and an agent through hundreds of lives of workers: of those that have ended nothing stays but what is bounded. The
//! processes are real and do nothing; what workers say is said by hand.

use rustix::process::{Pid, Signal, kill_process};
use sardana_protocol::membership::{JobEvent, WorkerEvent};
use sardana_protocol::status::{OperatorAnswer, OperatorRequest};
use sardana_protocol::words::WorkerId;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::agent::{Agent, AgentConfig, AgentEvent, Colour, LogBounds, Output};
use crate::operator::limits::KEPT_EVENTS;
use crate::testing::raw::{PATIENCE, Site, Told, start_agent};

/// As many as the site's coordinator trains with at least.
const WORKERS: u32 = 2;

/// Each of them has [`WORKERS`] lives.
const ROUNDS: usize = 120;

/// After so many rounds what is kept of the last events is full, and so are the logs.
const FIRST: usize = KEPT_EVENTS;

/// Bytes of text by which either may grow, since numbers get longer. An entry for each life would be far more.
const MORE: usize = 500;

struct Lives {
    site: Site,
    agent: Agent,
    told: Told,
}

/// What there is when no worker is.
#[derive(Debug)]
struct Held {
    coordinator: String,
    agent: String,
    tasks: usize,
}

impl Lives {
    async fn begin(logs: &std::path::Path) -> Self {
        let site = Site::new().await;
        let config = AgentConfig {
            output: Output::Prefixed {
                log_dir: Some(logs.to_owned()),
                bounds: LogBounds::new(1, 3),
                colour: Colour::Off,
            },
            workers: 0,
            ..site.agent("sleep", &["1000"])
        };
        let (agent, told) = start_agent(config).await.unwrap();
        Self { site, agent, told }
    }

    /// Workers are started, join, and are killed.
    async fn round(&mut self) {
        let steering = self.site.coordinator.steering();
        let answer = steering.ask(OperatorRequest::Scale { workers: WORKERS }).await.unwrap();
        assert!(
            matches!(&answer, OperatorAnswer::Done { what } if what.contains("2 more are started")),
            "{answer:?}"
        );
        let mut living = Vec::new();
        while living.len() < WORKERS as usize {
            if let AgentEvent::Started { worker, pid } = self.told.next().await {
                living.push((worker, pid, self.site.join(worker.get()).await));
            }
        }
        for (worker, pid, wire) in living {
            kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
            assert!(wire.closed().await.contains("its process has ended"));
            self.is_gone(worker).await;
        }
    }

    async fn is_gone(&mut self, gone: WorkerId) {
        while !matches!(self.site.event().await, JobEvent::Worker(WorkerEvent::Lost { worker, .. }) if worker == gone) {}
        while !matches!(self.told.next().await, AgentEvent::Ended { worker, .. } if worker == gone) {}
    }

    /// What is held once there are no more tasks than `most`: those of connections end a moment after them.
    async fn held(&self, most: usize) -> Held {
        let count = || Handle::current().metrics().num_alive_tasks();
        let ended = async {
            while count() > most {
                tokio::task::yield_now().await;
            }
        };
        // The caller sees how many there are.
        let _ = timeout(PATIENCE, ended).await;
        Held {
            coordinator: self.site.coordinator.shown().await,
            agent: self.agent.shown().await,
            tasks: count(),
        }
    }
}

#[tokio::test]
async fn nothing_stays_of_hundreds_of_workers_that_have_ended() {
    let logs = tempfile::tempdir().unwrap();
    let mut lives = Lives::begin(logs.path()).await;
    let tasks = lives.held(usize::MAX).await.tasks;
    for _ in 0..FIRST {
        lives.round().await;
    }
    let first = lives.held(tasks).await;
    for _ in 0..ROUNDS {
        lives.round().await;
    }
    let last = lives.held(tasks).await;
    let sizes = |held: &Held| (held.coordinator.len(), held.agent.len(), held.tasks);
    println!(
        "bytes of text of coordinator and agent, and tasks: {:?}, then {:?}",
        sizes(&first),
        sizes(&last)
    );
    for (first, last) in [(&first.coordinator, &last.coordinator), (&first.agent, &last.agent)] {
        assert!(last.len() < first.len() + MORE, "what was\n{first}\nhas become\n{last}");
    }
    assert!(last.tasks <= tasks, "tasks stay: {} instead of {tasks}", last.tasks);
    let files = std::fs::read_dir(logs.path()).unwrap().count();
    assert!(files <= 3 + WORKERS as usize, "{files} logs");
    lives.agent.end().await;
    lives.site.coordinator.end().await;
}
