//! The coordinator's machine, one story per test: events in, commands out, both written in words.

mod adopting;
mod balancing;
mod blaming;
mod checkpointed;
mod contradicting;
mod cooling;
mod depots;
mod endings;
mod generations;
mod joining;
mod last_saves;
mod leaving;
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
mod stopped;
mod wording;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use wording::{forms, words};

use super::{
    Arrival, Balance, CheckpointEvent, Command, Config, Event, GenerationEvent, JobEvent, Loss, Membership, WorkerEvent,
};
use crate::memory::GradientMemory;
use crate::messages::{
    CatchUp, CoordinatorMessage, DepotOrder, Form, Introduction, Joiners, Serve, Shares, Standing, StepReport, Tally,
    Trailer, WorkerMessage,
};
use crate::snapshot::{SnapshotId, shares_of};
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Step, WorkerId};

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
        balance: Balance::default(),
        task: crate::state::StateHash::new([1; 32]),
        build: crate::state::StateHash::new([2; 32]),
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

fn newcomer(worker: u64, standing: Standing, host: [u8; 4]) -> Arrival {
    Arrival {
        worker: w(worker),
        address: SocketAddr::from((host, 1)),
        capacity: 24,
        memory: GradientMemory::unbounded(1),
        introduction: Introduction {
            generation: Generation::NONE,
            incarnation: Incarnation::new(1),
            seat: None,
            training: false,
            standing,
        },
    }
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
        for worker in 1..=workers {
            job.ready(worker, 1);
        }
        job
    }

    fn event(&mut self, event: Event) -> Vec<Command> {
        self.membership.handle(self.now, event)
    }

    fn arrives(&mut self, worker: u64, step: u64) -> Vec<String> {
        words(&self.arrival(worker, standing(step)))
    }

    fn arrival(&mut self, worker: u64, standing: Standing) -> Vec<Command> {
        self.arrival_from(worker, standing, Ipv4Addr::LOCALHOST.octets())
    }

    fn arrival_from(&mut self, worker: u64, standing: Standing, host: [u8; 4]) -> Vec<Command> {
        self.event(Event::Arrived(Box::new(newcomer(worker, standing, host))))
    }

    fn arrives_with(&mut self, worker: u64, memory: GradientMemory) -> Vec<Command> {
        self.event(Event::Arrived(Box::new(Arrival {
            memory,
            ..newcomer(worker, standing(0), Ipv4Addr::LOCALHOST.octets())
        })))
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
        let (generation, standing) = (g(count), standing(step));
        self.says(worker, WorkerMessage::Halted { generation, standing })
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

    /// A holder of the snapshot that `of` members of g`count` took at `step` says what it has copied.
    fn snapshotted(&mut self, worker: u64, (place, of): (u32, u32), count: u64, step: u64) -> Vec<String> {
        let shares = shares_of(place, of).into_iter();
        let message = WorkerMessage::Snapshotted {
            snapshot: snapshot(count, step),
            shares: shares.map(|share| (share.index, hash(share.index.into()))).collect(),
        };
        self.says(worker, message)
    }

    /// A joiner says that it follows from the snapshot g`count`@`from`, and stands at `step`.
    fn caught_up(&mut self, worker: u64, (count, from): (u64, u64), step: u64) -> Vec<String> {
        let (snapshot, step) = (snapshot(count, from), s(step));
        self.says(worker, WorkerMessage::CaughtUp { snapshot, step })
    }

    fn copy_failed(&mut self, worker: u64, (count, from): (u64, u64)) -> Vec<String> {
        let (snapshot, reason) = (snapshot(count, from), "nobody has it".to_owned());
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
        job.room_made(1, 1);
        job.room_made(2, 1);
        job.snapshotted(1, (0, 2), 1, 5);
        job.snapshotted(2, (1, 2), 1, 5);
        job
    }

    /// The same, and worker 3 has caught up: g2 is planned with it.
    fn planned(config: Config) -> Self {
        let mut job = Self::joined(config);
        job.caught_up(3, (1, 5), 6);
        job
    }

    /// The same, and the closer is asked to switch.
    fn ordered(config: Config) -> Self {
        let mut job = Self::planned(config);
        for worker in 1..=3 {
            job.ready(worker, 2);
        }
        job
    }

    fn link_broken(&mut self, worker: u64, count: u64, peer: u64) -> Vec<String> {
        let (generation, peer) = (g(count), w(peer));
        self.says(worker, WorkerMessage::LinkBroken { generation, peer })
    }

    /// Its agent saw it end at `step`.
    fn dies(&mut self, worker: u64, step: u64) -> Vec<String> {
        let cause = Loss::Exited {
            how: "signal 9".to_owned(),
            tally: Some(tally(step)),
        };
        self.loses(worker, cause)
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
