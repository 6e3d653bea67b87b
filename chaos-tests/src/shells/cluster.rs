//! What runs: one coordinator, its records, and a fleet of workers that are started anew when they end, as agents do.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use sardana::model::StateHash;
use sardana::within::{Effort, serve_within};
use sardana::worker::ProcessError;
use sardana::{Job, JobEvent, Step, WorkerId};
use sardana_actors::agent::Bundle;
use sardana_actors::coordinator::{self, Coordinator, CoordinatorConfig, KeptJob, Past, Records, Succession};
use sardana_actors::worker::{Ended, JoinError, WorkerError};
use sardana_net::enrol::{EnrolError, JoinFile, Moment, Registrar, Terms, enrol_on};
use sardana_net::trust::{Authority, Role};
use sardana_protocol::words::{Incarnation, JobId};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::air::Air;
use super::checked::{Checked, Expected};
use super::circumstances::Circumstances;
use super::host::Host;
use crate::dice::{Dice, mix};
use crate::model::Touchy;

/// Where the coordinator is, in each of its lives.
pub(super) const COORDINATOR: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 7_000);

/// The port at which each worker listens for others.
const WORKER_PORT: u16 = 7_100;

/// How long what the coordinator writes down takes to be on its disk, at most.
const SYNC_MS: u64 = 40;

/// How long an invitation holds: longer than any run.
const INVITED: u64 = 24 * 60 * 60;

/// What the run is told.
#[derive(Debug)]
pub(super) enum Happening {
    /// By the coordinator of this incarnation.
    Job(u64, JobEvent),
    /// A worker has its certificate.
    Enrolled(u64, WorkerId),
    /// A worker's process has ended.
    Ended(u64, Ending),
    /// It is time to start another worker.
    Start,
    /// It is time to start the coordinator again.
    StartCoordinator,
    /// The fault of this number is over.
    Over(u64),
}

/// How a worker ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// With the job, in this state.
    Done(Step, StateHash),
    /// It was drained.
    Drained,
    /// As workers may end when others or the network fail: another is started.
    Anew(String),
    /// As no worker may end.
    Wrong(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(step, hash) => write!(f, "done at {step} with {hash}"),
            Self::Drained => f.write_str("drained"),
            Self::Anew(why) | Self::Wrong(why) => f.write_str(why),
        }
    }
}

/// The cluster.
pub(super) struct Cluster {
    pub(super) air: Arc<Air>,
    pub(super) circumstances: Circumstances,
    pub(super) workers: BTreeMap<u64, Member>,
    pub(super) coordinator: Option<Life>,
    seed: u64,
    job: Job,
    expected: Expected,
    registrar: Arc<Registrar>,
    join: JoinFile,
    incarnation: u64,
    started: u64,
    disk: Arc<Mutex<Option<KeptJob>>>,
    told: mpsc::UnboundedSender<Happening>,
}

/// A worker's process.
pub(super) struct Member {
    pub(super) host: Host,
    pub(super) id: Option<WorkerId>,
    task: AbortHandle,
    /// When it thaws: it does nothing before.
    thaws: Arc<Mutex<Instant>>,
}

/// One life of the coordinator.
pub(super) struct Life {
    pub(super) coordinator: Coordinator,
    pub(super) incarnation: u64,
    pub(super) host: Host,
}

impl Cluster {
    pub(super) fn new(
        seed: u64,
        circumstances: Circumstances,
        expected: Expected,
        air: Arc<Air>,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Happening>)> {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&seed.to_le_bytes());
        let authority = Arc::new(
            Authority::new(JobId::new(name))?
                .with_even_lengths()
                .with_clock(air.clock())
                .with_validity(circumstances.validity),
        );
        let drawn = AtomicU64::new(0);
        // All ids have one length on the wire.
        let id = move || mix(seed ^ mix(drawn.fetch_add(1, Ordering::Relaxed))) | 1 << 63;
        let registrar = Arc::new(Registrar::new(authority).with_ids(id));
        let now = Moment::of(air.clock().now());
        let terms = Terms {
            role: Role::Worker,
            expires: Moment::new(now.seconds() + INVITED),
            uses: 1_000,
        };
        let join = JoinFile::new(registrar.invite(terms, now)?, registrar.authority(), vec![COORDINATOR]);
        let (told, happenings) = mpsc::unbounded_channel();
        let cluster = Self {
            air,
            job: circumstances.setup.job()?,
            expected,
            circumstances,
            workers: BTreeMap::new(),
            coordinator: None,
            seed,
            registrar,
            join,
            incarnation: 0,
            started: 0,
            disk: Arc::default(),
            told,
        };
        Ok((cluster, happenings))
    }

    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    /// Tells the run so, after a while.
    pub(super) fn later(&self, after: Duration, what: Happening) {
        let told = self.told.clone();
        tokio::spawn(async move {
            sleep(after).await;
            // The run may be over.
            let _ = told.send(what);
        });
    }

    /// Starts the coordinator's next life.
    pub(super) async fn start_coordinator(&mut self) -> Result<()> {
        self.incarnation += 1;
        let incarnation = self.incarnation;
        let host = Host::new(&self.air, COORDINATOR.ip(), mix(self.seed ^ incarnation));
        let found = self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let past = match found {
            Some(kept) => Past::Known(Box::new(kept)),
            None if incarnation == 1 => Past::None,
            None => Past::Unknown,
        };
        let (records, written) = Records::elsewhere();
        let setup = &self.circumstances.setup;
        let config = CoordinatorConfig {
            registrar: Arc::clone(&self.registrar),
            listen: COORDINATOR,
            incarnation: Incarnation::new(incarnation),
            past,
            succession: Succession::Resume,
            records: Some(records),
            min: setup.min,
            expected: setup.workers,
            max: setup.max,
            balance: setup.balance,
            saves: None,
        };
        let (coordinator, events) = coordinator::start_on(host.environment(), config)
            .await
            .context("the coordinator starts")?;
        tokio::spawn(write_down(
            Arc::clone(&self.disk),
            host.clone(),
            written,
            mix(self.seed ^ !incarnation),
        ));
        tokio::spawn(hear(self.told.clone(), incarnation, events));
        self.coordinator = Some(Life {
            coordinator,
            incarnation,
            host,
        });
        Ok(())
    }

    /// Starts one more worker.
    pub(super) fn start_worker(&mut self) -> u64 {
        self.started += 1;
        let serial = self.started;
        let [.., high, low] = u32::try_from(serial).unwrap_or(u32::MAX).to_be_bytes();
        let ip = IpAddr::V4(Ipv4Addr::new(10, 1, high, low));
        let host = Host::new(&self.air, ip, mix(self.seed) ^ mix(serial));
        let thaws = Arc::new(Mutex::new(Instant::now()));
        let process = Process {
            host: host.clone(),
            job: self.job.clone(),
            join: self.join.clone(),
            circumstances: self.circumstances.clone(),
            expected: Arc::clone(&self.expected),
            thaws: Arc::clone(&thaws),
            dice: Mutex::new(Dice::new(mix(self.seed ^ 0x7a1e) ^ mix(serial))),
        };
        let told = self.told.clone();
        let task = tokio::spawn(async move {
            let ending = process.live(serial, &told).await;
            // The run may be over.
            let _ = told.send(Happening::Ended(serial, ending));
        });
        let member = Member {
            host,
            id: None,
            task: task.abort_handle(),
            thaws,
        };
        self.workers.insert(serial, member);
        serial
    }

    /// Kills a worker's process: its sockets are dead at once, and nothing of it goes on.
    pub(super) fn kill_worker(&mut self, serial: u64) {
        if let Some(member) = self.workers.remove(&serial) {
            member.host.kill();
            member.task.abort();
        }
    }

    /// The coordinator's disk is empty, whatever was written.
    pub(super) fn lose_records(&self) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Kills the coordinator's process.
    pub(super) fn kill_coordinator(&mut self) -> bool {
        match self.coordinator.take() {
            Some(life) => {
                life.host.kill();
                drop(life.coordinator);
                true
            }
            None => false,
        }
    }
}

impl Member {
    /// Does nothing for so long.
    pub(super) fn freeze(&self, for_: Duration) {
        *self.thaws.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + for_;
    }
}

/// A worker's process, as it is started.
struct Process {
    host: Host,
    job: Job,
    join: JoinFile,
    circumstances: Circumstances,
    expected: Expected,
    thaws: Arc<Mutex<Instant>>,
    dice: Mutex<Dice>,
}

impl Process {
    async fn live(self, serial: u64, told: &mpsc::UnboundedSender<Happening>) -> Ending {
        let environment = self.host.environment();
        let enrolled = match enrol_on(&environment, &self.join, Role::Worker).await {
            Ok(enrolled) => enrolled,
            Err(error) => return not_enrolled(&error),
        };
        let id = WorkerId::new(enrolled.credentials.identity().id);
        // The run may be over.
        let _ = told.send(Happening::Enrolled(serial, id));
        let bundle = Bundle {
            credentials: enrolled.credentials,
            coordinator: enrolled.coordinator,
            listen: SocketAddr::new(self.host.ip(), WORKER_PORT),
            advertise: None,
            tally: None,
            memory: None,
            ends: Vec::new(),
        };
        let build = |_: &_| {
            let wrong = self.circumstances.wrong.filter(|_| serial == 1);
            let model = Touchy::plain(&self.circumstances.setup);
            Ok(Checked::new(model, Arc::clone(&self.expected), wrong))
        };
        match serve_within(environment, bundle, &self.job, build, |effort| self.takes(effort)).await {
            Ok(Ended::Done { step, hash }) => Ending::Done(step, hash),
            Ok(Ended::Drained { .. }) => Ending::Drained,
            Err(ProcessError::Worker(error)) => ended(&error),
            Err(error) => Ending::Wrong(error.to_string()),
        }
    }

    /// How long the model takes for something, by chance.
    fn takes(&self, effort: Effort) -> Duration {
        let whole = match effort {
            Effort::Gradient => self.circumstances.gradient,
            Effort::Update | Effort::Load | Effort::Copy | Effort::Conclusion => self.circumstances.update,
        };
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let percent = 90 + u32::try_from(dice.below(20)).unwrap_or(0);
        let thaws = *self.thaws.lock().unwrap_or_else(PoisonError::into_inner);
        whole * percent / 100 + thaws.saturating_duration_since(Instant::now())
    }
}

/// How a worker ended, by its error: some ends are the doing of others.
fn ended(error: &WorkerError) -> Ending {
    let words = error.to_string();
    // The coordinator has no reason to refuse a process here: one that is told so gives up for good.
    let not_joined = |error: &JoinError| matches!(error, JoinError::NotThere { .. } | JoinError::Over);
    match error {
        WorkerError::Dismissed { .. } => Ending::Anew(words),
        WorkerError::Join(error) if not_joined(error) => Ending::Anew(words),
        WorkerError::Join(_)
        | WorkerError::Bind(_)
        | WorkerError::Model { .. }
        | WorkerError::Terminated { .. }
        | WorkerError::Broken { .. } => Ending::Wrong(words),
    }
}

/// Which enrolments may fail for a while.
fn not_enrolled(error: &EnrolError) -> Ending {
    let words = format!("it could not enrol: {error}");
    if let EnrolError::NotThere { .. } = error {
        Ending::Anew(words)
    } else {
        Ending::Wrong(words)
    }
}

/// The coordinator's disk: what is written is there after a while, if the process lives until then.
async fn write_down(
    disk: Arc<Mutex<Option<KeptJob>>>,
    host: Host,
    mut written: mpsc::UnboundedReceiver<Option<KeptJob>>,
    seed: u64,
) {
    let mut dice = Dice::new(seed);
    while let Some(kept) = written.recv().await {
        sleep(Duration::from_millis(1 + dice.below(SYNC_MS))).await;
        if !host.is_alive() {
            return;
        }
        *disk.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}

async fn hear(told: mpsc::UnboundedSender<Happening>, incarnation: u64, mut events: mpsc::UnboundedReceiver<JobEvent>) {
    while let Some(event) = events.recv().await {
        if told.send(Happening::Job(incarnation, event)).is_err() {
            return;
        }
    }
}
