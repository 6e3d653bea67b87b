//! A machine's cloud announces that it takes it away, in the middle of a job: the others go on, to the bits of an undisturbed run.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sardana::hosts::{AgentHost, CoordinateConfig, Hosting, Role, coordinate};
use sardana::notices::{Cloud, Heeded, NoticesConfig, Pace, Service};
use sardana::{AgentEvent, GenerationEvent, JobEvent, JobSpec, Step, Summary, WorkerEvent, WorkerId, reference};
use tempfile::TempDir;
use tokio::time::timeout;

use super::cloud::{ACTION, FakeCloud, Kind};
use super::{PATIENCE, config, host, invited, worker};

/// Hosts, of which one may go.
struct Fleet {
    hosting: Hosting,
    stays: Option<AgentHost>,
    goes: AgentHost,
    /// The workers that train.
    members: Vec<WorkerId>,
    /// All that happened to the job.
    told: Vec<JobEvent>,
    _place: TempDir,
}

async fn training_host(join: &Path, workers: u32) -> AgentHost {
    let arguments = ["--exact", "worker::becomes_a_worker", "--nocapture"];
    host(join, workers, std::env::current_exe().unwrap(), &arguments).await
}

impl Fleet {
    /// So many workers on each host, and a few steps behind them. The host that may go heeds the notices of `cloud`.
    async fn training(cloud: &FakeCloud, stays: u32, goes: u32) -> Self {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let hosting = coordinate(CoordinateConfig {
            min: 1,
            ..config(&state, stays + goes)
        });
        let hosting = hosting.await.unwrap();
        let join = invited(&state, Role::Agent, 2);
        let workers = (stays + goes) as usize;
        let stays = match stays {
            0 => None,
            some => Some(training_host(&join, some).await),
        };
        let mut goes = training_host(&join, goes).await;
        goes.watch(NoticesConfig {
            service: Service::Of(Cloud::Aws),
            metadata: cloud.url().parse().unwrap(),
            heeded: Heeded::Leaves,
            pace: Some(Pace {
                look_every: Duration::from_millis(10),
                withdrawn_after: Duration::from_millis(50),
                ..Pace::of(Cloud::Aws)
            }),
        });
        let mut fleet = Self {
            hosting,
            stays,
            goes,
            members: Vec::new(),
            told: Vec::new(),
            _place: place,
        };
        fleet.whole(workers).await;
        fleet
    }

    async fn until(&mut self, enough: impl Fn(&Self, &JobEvent) -> bool) {
        let happening = async {
            loop {
                let event = self.hosting.next_event().await.expect("the coordinator lives");
                if let JobEvent::Generation(
                    GenerationEvent::Forming { members, .. } | GenerationEvent::Switched { members, .. },
                ) = &event
                {
                    self.members.clone_from(members);
                }
                self.told.push(event);
                if enough(self, &self.told[self.told.len() - 1]) {
                    return;
                }
            }
        };
        timeout(PATIENCE, happening).await.expect("it happens in time");
    }

    /// Waits until this has happened so often.
    async fn times(&mut self, times: u32, is_it: impl Fn(&JobEvent) -> bool) {
        for _ in 0..times {
            self.until(|_, event| is_it(event)).await;
        }
    }

    /// Waits until `workers` train, and have made steps.
    async fn whole(&mut self, workers: usize) {
        self.until(|fleet, _| fleet.members.len() == workers).await;
        self.times(3, |event| matches!(event, JobEvent::Steps(_))).await;
    }

    /// Waits until the others train alone.
    async fn whole_without(&mut self, gone: &BTreeSet<WorkerId>) {
        assert_eq!(self.members.len(), 2);
        assert!(self.members.iter().all(|member| !gone.contains(member)));
        self.times(3, |event| matches!(event, JobEvent::Steps(_))).await;
    }

    /// What happens on the host that may go, up to what `enough` wants.
    async fn goes(&mut self, enough: impl Fn(&[AgentEvent]) -> bool) -> Vec<AgentEvent> {
        let mut seen = Vec::new();
        while !enough(&seen) {
            let event = timeout(PATIENCE, self.goes.next_event()).await.expect("it happens in time");
            seen.push(event.expect("the agent lives"));
        }
        seen
    }

    /// The notice comes, and the workers leave: which ones.
    async fn leave(&mut self, cloud: &FakeCloud) -> BTreeSet<WorkerId> {
        cloud.interrupt("terminate", Duration::from_secs(118));
        let left = |event: &JobEvent| matches!(event, JobEvent::Worker(WorkerEvent::Left { .. }));
        self.times(2, left).await;
        let seen = self.goes(|seen| seen.last() == Some(&AgentEvent::Away)).await;
        let ended = |event: &AgentEvent| match event {
            AgentEvent::Ended { worker, how } => {
                assert_eq!(how, "exit code 0");
                Some(*worker)
            }
            _other => None,
        };
        let ended: BTreeSet<WorkerId> = seen.iter().filter_map(ended).collect();
        assert_eq!(ended.len(), 2);
        ended
    }

    /// Ends the job, and compares it with one that nothing happened to.
    async fn end(self) -> Vec<JobEvent> {
        self.hosting.steering().request_stop();
        let mut told = self.told;
        let finishing = self.hosting.finish(|_, event| told.push(event.clone()));
        let summary = timeout(PATIENCE, finishing).await.expect("it ends in time").unwrap();
        undisturbed(&summary, &told);
        assert!(
            !told
                .iter()
                .any(|event| matches!(event, JobEvent::Worker(WorkerEvent::Lost { .. }) | JobEvent::StateLost { .. })),
            "no worker was missed: {told:?}"
        );
        drop((self.stays, self.goes));
        told
    }
}

/// The bits are those of a plain loop, and no gradient was computed twice.
fn undisturbed(summary: &Summary, told: &[JobEvent]) {
    let job = worker::job();
    let shorter = JobSpec {
        steps: summary.step,
        ..job.spec().clone()
    };
    let mut model = worker::build(&shorter).unwrap();
    assert_eq!(reference::train(&shorter, &mut model).unwrap().hash, summary.hash);
    let shards = u64::from(shorter.shards);
    let counts = (summary.computed, summary.recomputed, summary.unknown);
    let beside_steps: Vec<_> = told.iter().filter(|event| !matches!(event, JobEvent::Steps(_))).collect();
    assert_eq!(counts, (shards * summary.step.get(), 0, 0), "{beside_steps:#?}");
    assert!(summary.step > Step::new(0));
}

#[tokio::test]
async fn a_host_that_is_taken_away_is_left_in_time_and_the_others_go_on() {
    let cloud = FakeCloud::start(Kind::Aws);
    let mut fleet = Fleet::training(&cloud, 2, 2).await;
    let gone = fleet.leave(&cloud).await;
    fleet.whole_without(&gone).await;
    let told = fleet.end().await;
    let reasons = told.iter().filter_map(|event| match event {
        JobEvent::Worker(WorkerEvent::Leaving { worker, reason }) => Some((*worker, reason)),
        _other => None,
    });
    let reasons: Vec<_> = reasons.collect();
    assert_eq!(reasons.iter().map(|(worker, _)| *worker).collect::<BTreeSet<_>>(), gone);
    for (_, reason) in reasons {
        assert!(
            reason.contains("leaves: AWS spot: terminate at ") && reason.ends_with("s left"),
            "{reason}"
        );
    }
    assert!(
        !told
            .iter()
            .skip_while(|event| !matches!(event, JobEvent::Worker(WorkerEvent::Leaving { .. })))
            .any(|event| matches!(event, JobEvent::Generation(GenerationEvent::Halting { .. }))),
        "no worker halts"
    );
}

#[tokio::test]
async fn a_host_that_stays_after_all_brings_its_workers_back() {
    let cloud = FakeCloud::start(Kind::Aws);
    let mut fleet = Fleet::training(&cloud, 2, 2).await;
    let gone = fleet.leave(&cloud).await;
    cloud.set(|told| told.resources.remove(ACTION));
    let started = |seen: &[AgentEvent]| {
        seen.iter()
            .filter(|event| matches!(event, AgentEvent::Started { .. }))
            .count()
    };
    let seen = fleet.goes(|seen| started(seen) == 2).await;
    let back = |event: &AgentEvent| matches!(event, AgentEvent::Back { left: 2, reason } if reason == "withdrawn or over: AWS spot: terminate");
    assert!(seen.iter().any(back), "{seen:?}");
    fleet.whole(4).await;
    assert!(fleet.members.iter().all(|member| !gone.contains(member)), "they are new");
    fleet.end().await;
}

/// All workers there are leave, and come back before they have left.
async fn only_host(workers: u32) {
    let cloud = FakeCloud::start(Kind::Aws);
    let mut fleet = Fleet::training(&cloud, 0, workers).await;
    let old = fleet.members.clone();
    cloud.interrupt("terminate", Duration::from_secs(118));
    let leaving = |event: &JobEvent| matches!(event, JobEvent::Worker(WorkerEvent::Leaving { .. }));
    fleet.times(workers, leaving).await;
    // The last of them waits for a worker that takes over the state.
    cloud.set(|told| told.resources.remove(ACTION));
    let whole = |fleet: &Fleet| fleet.members.len() == old.len() && !fleet.members.iter().any(|member| old.contains(member));
    fleet.until(|fleet, _| whole(fleet)).await;
    fleet.times(3, |event| matches!(event, JobEvent::Steps(_))).await;
    fleet.end().await;
}

#[tokio::test]
async fn the_only_host_keeps_the_state_when_it_stays_after_all() {
    for workers in [1, 2, 3] {
        only_host(workers).await;
    }
}
