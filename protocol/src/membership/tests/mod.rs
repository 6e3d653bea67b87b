//! The coordinator's machine, one story per test: events in, commands out, both written in words.

mod adopting;
mod balancing;
mod beside;
mod blaming;
mod checkpointed;
mod contradicting;
mod cooling;
mod depots;
mod endings;
mod generations;
mod groups;
mod joining;
mod last_saves;
mod leaving;
mod lineages;
mod links;
mod loading;
mod losses;
mod planning;
mod records;
mod recounting;
mod refusing;
mod remembering;
mod restoring;
mod saving;
mod scale;
mod silence;
mod silent_depots;
mod stars;
mod stopped;
mod wording;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use wording::{forms, words};

use super::{
    Arrival, Balance, CheckpointEvent, Command, Config, Event, GenerationEvent, JobEvent, Loss, Membership, WorkerEvent,
};
use crate::lineage::Lineage;
use crate::memory::GradientMemory;
use crate::messages::{
    CatchUp, CoordinatorMessage, DepotOrder, Form, Introduction, Joiners, Serve, Shares, Standing, StepReport, Tally,
    Trailer, WorkerMessage,
};
use crate::snapshot::{Share, SnapshotId, shares_of};
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Pace, Step, WorkerId};

/// A coordinator and its clock.
struct Job {
    membership: Membership,
    now: Duration,
}

/// Two workers are expected, one is enough; four shards, ten steps.
fn config() -> Config {
    Config {
        min: 1,
        expected: 2,
        max: 8,
        shards: 4,
        steps: Step::new(10),
        order: crate::job::Order::Exact,
        compression: crate::job::Compression::None,
        balance: Balance::default(),
        task: crate::samples::task(1),
        build: StateHash::new([2; 32]),
        saves: None,
    }
}

fn w(worker: u64) -> WorkerId {
    WorkerId::new(worker)
}

fn g(count: u64) -> Generation {
    Generation::new(Incarnation::new(1), count)
}

fn s(step: u64) -> Step {
    Step::new(step)
}

/// The tally of a worker that has computed two shards a step, up to `step`.
fn tally(step: u64) -> Tally {
    Tally {
        total: step.saturating_mul(2),
        step: s(step),
        this_step: 0,
        previous_step: if step > 0 { 2 } else { 0 },
    }
}

fn snapshot(count: u64, step: u64) -> SnapshotId {
    SnapshotId {
        generation: g(count),
        step: s(step),
    }
}

fn standing(step: u64) -> Standing {
    Standing {
        step: s(step),
        lineage: Lineage::default(),
        kept: vec![],
        sum: s(step).previous(),
        stop_at: None,
        tally: tally(step),
    }
}

/// The hash of the state at `step`.
fn hash(step: u64) -> StateHash {
    StateHash::of(&step.to_le_bytes())
}

fn finished(count: u64, step: u64, hash: StateHash) -> WorkerMessage {
    WorkerMessage::Finished {
        generation: g(count),
        step: s(step),
        hash,
        results: vec![],
        tally: tally(step),
    }
}

/// A heartbeat in g`count` of a worker that has computed and moved so much, and takes so many milliseconds for a gradient, if it has told.
fn heartbeat(count: u64, tally: Tally, moved: u64, pace: Option<u64>) -> WorkerMessage {
    WorkerMessage::Progress {
        generation: g(count),
        step: tally.step,
        tally,
        moved,
        pace: pace.map(|millis| Pace::new(Duration::from_millis(millis))),
        reports: vec![],
    }
}

/// What a worker says of itself that has promised to take part in nothing older than `generation`.
fn introduction(generation: Generation, standing: Standing) -> Introduction {
    Introduction {
        generation,
        incarnation: Incarnation::new(1),
        seat: None,
        training: false,
        standing,
    }
}

fn arrival(worker: u64, introduction: Introduction) -> Arrival {
    Arrival {
        worker: w(worker),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        capacity: 24,
        memory: GradientMemory::unbounded(64 << 20),
        host_hash: None,
        on_device: false,
        introduction,
    }
}

fn newcomer(worker: u64, standing: Standing) -> Arrival {
    arrival(worker, introduction(Generation::NONE, standing))
}

/// Exactly this was told, among other things.
#[track_caller]
fn has(told: &[String], what: &str) {
    assert!(told.iter().any(|said| said == what), "no {what:?} in {told:?}");
}

/// Something was told that begins like this.
#[track_caller]
fn any_begins(told: &[String], begin: &str) {
    assert!(told.iter().any(|said| said.starts_with(begin)), "no {begin:?} in {told:?}");
}

/// Nothing was told with this in it.
#[track_caller]
fn none_contains(told: &[String], part: &str) {
    assert!(!told.iter().any(|said| said.contains(part)), "{part:?} in {told:?}");
}

impl Job {
    fn new(config: Config) -> Self {
        Self {
            membership: Membership::new(config, Incarnation::new(1), Duration::ZERO),
            now: Duration::ZERO,
        }
    }

    /// A job whose workers 1 to `workers` train in g1, at step 0.
    fn training(workers: u64, config: Config) -> Self {
        let mut job = Self::new(Config {
            expected: u32::try_from(workers).expect("a few"),
            ..config
        });
        for worker in 1..=workers {
            job.arrives(worker, 0);
        }
        job.all_ready(1..=workers, 1);
        job
    }

    fn event(&mut self, event: Event) -> Vec<Command> {
        self.membership.handle(self.now, event)
    }

    fn arrives(&mut self, worker: u64, step: u64) -> Vec<String> {
        words(&self.comes(newcomer(worker, standing(step))))
    }

    /// A worker says hello with this.
    fn introduces(&mut self, worker: u64, introduction: Introduction) -> Vec<String> {
        words(&self.comes(arrival(worker, introduction)))
    }

    fn comes(&mut self, arrival: Arrival) -> Vec<Command> {
        self.event(Event::Arrived(Box::new(arrival)))
    }

    fn says(&mut self, worker: u64, message: WorkerMessage) -> Vec<String> {
        words(&self.event(Event::Said {
            worker: w(worker),
            message,
        }))
    }

    fn ready(&mut self, worker: u64, count: u64) -> Vec<String> {
        self.says(worker, WorkerMessage::Ready { generation: g(count) })
    }

    fn halted(&mut self, worker: u64, count: u64, step: u64) -> Vec<String> {
        words(&self.halts(worker, g(count), standing(step)))
    }

    /// What is said to the last of them.
    fn all_ready(&mut self, workers: impl IntoIterator<Item = u64>, count: u64) -> Vec<String> {
        let said = workers.into_iter().map(|worker| self.ready(worker, count));
        said.last().expect("there are some")
    }

    /// What is said to the last of them.
    fn all_halted(&mut self, workers: impl IntoIterator<Item = u64>, count: u64, step: u64) -> Vec<String> {
        let said = workers.into_iter().map(|worker| self.halted(worker, count, step));
        said.last().expect("there are some")
    }

    fn halts(&mut self, worker: u64, generation: Generation, standing: Standing) -> Vec<Command> {
        let (worker, message) = (w(worker), WorkerMessage::Halted { generation, standing });
        self.event(Event::Said { worker, message })
    }

    /// It has applied the last update, at `step`, and found what each worker finds.
    fn finishes(&mut self, worker: u64, count: u64, step: u64) -> Vec<String> {
        self.says(worker, finished(count, step, hash(step)))
    }

    /// A worker says that it has applied the updates up to `step`, and reports these steps.
    fn progress(&mut self, worker: u64, count: u64, step: u64, reports: &[u64]) -> Vec<String> {
        let report = |&step| StepReport {
            step: s(step),
            samples: 16,
            sums: vec![],
        };
        let message = WorkerMessage::Progress {
            generation: g(count),
            step: s(step),
            tally: tally(step),
            moved: 0,
            pace: None,
            reports: reports.iter().map(report).collect(),
        };
        self.says(worker, message)
    }

    /// A member has memory for its shares of a snapshot to come.
    fn room_made(&mut self, worker: u64, count: u64) -> Vec<String> {
        self.says(worker, WorkerMessage::RoomMade { generation: g(count) })
    }

    /// Members 1 and 2 have room in g1. What is said to the second.
    fn both_make_room(&mut self) -> Vec<String> {
        self.room_made(1, 1);
        self.room_made(2, 1)
    }

    /// A holder of a snapshot says which shares it has copied.
    fn snapshotted(&mut self, worker: u64, shares: Vec<Share>, snapshot: SnapshotId) -> Vec<String> {
        let hashed = |share: Share| (share.index, hash(share.index.into()));
        let shares = shares.into_iter().map(hashed).collect();
        self.says(worker, WorkerMessage::Snapshotted { snapshot, shares })
    }

    /// The two members of g1 have copied their shares of the state at `step`. What is said to the second.
    fn both_snapshotted(&mut self, step: u64) -> Vec<String> {
        self.snapshotted(1, shares_of(0, 2), snapshot(1, step));
        self.snapshotted(2, shares_of(1, 2), snapshot(1, step))
    }

    /// A joiner says that it follows from this snapshot, and stands at `step`.
    fn caught_up(&mut self, worker: u64, snapshot: SnapshotId, step: u64) -> Vec<String> {
        let step = s(step);
        self.says(worker, WorkerMessage::CaughtUp { snapshot, step })
    }

    fn copy_failed(&mut self, worker: u64, snapshot: SnapshotId) -> Vec<String> {
        let reason = "no holder has it".to_owned();
        self.says(worker, WorkerMessage::CopyFailed { snapshot, reason })
    }

    fn switched(&mut self, worker: u64, count: u64, step: u64) -> Vec<String> {
        let (generation, step) = (g(count), s(step));
        self.says(worker, WorkerMessage::Switched { generation, step })
    }

    /// Its agent wants it to leave.
    fn leaves(&mut self, worker: u64) -> Vec<String> {
        let (worker, reason) = (w(worker), "test".to_owned());
        words(&self.event(Event::LeaveRequested { worker, reason }))
    }

    /// A job of two members whose worker 3 copies the snapshot of s5.
    fn joined(config: Config) -> Self {
        let mut job = Self::training(2, config);
        job.arrives(3, 0);
        job.both_make_room();
        job.both_snapshotted(5);
        job
    }

    /// The same, and worker 3 has caught up: g2 is planned with it.
    fn planned(config: Config) -> Self {
        let mut job = Self::joined(config);
        job.caught_up(3, snapshot(1, 5), 6);
        job
    }

    /// The same, and the closer is asked to switch.
    fn ordered(config: Config) -> Self {
        let mut job = Self::planned(config);
        job.all_ready(1..=3, 2);
        job
    }

    fn link_broken(&mut self, worker: u64, count: u64, peer: u64) -> Vec<String> {
        let (generation, peer) = (g(count), w(peer));
        self.says(worker, WorkerMessage::LinkBroken { generation, peer })
    }

    /// Its agent saw it end at `step`.
    fn dies(&mut self, worker: u64, step: u64) -> Vec<String> {
        self.exits(worker, Some(tally(step)))
    }

    /// Its agent saw it end, and knows its count, perhaps.
    fn exits(&mut self, worker: u64, tally: Option<Tally>) -> Vec<String> {
        let how = "signal 9".to_owned();
        self.loses(worker, Loss::Exited { how, tally })
    }

    fn is_cut_off(&mut self, worker: u64) -> Vec<String> {
        self.loses(worker, Loss::ConnectionLost { why: "reset".to_owned() })
    }

    fn loses(&mut self, worker: u64, cause: Loss) -> Vec<String> {
        words(&self.event(Event::Lost {
            worker: w(worker),
            cause,
        }))
    }

    fn passes(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        words(&self.event(Event::Tick))
    }
}
