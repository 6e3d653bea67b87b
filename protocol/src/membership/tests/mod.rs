//! The coordinator's machine, one story per test: events in, commands out, both written in words.

mod adopting;
mod balancing;
mod blaming;
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
mod remembering;
mod restoring;
mod saving;
mod scale;
mod silence;
mod stopped;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::{
    Arrival, Balance, CheckpointEvent, Command, Config, Event, GenerationEvent, JobEvent, Loss, Membership, WorkerEvent,
};
use crate::memory::GradientMemory;
use crate::messages::{
    CatchUp, CoordinatorMessage, DepotOrder, Form, Introduction, Joiners, Needed, Serve, Standing, StepReport, Tally,
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

/// The forms among these commands, with the worker that each goes to.
fn forms(commands: &[Command]) -> Vec<(u64, Form)> {
    let form = |command: &Command| {
        let Command::Send {
            worker,
            message: CoordinatorMessage::Form(form),
        } = command
        else {
            return None;
        };
        Some((worker.get(), form.as_ref().clone()))
    };
    commands.iter().filter_map(form).collect()
}

/// Commands in words that are short enough to compare.
fn words(commands: &[Command]) -> Vec<String> {
    let words = |command: &Command| match command {
        Command::Send { worker, message } => format!("to w{}: {}", worker.get(), message_words(message)),
        Command::Kill { worker } => format!("kill w{}", worker.get()),
        Command::Order { depot, order } => format!("to {}: {}", depot.get(), order_words(order)),
        Command::Commit { to, contents } => {
            let to: Vec<u64> = to.iter().map(|depot| depot.get()).collect();
            format!("commit {} to {to:?}", contents.snapshot)
        }
        Command::Tell(event) => event_words(event),
    };
    commands.iter().map(words).collect()
}

fn order_words(order: &DepotOrder) -> String {
    match order {
        DepotOrder::Serve { workers, .. } => format!("serve {:?}", numbers(workers)),
        DepotOrder::Commit { snapshot, .. } => format!("commit {snapshot}"),
        DepotOrder::Release { snapshot } => format!("release {snapshot}"),
        DepotOrder::Delete { key } => format!("delete {}", key.step),
        DepotOrder::Fetch { key, .. } => format!("fetch {}", key.step),
        DepotOrder::Renewed { .. } => "renewed".to_owned(),
        DepotOrder::JobOver => "job over".to_owned(),
    }
}

fn message_words(message: &CoordinatorMessage) -> String {
    match message {
        CoordinatorMessage::Halt { generation } => format!("halt {generation}"),
        CoordinatorMessage::Form(form) => {
            let catch_up = match form.catch_up {
                CatchUp::None => String::new(),
                CatchUp::Sum { from } => format!(", sum from {from}"),
                CatchUp::State { from } => format!(", state from {from}"),
                CatchUp::Checkpoint => ", from a checkpoint".to_owned(),
            };
            format!("form {} {} at {}{catch_up}", form.generation, form.rank, form.step)
        }
        CoordinatorMessage::Prepare(form) => format!("prepare {} {}", form.generation, form.rank),
        CoordinatorMessage::CloseWith { generation, trailer } => {
            let trailer = match trailer {
                Trailer::Continue => "nothing".to_owned(),
                Trailer::Stop => "stop".to_owned(),
                Trailer::Snapshot => "snapshot".to_owned(),
                Trailer::Switch(next) => format!("switch to {next}"),
            };
            format!("close {generation} with {trailer}")
        }
        CoordinatorMessage::Serve(serve) => serve_words(serve),
        CoordinatorMessage::Save(save) => {
            let depots: Vec<u64> = save.depots.iter().map(|one| one.depot.get()).collect();
            format!("save {:?} of {} to {depots:?}", save.shares, save.snapshot)
        }
        CoordinatorMessage::SaveOver { snapshot } => format!("save of {snapshot} over"),
        CoordinatorMessage::Copy(snapshot) => {
            let holders: Vec<u64> = snapshot.holders.iter().flatten().map(|holder| holder.worker.get()).collect();
            format!("copy {} from {holders:?}", snapshot.id)
        }
        CoordinatorMessage::Released { step } => format!("released at {step}"),
        CoordinatorMessage::Renewed { .. } => "renewed".to_owned(),
        CoordinatorMessage::Complete { step, .. } => format!("complete {step}"),
        CoordinatorMessage::Dismiss { .. } => "dismiss".to_owned(),
    }
}

fn numbers(workers: &[WorkerId]) -> Vec<u64> {
    workers.iter().map(|worker| worker.get()).collect()
}

fn serve_words(serve: &Serve) -> String {
    let joiners = match &serve.joiners {
        Joiners::Only(joiners) => format!("{:?}", numbers(joiners)),
        Joiners::Changed { came, gone } => format!("+{:?} -{:?}", numbers(came), numbers(gone)),
    };
    let Some(snapshot) = serve.snapshot else {
        return format!("serve {joiners}");
    };
    let shares = match serve.shares {
        Needed::Yes => "all",
        Needed::No => "no shares",
    };
    format!("serve {joiners} {snapshot}, {shares}, sums from {}", serve.sums_from)
}

fn event_words(event: &JobEvent) -> String {
    match event {
        JobEvent::Worker(WorkerEvent::Joined { worker, step }) => format!("joined w{} at {step}", worker.get()),
        JobEvent::Fenced { own, by } => format!("{own} fenced by {by}"),
        JobEvent::Generation(GenerationEvent::Adopted {
            generation,
            members,
            step,
        }) => {
            let members: Vec<u64> = members.iter().map(|member| member.get()).collect();
            format!("adopted {generation} of {members:?} at {step}")
        }
        JobEvent::Worker(WorkerEvent::Lost {
            worker, cause, stage, ..
        }) => format!("lost w{} while {stage}: {cause}", worker.get()),
        JobEvent::Worker(WorkerEvent::Leaving { worker, .. }) => format!("leaving w{}", worker.get()),
        JobEvent::Worker(WorkerEvent::Left { worker, step }) => format!("left w{} at {step}", worker.get()),
        JobEvent::Snapshot { step, holders } => format!("snapshot of {step} with {holders}"),
        JobEvent::Worker(WorkerEvent::CaughtUp { worker, step }) => format!("caught up w{} at {step}", worker.get()),
        JobEvent::Worker(WorkerEvent::CoolsDown { worker, wait }) => {
            format!("w{} cools down for {} s", worker.get(), wait.as_secs())
        }
        JobEvent::Worker(WorkerEvent::JoinsAnew { worker, reason }) => format!("joins anew w{}: {reason}", worker.get()),
        JobEvent::Worker(WorkerEvent::Held { worker }) => format!("held for w{}", worker.get()),
        JobEvent::Generation(GenerationEvent::Switched {
            generation,
            members,
            step,
            ..
        }) => format!("switched to {generation} of {:?} at {step}", numbers(members)),
        JobEvent::Generation(GenerationEvent::Halting { generation }) => format!("halting for {generation}"),
        JobEvent::Generation(GenerationEvent::Forming {
            generation,
            members,
            step,
            ..
        }) => format!("forming {generation} of {:?} at {step}", numbers(members)),
        JobEvent::Generation(GenerationEvent::Formed { generation, .. }) => format!("formed {generation}"),
        JobEvent::Generation(GenerationEvent::Resumed { generation, step, .. }) => {
            format!("resumed {generation} with {step}")
        }
        JobEvent::Steps(reports) => {
            let steps: Vec<Step> = reports.iter().map(|report| report.step).collect();
            format!("steps {steps:?}")
        }
        JobEvent::Waiting { have, need } => format!("waiting: {have} here, needs {need}"),
        JobEvent::StateLost { reached, from } => format!("state lost: {reached} reached, again from {from}"),
        JobEvent::Checkpoint(CheckpointEvent::DepotCame { depot, .. }) => format!("depot {} came", depot.get()),
        JobEvent::Checkpoint(CheckpointEvent::DepotLost { depot, .. }) => format!("depot {} lost", depot.get()),
        JobEvent::Checkpoint(CheckpointEvent::DepotRefused { depot, reason, .. }) => {
            format!("depot {} refused: {reason}", depot.get())
        }
        JobEvent::Checkpoint(CheckpointEvent::Saved { key, hosts, wanted, .. }) => {
            format!("saved {} on {hosts} of {wanted}", key.step)
        }
        JobEvent::Checkpoint(CheckpointEvent::NotSaved { step, reason }) => format!("not saved {step}: {reason}"),
        JobEvent::Checkpoint(CheckpointEvent::Resumes { key, passed_over }) => {
            format!("resumes from {}, passing over {}", key.step, passed_over.len())
        }
        JobEvent::Checkpoint(CheckpointEvent::NotRestored { key, reason, .. }) => {
            format!("not restored {}: {reason}", key.step)
        }
        JobEvent::NotRecorded { .. } | JobEvent::RecordedAgain { .. } => unreachable!("the machine writes nothing"),
        JobEvent::Done(summary) => format!("done at {} with {:?}", summary.step, summary.hash),
        JobEvent::Failed { reason } => format!("failed: {reason}"),
    }
}
