//! The same over real control connections: a real coordinator, and workers that are connections with their own machines behind them, all in
//! this process and on one host. The connections of checkpoint actors keep manifests only.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quinn::{Connection, Endpoint};
use rustix::time::{ClockId, clock_gettime};
use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, Past, Succession};
use sardana_net::enrol::Registrar;
use sardana_net::trust::{Authority, Role};
use sardana_protocol::membership::{Balance, JobEvent, Saves, WorkerEvent};
use sardana_protocol::messages::{DepotMessage, Trailer};
use sardana_protocol::words::{Generation, Step};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::crowd::{Heard, Result};
use super::job::{JOB, depot_ids, kept_heads, worker_id};
use super::phases::{KEPT, Phase, saves};
use super::remote::{LIFE, Remote, Traffic, depot_comes, join, locked, says};

/// Handshakes under way at once: few, since both ends' arithmetic is done here.
const AT_ONCE: usize = 4;

/// Between two boundaries.
const STEP: Duration = Duration::from_millis(50);

/// Nothing takes so long.
const LIMIT: Duration = Duration::from_secs(300);

/// What a phase has cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// From the first hello until all is done; a checkpoint from the moment in which all train.
    pub(crate) took: Duration,
    /// Processor time of both ends, handshakes among it.
    pub(crate) processor: Duration,
    /// Messages in both directions; heartbeats are not counted.
    pub(crate) messages: u64,
    /// Their payloads.
    pub(crate) bytes: u64,
}

/// All of them, and the ring that they make.
#[derive(Default)]
struct Site {
    remotes: BTreeMap<u32, Arc<Remote>>,
    closing: Arc<Mutex<Option<Trailer>>>,
    closed: BTreeMap<Step, Trailer>,
    traffic: Arc<Traffic>,
    heard: Heard,
    /// Workers that end on purpose.
    gone: usize,
    /// Connections of checkpoint actors, until the end.
    depots: Vec<(Connection, Endpoint)>,
}

impl Site {
    /// These workers connect and say hello.
    async fn come(
        &mut self,
        authority: &Authority,
        coordinator: SocketAddr,
        shards: u32,
        numbers: std::ops::Range<u32>,
    ) -> Result<()> {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let mut joining = JoinSet::new();
        for number in numbers {
            let credentials = authority.issue(Role::Worker, worker_id(number).get())?;
            let (room, traffic, closing) = (Arc::clone(&room), Arc::clone(&self.traffic), Arc::clone(&self.closing));
            joining.spawn(async move {
                let _room = room.acquire_owned().await?;
                let remote = join(number, shards, credentials, coordinator, traffic, closing).await?;
                Result::Ok((number, remote))
            });
        }
        for joined in joining.join_all().await {
            let (number, remote) = joined?;
            self.remotes.insert(number, remote);
        }
        Ok(())
    }

    /// The ring closes a sum, if it is whole, and the workers that follow get what there is.
    fn step(&mut self) {
        let at = |remote: &Remote| -> Option<(Generation, u32, Step)> {
            let worker = locked(&remote.worker);
            let introduction = worker.member.introduction();
            let seat = introduction.seat?;
            Some((introduction.generation, seat.world_size, worker.member.step()))
        };
        let seats: Vec<_> = self.remotes.values().map(|remote| (at(remote), Arc::clone(remote))).collect();
        let newest = seats.iter().filter_map(|(seat, _)| *seat).max();
        if let Some((generation, world_size, step)) = newest {
            let ring = seats.iter().filter(|(seat, _)| *seat == newest);
            if ring.clone().count() == world_size as usize {
                let trailer = locked(&self.closing).take().unwrap_or(Trailer::Continue);
                self.closed.insert(step, trailer);
                for (_, remote) in ring {
                    let said = locked(&remote.worker).summed(generation, step, trailer);
                    says(said, &remote.queue, &self.closing, &self.traffic);
                }
            }
        }
        let keeper_at = self.closed.keys().next_back().map_or(Step::ZERO, |step| step.next());
        for remote in self.remotes.values() {
            let said = locked(&remote.worker).copied();
            says(said, &remote.queue, &self.closing, &self.traffic);
            loop {
                let mut worker = locked(&remote.worker);
                let follows = worker.follows.and_then(|step| Some((step, *self.closed.get(&step)?)));
                let Some((step, trailer)) = follows else { break };
                let said = worker.followed(step, trailer, keeper_at);
                drop(worker);
                says(said, &remote.queue, &self.closing, &self.traffic);
            }
        }
    }

    /// Checkpoint actors connect, and tell that they keep so many checkpoints.
    async fn depots_come(
        &mut self,
        authority: &Authority,
        coordinator: SocketAddr,
        (kept, shards): (u32, u32),
    ) -> Result<()> {
        for depot in depot_ids() {
            let credentials = authority.issue(Role::Checkpoint, depot.get())?;
            let holds = DepotMessage::Holds {
                heads: kept_heads(kept, shards),
                is_last: true,
                unreadable: vec![],
            };
            let connected = depot_comes(depot, credentials, coordinator, holds, Arc::clone(&self.traffic)).await?;
            self.depots.push(connected);
        }
        Ok(())
    }

    /// These workers end: their connections say so.
    fn end(&mut self, numbers: std::ops::Range<u32>) {
        for remote in numbers.filter_map(|number| self.remotes.remove(&number)) {
            remote.connection.close(0_u32.into(), b"it ends");
            self.gone += 1;
        }
    }

    /// Trains until `done`.
    async fn until(&mut self, events: &mut UnboundedReceiver<JobEvent>, done: impl Fn(&Heard) -> bool) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < LIMIT {
            while let Ok(event) = events.try_recv() {
                if matches!(event, JobEvent::Worker(WorkerEvent::Lost { .. })) && self.gone > 0 {
                    self.gone -= 1;
                    continue;
                }
                if matches!(event, JobEvent::Worker(WorkerEvent::Lost { .. })) {
                    return Err(format!("{event:?}").into());
                }
                self.heard.hears(event)?;
                if done(&self.heard) {
                    return Ok(());
                }
            }
            self.step();
            sleep(STEP).await;
        }
        Err(format!("it was not done within {LIMIT:?}: {:?}", self.heard).into())
    }
}

/// A coordinator and the processes that come to it.
struct Job {
    authority: Arc<Authority>,
    coordinator: Coordinator,
    events: UnboundedReceiver<JobEvent>,
    site: Site,
    shards: u32,
}

impl Job {
    /// Of so many workers. With `saves`, checkpoint actors keep [`KEPT`] checkpoints, and training begins from the newest.
    async fn new(workers: u32, saves: Option<Saves>) -> Result<Self> {
        let authority = Arc::new(Authority::new(JOB)?);
        let config = CoordinatorConfig {
            registrar: Arc::new(Registrar::new(Arc::clone(&authority))),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            incarnation: LIFE,
            past: Past::None,
            succession: Succession::Resume,
            records: None,
            min: 1,
            expected: workers,
            max: workers,
            balance: Balance::Off,
            saves,
        };
        let (coordinator, events) = coordinator::start(config).await?;
        let mut site = Site::default();
        if saves.is_some() {
            let address = coordinator.address();
            site.depots_come(&authority, address, (KEPT, workers)).await?;
        }
        Ok(Self {
            authority,
            coordinator,
            events,
            site,
            shards: workers,
        })
    }

    async fn come(&mut self, numbers: std::ops::Range<u32>) -> Result<()> {
        let address = self.coordinator.address();
        self.site.come(&self.authority, address, self.shards, numbers).await
    }

    async fn until(&mut self, done: impl Fn(&Heard) -> bool) -> Result<()> {
        self.site.until(&mut self.events, done).await
    }

    async fn until_all(&mut self, members: u32) -> Result<()> {
        self.until(|heard| heard.members == members as usize).await
    }

    fn spent(&self) -> (Cost, Instant) {
        let traffic = &self.site.traffic;
        let spent = Cost {
            took: Duration::ZERO,
            processor: processor_time(),
            messages: traffic.messages.load(Ordering::Relaxed),
            bytes: traffic.bytes.load(Ordering::Relaxed),
        };
        (spent, Instant::now())
    }

    /// What has been spent since then.
    async fn ends(self, (before, begun): (Cost, Instant)) -> Cost {
        let (after, _) = self.spent();
        let cost = Cost {
            took: begun.elapsed(),
            processor: after.processor.saturating_sub(before.processor),
            messages: after.messages - before.messages,
            bytes: after.bytes - before.bytes,
        };
        self.coordinator.end().await;
        cost
    }
}

/// What a phase costs with so many workers; nothing for a phase that is not measured here.
pub(crate) async fn measure(phase: Phase, workers: u32) -> Result<Option<Cost>> {
    let half = workers / 2;
    let cost = match phase {
        Phase::Lose => {
            let mut job = Job::new(workers, None).await?;
            job.come(0..workers).await?;
            job.until_all(workers).await?;
            let before = job.spent();
            job.site.end(0..1);
            job.until_all(workers - 1).await?;
            job.ends(before).await
        }
        Phase::Join => {
            let mut job = Job::new(half, None).await?;
            job.come(0..half).await?;
            job.until_all(half).await?;
            let before = job.spent();
            job.come(half..workers).await?;
            job.until_all(workers).await?;
            job.ends(before).await
        }
        Phase::Restore => {
            let mut job = Job::new(workers, Some(saves(1_000_000)?)).await?;
            let before = job.spent();
            job.come(0..workers).await?;
            job.until(|heard| heard.resumed > 0 && heard.members == workers as usize)
                .await?;
            job.ends(before).await
        }
        Phase::Commit => {
            let mut job = Job::new(workers, Some(saves(1)?)).await?;
            job.come(0..workers).await?;
            job.until_all(workers).await?;
            let before = job.spent();
            job.until(|heard| heard.saved > 0).await?;
            job.ends(before).await
        }
        Phase::Storm => {
            let mut job = Job::new(half, Some(saves(20)?)).await?;
            let before = job.spent();
            job.come(0..half).await?;
            job.until_all(half).await?;
            job.come(half..workers).await?;
            let gone = half / 10;
            job.site.end(0..gone);
            let left = (workers - gone) as usize;
            job.until(|heard| heard.saved > 0 && heard.members == left).await?;
            job.ends(before).await
        }
        Phase::Trickle | Phase::Idle => return Ok(None),
    };
    Ok(Some(cost))
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}
