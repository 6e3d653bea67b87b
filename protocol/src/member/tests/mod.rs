//! A worker's machine, one story per test: events in, commands out.

mod changes;
mod drains;
mod ends;
mod group;
mod halts;
mod joins;
mod lineages;
mod saving;
mod snapshots;

use std::net::{Ipv4Addr, SocketAddr};

use super::{Command, Event, Followed, Heartbeat, Lacking, Member, NetworkCommand, Work};
use crate::job::{Compression, JobSpec, LastBatch, Order};
use crate::lineage::WantedSum;
use crate::messages::{CatchUp, CoordinatorMessage, Form, MemberAddress, StepReport, Trailer, WorkerMessage};
use crate::plan::{Part, Plan, Visit};
use crate::snapshot::SnapshotId;
use crate::state::StateHash;
use crate::words::{Generation, Incarnation, Rank, ShardRange, Step, WorkerId};

/// K, two each for two workers.
const SHARDS: u32 = 4;

/// How many sums a worker may keep for joiners that follow.
const KEEPS: u32 = 3;

fn spec() -> JobSpec {
    JobSpec {
        name: "test".to_owned(),
        seed: 1,
        shards: SHARDS,
        steps: Step::new(10),
        samples: 64,
        batch: 16,
        last_batch: LastBatch::Short,
        order: Order::Exact,
        compression: Compression::None,
        data: crate::data::DataFingerprint::default(),
    }
}

fn worker() -> Member {
    Member::new(&spec(), KEEPS)
}

fn g(count: u64) -> Generation {
    Generation::new(Incarnation::new(1), count)
}

fn s(step: u64) -> Step {
    Step::new(step)
}

/// A step's sum, of which there is one in exact order.
fn sum_to_come(step: u64) -> WantedSum {
    WantedSum {
        step: s(step),
        before: Generation::NONE,
    }
}

fn snapshot(count: u64, step: u64) -> SnapshotId {
    SnapshotId {
        generation: g(count),
        step: s(step),
    }
}

fn shards(start: u32, end: u32) -> ShardRange {
    ShardRange::new(start, end)
}

fn visits(parts: &[(u32, ShardRange)]) -> Vec<Visit> {
    let visit = |&(rank, shards)| Visit {
        rank: Rank::new(rank),
        shards,
    };
    parts.iter().map(visit).collect()
}

fn member(rank: u32) -> MemberAddress {
    MemberAddress {
        worker: WorkerId::new(u64::from(rank) + 1),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
    }
}

/// What rank `rank` does where these ranks compute these shards.
fn part(rank: u32, shards: &[(u32, ShardRange)]) -> Part {
    let world = shards.iter().map(|(rank, _)| rank + 1).max().unwrap_or(0);
    Plan::new(Order::Exact, world, &visits(shards)).parts()[rank as usize].clone()
}

/// The seat `rank` in a generation in which these ranks compute these shards.
fn seat_of(count: u64, rank: u32, step: u64, [first, steady]: [&[(u32, ShardRange)]; 2]) -> Form {
    let members = (0..).map(member).take(steady.len()).collect();
    let both = [visits(first), visits(steady)];
    Form::all(g(count), Order::Exact, s(step), members, both).swap_remove(rank as usize)
}

/// The seat `rank` among two, from step `step`.
fn pair(count: u64, rank: u32, step: u64) -> Form {
    let halves = [(0, shards(0, 2)), (1, shards(2, 4))];
    seat_of(count, rank, step, [&halves; 2])
}

/// The only seat, from step `step`.
fn single(count: u64, step: u64) -> Form {
    seat_of(count, 0, step, [&[(0, shards(0, 4))]; 2])
}

/// A worker that sits at `rank` among two in g1, at step 0.
fn seated(rank: u32) -> Member {
    let mut worker = worker();
    form(&mut worker, pair(1, rank, 0));
    worker
}

/// The same, one step behind the others: rank `from` has the sum.
fn lacks_sum(form: Form, from: u32) -> Form {
    let catch_up = CatchUp::Sum { from: Rank::new(from) };
    Form { catch_up, ..form }
}

/// The same, without the state of the others: rank `from` has it.
fn lacks_state(form: Form, from: u32) -> Form {
    let catch_up = CatchUp::State { from: Rank::new(from) };
    Form { catch_up, ..form }
}

fn form(worker: &mut Member, form: Form) -> Vec<Command> {
    worker.handle(Event::Ordered(CoordinatorMessage::Form(Box::new(form))))
}

fn prepare(worker: &mut Member, form: Form) -> Vec<Command> {
    worker.handle(Event::Ordered(CoordinatorMessage::Prepare(Box::new(form))))
}

fn halt(worker: &mut Member, count: u64) -> Vec<Command> {
    worker.handle(Event::Ordered(CoordinatorMessage::Halt { generation: g(count) }))
}

/// The ring of g`count` has the sum of `step`.
fn summed(worker: &mut Member, count: u64, step: u64, trailer: Trailer) -> Vec<Command> {
    worker.handle(Event::Summed {
        generation: g(count),
        step: s(step),
        trailer,
    })
}

/// The closer of g`count` is asked to say this in its next trailer.
fn close_with(worker: &mut Member, count: u64, trailer: Trailer) -> Vec<Command> {
    let generation = g(count);
    worker.handle(Event::Ordered(CoordinatorMessage::CloseWith { generation, trailer }))
}

fn fetched(worker: &mut Member, count: u64, step: u64) -> Vec<Command> {
    worker.handle(Event::Fetched {
        generation: g(count),
        step: s(step),
    })
}

/// The trainer computes one gradient, which must be this one.
fn compute(worker: &mut Member, shard: u32) -> Vec<Command> {
    let work = worker.next_work();
    let Work::Gradient {
        step,
        piece,
        shard: found,
        ..
    } = work
    else {
        panic!("expected the gradient of shard {shard}, found {work:?}");
    };
    assert_eq!(found, shard);
    worker.handle(Event::Computed { step, piece, shard })
}

fn compute_all(worker: &mut Member, shards: ShardRange) -> Vec<Command> {
    shards.iter().flat_map(|shard| compute(worker, shard)).collect()
}

/// The trainer applies the sum, which must be that of `step`.
fn apply(worker: &mut Member, step: u64) -> Vec<Command> {
    assert_eq!(worker.next_work(), Work::Apply { step: s(step) });
    assert_eq!(worker.next_work(), Work::Wait, "the trainer is busy");
    worker.handle(Event::Applied { report: report(step) })
}

/// The trainer concludes, which it must be asked to at `step`.
fn conclude(worker: &mut Member, step: u64) -> Vec<Command> {
    assert_eq!(worker.next_work(), Work::Conclude { step: s(step) });
    worker.handle(Event::Concluded {
        hash: hash(step),
        results: vec![],
    })
}

/// The member at `rank` of two goes through this step of g1, which is closed like this.
fn steps(worker: &mut Member, rank: u32, step: u64, trailer: Trailer) -> Vec<Command> {
    compute_all(worker, shards(rank * 2, rank * 2 + 2));
    let _ = summed(worker, 1, step, trailer);
    apply(worker, step)
}

/// The only member goes through this step.
fn steps_alone(worker: &mut Member, step: u64) -> Vec<Command> {
    compute_all(worker, shards(0, SHARDS));
    apply(worker, step)
}

/// The trainer loads the state at `step`.
fn load(worker: &mut Member, step: u64) -> Vec<Command> {
    assert_eq!(worker.next_work(), Work::Load { step: s(step) });
    worker.handle(Event::Loaded)
}

fn link_broken(worker: &mut Member, count: u64, peer: u64) -> Vec<Command> {
    worker.handle(Event::LinkBroken {
        generation: g(count),
        peer: WorkerId::new(peer),
    })
}

fn beat(worker: &mut Member, heartbeat: Heartbeat) -> Vec<Command> {
    worker.handle(Event::Beat { heartbeat })
}

fn report(step: u64) -> StepReport {
    StepReport {
        step: s(step),
        samples: 16,
        sums: vec![0.5],
    }
}

/// The hash of the state at `step`.
fn hash(step: u64) -> StateHash {
    StateHash::of(&step.to_le_bytes())
}

/// The sum, or state, at hand is taken, and closed with nothing special.
fn accept() -> Command {
    Command::Accept {
        trailer: Trailer::Continue,
    }
}

/// What is said, in words that are short enough to compare.
fn said(commands: &[Command]) -> Vec<String> {
    let words = |message: &WorkerMessage| match message {
        WorkerMessage::Halted { generation, standing } => {
            format!("halted {generation} at {} with {:?}", standing.step, standing.kept)
        }
        WorkerMessage::Ready { generation } => format!("ready {generation}"),
        WorkerMessage::Progress {
            generation,
            step,
            reports,
            ..
        } => {
            let reports: Vec<Step> = reports.iter().map(|report| report.step).collect();
            format!("progress {generation} {step} {reports:?}")
        }
        WorkerMessage::Finished {
            generation, step, hash, ..
        } => format!("finished {generation} {step} {hash:?}"),
        WorkerMessage::LinkBroken { generation, peer } => {
            format!("link broken {generation} w{}", peer.get())
        }
        WorkerMessage::Switched { generation, step } => format!("switched {generation} at {step}"),
        WorkerMessage::RoomMade { generation } => format!("room made {generation}"),
        WorkerMessage::Hashing { snapshot } => format!("hashing {snapshot}"),
        WorkerMessage::Snapshotted { snapshot, shares } => {
            let shares: Vec<u32> = shares.iter().map(|(index, _)| *index).collect();
            format!("snapshotted {snapshot} {shares:?}")
        }
        WorkerMessage::Saved { snapshot, .. }
        | WorkerMessage::Saving { snapshot, .. }
        | WorkerMessage::NotSaved { snapshot, .. } => format!("of saving {snapshot}"),
        WorkerMessage::NotRestored { generation, .. } => format!("not restored {generation}"),
        WorkerMessage::Dropped { snapshot } => format!("dropped {snapshot}"),
        WorkerMessage::CaughtUp { snapshot, step } => format!("caught up from {snapshot} {step}"),
        WorkerMessage::Copying { snapshot } => format!("copying {snapshot}"),
        WorkerMessage::CopyFailed { snapshot, reason } => {
            format!("copy of {snapshot} failed: {reason}")
        }
        WorkerMessage::Leave { reason } => format!("leave: {reason}"),
        WorkerMessage::Renew { .. } => "renew".to_owned(),
        WorkerMessage::Failed { reason } => format!("failed: {reason}"),
        WorkerMessage::Links(report) => format!("{} lines about links", report.lines.len()),
        WorkerMessage::DeviceMemory(memory) => format!("of a GPU's memory {}", memory.held),
        WorkerMessage::GivenUp { generation } => format!("given up {generation}"),
    };
    let said = |command: &Command| {
        if let Command::Send(message) = command {
            Some(words(message))
        } else {
            None
        }
    };
    commands.iter().filter_map(said).collect()
}
