//! The coordinator's machine without a network.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sardana_net::wire::limits::CONTROL_FRAME_BYTES;
use sardana_protocol::codec::encode;
use sardana_protocol::job::Order;
use sardana_protocol::limits::MAX_SHARDS;
use sardana_protocol::membership::{Arrival, Balance, Command, Config, Event, GenerationEvent, JobEvent, Loss, Membership};
use sardana_protocol::memory::GradientMemory;
use sardana_protocol::messages::{CoordinatorMessage, Introduction, Standing, Tally, WorkerMessage};
use sardana_protocol::state::StateHash;
use sardana_protocol::words::{Generation, Incarnation, Step, WorkerId};

use super::{Cost, Result};

/// The standing of a worker that has had no update yet and holds nothing.
pub(super) fn standing() -> Standing {
    Standing {
        step: Step::ZERO,
        kept: vec![],
        sum: None,
        stop_at: None,
        tally: Tally::default(),
    }
}

pub(super) fn introduction() -> Introduction {
    Introduction {
        generation: Generation::NONE,
        incarnation: Incarnation::ZERO,
        seat: None,
        training: false,
        standing: standing(),
    }
}

/// What a member answers.
pub(super) fn answer(message: &CoordinatorMessage) -> Option<WorkerMessage> {
    match message {
        CoordinatorMessage::Halt { generation } => Some(WorkerMessage::Halted {
            generation: *generation,
            standing: standing(),
        }),
        CoordinatorMessage::Form(form) => Some(WorkerMessage::Ready {
            generation: form.generation,
        }),
        CoordinatorMessage::Prepare(_)
        | CoordinatorMessage::CloseWith { .. }
        | CoordinatorMessage::Serve(_)
        | CoordinatorMessage::Save(_)
        | CoordinatorMessage::SaveOver { .. }
        | CoordinatorMessage::Copy(_)
        | CoordinatorMessage::Released { .. }
        | CoordinatorMessage::Renewed { .. }
        | CoordinatorMessage::Complete { .. }
        | CoordinatorMessage::Dismiss { .. } => None,
    }
}

/// The bytes of a message's payload.
pub(super) fn length<T: serde::Serialize>(message: &T) -> Result<u64> {
    Ok(encode(message, CONTROL_FRAME_BYTES)?.len() as u64)
}

/// Lets members answer until nothing is left to be said. Whether all were ready in the end.
fn settle(machine: &mut Membership, now: Duration, first: Event, cost: &mut Cost) -> Result<bool> {
    let mut formed = false;
    let mut queue = vec![first];
    while !queue.is_empty() {
        for event in std::mem::take(&mut queue) {
            let began = Instant::now();
            let commands = machine.handle(now, event);
            cost.deciding += began.elapsed();
            for command in commands {
                let (worker, message) = match command {
                    Command::Send { worker, message } => (worker, message),
                    Command::Tell(event) => {
                        formed |= matches!(event, JobEvent::Generation(GenerationEvent::Formed { .. }));
                        continue;
                    }
                    Command::Kill { worker } => return Err(format!("{worker} does not hang").into()),
                    Command::Order { .. } | Command::Commit { .. } => return Err("there is no depot".into()),
                };
                let began = Instant::now();
                cost.bytes += length(&message)?;
                cost.encoding += began.elapsed();
                cost.messages += 1;
                if let Some(message) = answer(&message) {
                    cost.bytes += length(&message)?;
                    cost.messages += 1;
                    queue.push(Event::Said { worker, message });
                }
            }
        }
    }
    cost.took = cost.deciding;
    Ok(formed)
}

pub(super) fn measure(members: u32, losses: usize) -> Result<Vec<Cost>> {
    let now = Duration::ZERO;
    let config = Config {
        min: 1,
        expected: members,
        max: members,
        shards: MAX_SHARDS,
        steps: Step::new(1_000_000),
        order: Order::Exact,
        balance: Balance::Off,
        task: StateHash::of(b"x"),
        build: StateHash::of(b"x"),
        saves: None,
    };
    let mut machine = Membership::new(config, Incarnation::new(1), now);
    let mut formed = false;
    for worker in (0..members).map(|id| WorkerId::new(u64::from(id) << 40 | 0x5a5a)) {
        let arrival = Arrival {
            worker,
            address: SocketAddr::from(([10, 0, 0, 1], 40_000)),
            capacity: MAX_SHARDS,
            memory: GradientMemory::unbounded(1),
            introduction: introduction(),
        };
        formed |= settle(&mut machine, now, Event::Arrived(Box::new(arrival)), &mut Cost::default())?;
    }
    let mut costs = Vec::new();
    for lost in (0..losses as u64).map(|id| WorkerId::new(id << 40 | 0x5a5a)) {
        if !formed {
            return Err("not all members became ready".into());
        }
        let cause = Loss::ConnectionLost { why: "lost".to_owned() };
        let mut cost = Cost::default();
        formed = settle(&mut machine, now, Event::Lost { worker: lost, cause }, &mut cost)?;
        costs.push(cost);
    }
    Ok(costs)
}
