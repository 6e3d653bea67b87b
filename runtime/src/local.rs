//! Trains with threads instead of processes: a fixed membership, links within the process, no coordinator. For debugging, for
//! tests, and for one device. The machines, step drivers and rings are those of real workers; but a model's [`Trainable::summation`] is not used.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;

use sardana_actors::worker::{ActorCommand, Mismatch, Outbox, StepDriver};
use sardana_collectives::links;
use sardana_collectives::ring::{self, RingConfig, RingError, RingInput, RingLinks};
use sardana_protocol::assign::{Means, NoRoom, steady};
use sardana_protocol::job::{Compression, JobSpec, Order};
use sardana_protocol::member::{Event, Heartbeat};
use sardana_protocol::messages::{CoordinatorMessage, Form, MemberAddress, StepReport, WorkerMessage};
use sardana_protocol::plan::{Plan, Visit};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, Step, WorkerId};
use tokio::sync::mpsc;
use tokio::time::{Duration, interval};

use crate::job::JobError;
use crate::model::{ModelError, Trainable};
use crate::trainer::{self, TrainingError};

/// Between two collections of reports.
const COLLECT_EVERY: Duration = Duration::from_millis(50);

/// How a job in threads ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Local {
    /// Hash of the final state.
    pub hash: StateHash,
    /// The sums of every step.
    pub reports: Vec<StepReport>,
    /// What the model's evaluation found.
    pub results: Vec<(String, f64)>,
}

/// Why a job in threads failed.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A model failed; it would fail everywhere.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// No thread to be had, or no runtime.
    #[error("the threads could not be started: {0}")]
    System(#[from] std::io::Error),
    /// The shards do not fit.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// A link within the process broke, because a thread ended.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Workers ended with different states (BITS-1): the model is not deterministic.
    #[error("rank 0 ended with {expected}, rank {rank} with {found} (BITS-1): the model is not deterministic")]
    Different {
        /// The worker with another state.
        rank: usize,
        /// The hash of rank 0.
        expected: StateHash,
        /// The hash of that worker.
        found: StateHash,
    },
    /// A model's code panicked.
    #[error("the model's code panicked; its message is above")]
    Panicked,
    /// A part of a worker failed. Report it.
    #[error("a part of worker {rank} failed: {mismatch}")]
    Broken {
        /// The rank of the worker.
        rank: usize,
        /// What contradicts what in it.
        mismatch: Mismatch,
    },
    /// The job's settings contradict one another.
    #[error(transparent)]
    Job(#[from] JobError),
    /// No workers were asked for.
    #[error("expected at least one worker, found none")]
    NoWorkers,
}

/// One worker's thread as the collector sees it.
struct Seat {
    driver: Arc<StepDriver>,
    outbox: Outbox,
}

/// The step drivers of the threads that work. Dropping them ends the threads: the scope waits for all of them, whatever went wrong.
struct StepDrivers(Vec<Arc<StepDriver>>);

impl Drop for StepDrivers {
    fn drop(&mut self) {
        self.0.iter().for_each(|driver| driver.end());
    }
}

/// What a thread sends first: its seat, or why it has none.
type Introduction = Result<Seat, TrainingError>;

/// Trains `job` on `workers` threads. `build` is called once on each.
///
/// # Errors
/// See [`LocalError`].
pub fn train<M, F>(job: &JobSpec, workers: u32, build: F) -> Result<Local, LocalError>
where
    M: Trainable,
    F: Fn(&JobSpec) -> Result<M, ModelError> + Sync,
{
    if workers == 0 {
        return Err(LocalError::NoWorkers);
    }
    if !job.compression.is_possible(job.order) {
        return Err(JobError::Compression(job.compression).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::scope(|scope| {
        let mut introductions = Vec::new();
        let mut threads = Vec::new();
        let mut started = Ok(());
        for _ in 0..workers {
            let (introduce, introduction) = std::sync::mpsc::channel();
            let build = &build;
            let training = move || training(job, build, introduce);
            match thread::Builder::new()
                .name("training".to_owned())
                .spawn_scoped(scope, training)
            {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    started = Err(error.into());
                    break;
                }
            }
            introductions.push(introduction);
        }
        let introduced: Vec<Result<Seat, LocalError>> = introductions
            .into_iter()
            .map(|introduction| Ok(introduction.recv().map_err(|_| LocalError::Panicked)??))
            .collect();
        let drivers = StepDrivers(introduced.iter().flatten().map(|seat| Arc::clone(&seat.driver)).collect());
        let ended = || threads.iter().any(thread::ScopedJoinHandle::is_finished);
        let outcome = started
            .and_then(|()| introduced.into_iter().collect::<Result<Vec<Seat>, _>>())
            .and_then(|seats| runtime.block_on(collect(job, seats, ended)));
        drop(drivers);
        // All threads, before anything is returned: the scope itself panics for a thread that did and was not joined.
        let ends: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        for end in ends {
            end.map_err(|_| LocalError::Panicked)??;
        }
        outcome
    })
}

/// One thread: introduces itself, then trains until its step driver says that it ends.
fn training<M: Trainable>(
    job: &JobSpec,
    build: &impl Fn(&JobSpec) -> Result<M, ModelError>,
    introduce: std::sync::mpsc::Sender<Introduction>,
) -> Result<(), TrainingError> {
    let mut prepared = match trainer::prepare(job, build) {
        Ok(prepared) => prepared,
        Err(error) => {
            let _ = introduce.send(Err(error));
            return Ok(());
        }
    };
    let (driver, outbox) = StepDriver::new(job, Arc::clone(&prepared.layout), None);
    let seat = Seat {
        driver: Arc::clone(&driver),
        outbox,
    };
    let introduced = introduce.send(Ok(seat));
    // The collector, which waits for this worker, must learn that it is gone.
    drop(introduce);
    introduced.map_or(Ok(()), |()| trainer::work(&mut prepared, &driver))
}

/// Makes the links, and collects what the workers say until all have finished.
async fn collect(job: &JobSpec, seats: Vec<Seat>, ended: impl Fn() -> bool) -> Result<Local, LocalError> {
    let world_size = u32::try_from(seats.len()).unwrap_or(u32::MAX);
    let visits = even(job.order, job.shards, seats.len())?;
    let plan = Plan::new(job.order, world_size, &visits);
    let mut ends = RingLinks::of_all(&plan, &plan, links::in_process);
    let members: Vec<MemberAddress> = (0..u64::from(world_size))
        .map(|id| MemberAddress {
            worker: WorkerId::new(id),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        })
        .collect();
    let (commanded, mut commands) = mpsc::unbounded_channel();
    let (said, mut messages) = mpsc::unbounded_channel();
    let generation = Generation::new(Incarnation::new(1), 1);
    let forms = Form::all(generation, job.order, Step::ZERO, members, [visits.clone(), visits]);
    let mut drivers = Vec::new();
    for ((rank, Seat { driver, outbox }), form) in seats.into_iter().enumerate().zip(forms) {
        driver.handle(Event::Ordered(CoordinatorMessage::Form(Box::new(form))));
        drivers.push(driver);
        pass_on(rank, outbox.commands, &commanded);
        pass_on(rank, outbox.messages, &said);
    }
    let mut rings = tokio::task::JoinSet::new();
    let mut collected = Collected::new(drivers.len());
    let mut due = interval(COLLECT_EVERY);
    while !collected.is_complete() {
        tokio::select! {
            Some((rank, message)) = messages.recv() => collected.take(rank, message),
            Some((rank, command)) = commands.recv() => match command {
                ActorCommand::Connect { form, inbox } => {
                    let links = std::mem::take(&mut ends[rank]);
                    rings.spawn(run_ring(*form, job.order, job.compression, job.shards, links, inbox, Arc::clone(&drivers[rank])));
                }
                ActorCommand::Fail { mismatch, .. } => return Err(LocalError::Broken { rank, mismatch }),
                // A fixed membership: no worker joins, leaves or is behind, and there are no checkpoints.
                ActorCommand::Prepare { .. }
                | ActorCommand::Snapshot { .. }
                | ActorCommand::Save { .. }
                | ActorCommand::Network(_) => {}
            },
            Some(ring) = rings.join_next() => ring.map_err(|_| LocalError::Panicked)??,
            _ = due.tick() => {
                drivers[0].handle(Event::Beat { heartbeat: Heartbeat::NotDue });
                if ended() {
                    return Err(LocalError::Panicked);
                }
            }
        }
    }
    collected.outcome()
}

/// Passes on what leaves the step driver of `rank`.
fn pass_on<T: Send + 'static>(rank: usize, mut own: mpsc::UnboundedReceiver<T>, all: &mpsc::UnboundedSender<(usize, T)>) {
    let all = all.clone();
    tokio::spawn(async move {
        while let Some(left) = own.recv().await {
            if all.send((rank, left)).is_err() {
                return;
            }
        }
    });
}

/// Threads of one process are equally fast, and share its memory.
fn even(order: Order, shards: u32, ranks: usize) -> Result<Vec<Visit>, NoRoom> {
    let means = Means {
        capacity: shards,
        pieces: shards,
        pace: None,
    };
    steady(order, shards, &vec![means; ranks])
}

async fn run_ring(
    form: Form,
    order: Order,
    compression: Compression,
    shards: u32,
    links: RingLinks,
    inbox: mpsc::UnboundedReceiver<RingInput>,
    driver: Arc<StepDriver>,
) -> Result<(), RingError> {
    let config = RingConfig {
        generation: form.generation,
        rank: form.rank,
        world_size: form.world_size,
        order,
        compression,
        summation: None,
        shards,
        step: form.step,
        first: form.first,
        steady: form.steady,
        layout: Arc::clone(driver.layout()),
        probe: None,
    };
    let summed = {
        let driver = Arc::clone(&driver);
        move |sum| driver.summed(sum)
    };
    driver.helps(ring::run(config, links, inbox, summed), false).await
}

/// What one worker ended with.
type Ending = (StateHash, Vec<(String, f64)>);

/// What the workers have said so far.
struct Collected {
    endings: Vec<Option<Ending>>,
    reports: Vec<StepReport>,
}

impl Collected {
    fn new(ranks: usize) -> Self {
        Self {
            endings: vec![None; ranks],
            reports: Vec::new(),
        }
    }

    fn take(&mut self, rank: usize, message: WorkerMessage) {
        // A worker of a fixed membership says nothing else that counts.
        if let WorkerMessage::Finished { hash, results, .. } = message {
            self.endings[rank] = Some((hash, results));
        } else if let WorkerMessage::Progress { reports, .. } = message {
            self.reports.extend(reports);
        }
    }

    fn is_complete(&self) -> bool {
        self.endings.iter().all(Option::is_some)
    }

    fn outcome(self) -> Result<Local, LocalError> {
        let mut endings = self.endings.into_iter().flatten().enumerate();
        let (_, (expected, results)) = endings.next().ok_or(LocalError::NoWorkers)?;
        match endings.find(|(_, (found, _))| *found != expected) {
            Some((rank, (found, _))) => Err(LocalError::Different { rank, expected, found }),
            None => Ok(Local {
                hash: expected,
                reports: self.reports,
                results,
            }),
        }
    }
}
