//! The step driver with the training thread and the ring played by the test.

mod asking;
mod beside;
mod far;
mod helping;
mod keeping;
mod switching;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use futures_util::FutureExt;
use sardana_collectives::gradient::{GradientView, Sum};
use sardana_collectives::ring::RingInput;
use sardana_protocol::job::Order;
use sardana_protocol::messages::{CatchUp, CoordinatorMessage, Form, MemberAddress, Trailer};
use sardana_protocol::plan::Visit;
use sardana_protocol::samples;
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{Generation, Incarnation, Rank, WorkerId};

use super::*;

use crate::testing::{self, apply, compute};

const SHARDS: u32 = 4;

fn driver(steps: u64, order: Order) -> (Arc<StepDriver>, Outbox) {
    testing::driver(&JobSpec {
        shards: SHARDS,
        steps: Step::new(steps),
        order,
        ..samples::spec()
    })
}

fn generation(count: u64) -> Generation {
    Generation::new(Incarnation::new(1), count)
}

#[test]
fn a_heartbeat_tells_how_many_bytes_were_moved() {
    let (driver, mut outbox) = driver(3, Order::Exact);
    let mut told = || {
        driver.beat(Heartbeat::Due(None));
        match outbox.messages.try_recv() {
            Ok(WorkerMessage::Progress { moved, .. }) => moved,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(), 0);
    driver.moved(7);
    driver.moved(5);
    assert_eq!(told(), 12);
    assert_eq!(told(), 12);
}

#[test]
fn what_is_said_after_a_connection_is_lost_goes_to_the_next_and_nothing_before_does() {
    let (driver, outbox) = driver(3, Order::Exact);
    let mut before = outbox.messages;
    let say = |reason: &str| {
        driver.say(WorkerMessage::Leave {
            reason: reason.to_owned(),
        });
    };
    let said = |queue: &mut mpsc::UnboundedReceiver<WorkerMessage>| {
        let mut all = Vec::new();
        while let Ok(WorkerMessage::Leave { reason }) = queue.try_recv() {
            all.push(reason);
        }
        all
    };
    say("sent");
    assert_eq!(said(&mut before), ["sent"]);
    say("lost with its connection");
    let mut after = driver.hang_up();
    say("while none is there");
    say("and more of it");
    assert_eq!(said(&mut before), ["lost with its connection"]);
    assert!(before.is_closed(), "nothing comes to it any more");
    assert_eq!(said(&mut after), ["while none is there", "and more of it"]);
    // No task listens any more.
    drop(driver.hang_up());
    say("nothing");
    assert_eq!(said(&mut after), Vec::<String>::new());
}

fn halt(count: u64) -> Event {
    let generation = generation(count);
    Event::Ordered(CoordinatorMessage::Halt { generation })
}

/// The order for rank `rank` when the ranks' shares end at `ends`.
fn form(count: u64, rank: u32, ends: &[u32], step: u64) -> Event {
    form_in(Order::Exact, count, rank, ends, step)
}

fn form_in(order: Order, count: u64, rank: u32, ends: &[u32], step: u64) -> Event {
    let visit = |(index, &end): (usize, &u32)| Visit {
        rank: Rank::new(index as u32),
        shards: ShardRange::new(index.checked_sub(1).map_or(0, |before| ends[before]), end),
    };
    let visits: Vec<Visit> = ends.iter().enumerate().map(visit).collect();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let member = |id| MemberAddress {
        worker: WorkerId::new(id),
        address,
    };
    let members = (0..ends.len() as u64).map(member).collect();
    let mut forms = Form::all(generation(count), order, Step::new(step), members, [visits.clone(), visits]);
    Event::Ordered(CoordinatorMessage::Form(Box::new(forms.swap_remove(rank as usize))))
}

/// The inbox of the ring that was asked for last.
fn ring(outbox: &mut Outbox) -> mpsc::UnboundedReceiver<RingInput> {
    let mut last = None;
    while let Ok(command) = outbox.commands.try_recv() {
        if let ActorCommand::Connect { inbox, .. } = command {
            last = Some(inbox);
        }
    }
    last.expect("a ring was asked for")
}

/// What a ring would do with one step: takes the room for the sum and `count` pieces, and hands in some sum.
fn sum(driver: &StepDriver, inbox: &mut mpsc::UnboundedReceiver<RingInput>, generation: Generation, count: usize) {
    let (mut room, mut pieces) = (None, Vec::new());
    while room.is_none() || pieces.len() < count {
        match inbox.try_recv().expect("the ring was told of the step") {
            RingInput::Begin { into, .. } => room = Some(into),
            RingInput::Piece { gradient, .. } => pieces.push(gradient),
            RingInput::CloseWith(_) => {}
        }
    }
    let step = driver.read(Member::step);
    drop(pieces);
    driver.summed(CompletedSum {
        generation,
        step,
        sum: Sum::from_buffer(step, room.unwrap()),
        trailer: Trailer::Continue,
    });
}

#[test]
fn a_lone_worker_computes_adds_applies_and_concludes() {
    let (driver, _outbox) = driver(2, Order::Exact);
    driver.handle(form(1, 0, &[SHARDS], 0));
    for step in 0..2 {
        for shard in 0..SHARDS {
            let (piece, computed, _) = compute(&driver, driver.next());
            assert_eq!((piece, computed), (ShardRange::new(0, SHARDS), shard));
        }
        let sum = apply(&driver, driver.next());
        let mean = sum.sum().mean(driver.layout()).f64(0).unwrap();
        assert_eq!(mean, [(1.0 + 2.0 + 3.0) / 4.0, step as f64, 1.0]);
    }
    assert!(matches!(driver.next(), Task::Conclude { step } if step == Step::new(2)));
    driver.end();
    assert!(matches!(driver.next(), Task::End));
}

#[test]
fn buffers_are_used_again_and_do_not_pile_up() {
    let (driver, mut outbox) = driver(1_000, Order::Exact);
    driver.handle(form(1, 1, &[1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    let mut places = BTreeSet::new();
    for _ in 0..200 {
        for _ in 1..SHARDS {
            places.insert(compute(&driver, driver.next()).2);
        }
        sum(&driver, &mut inbox, generation(1), 3);
        drop(apply(&driver, driver.next()));
        assert!(driver.lock().buffers.free.len() <= 3 + 2);
    }
    assert!(
        places.len() <= 3 + 2,
        "three gradients were written to {} places",
        places.len()
    );
    // A share that has shrunk needs fewer.
    driver.handle(halt(2));
    driver.handle(form(2, 1, &[3, SHARDS], 200));
    assert!(driver.lock().buffers.free.len() <= 1 + 2);
}

#[test]
fn what_a_given_up_ring_still_reads_is_not_rewritten() {
    let (driver, mut outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 1, &[1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    compute(&driver, driver.next());
    compute(&driver, driver.next());
    let mut held = Vec::new();
    while let Ok(input) = inbox.try_recv() {
        if let RingInput::Piece { gradient, shards, .. } = input {
            held.push((shards, written(&gradient).unwrap().to_vec(), gradient));
        }
    }
    assert_eq!(held.len(), 2);
    // Shard 1 goes to another rank, shard 2 stays, and the steps go on; the old ring's task has not noticed yet.
    driver.handle(halt(2));
    driver.handle(form(2, 1, &[2, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    compute(&driver, driver.next());
    for step in 0..5 {
        sum(&driver, &mut inbox, generation(2), 2);
        drop(apply(&driver, driver.next()));
        if step < 4 {
            compute(&driver, driver.next());
            compute(&driver, driver.next());
        }
    }
    for (shards, bytes, gradient) in held {
        assert_eq!(
            written(&gradient),
            Some(&bytes[..]),
            "the gradient of shards {shards} was rewritten"
        );
    }
}

/// What can be read of a gradient of one chunk.
fn written(gradient: &GradientView) -> Option<&[u8]> {
    gradient.chunk(0).now_or_never()?.ok()
}

#[test]
fn a_ring_has_a_gradient_before_it_is_computed_and_cannot_end_with_it_before_it_is_counted() {
    let (driver, mut outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 1, &[3, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    assert!(matches!(inbox.try_recv(), Ok(RingInput::Begin { .. })));
    let Task::Gradient {
        step,
        piece,
        shard,
        mut buffer,
        mode,
    } = driver.next()
    else {
        panic!("a step begins with a gradient");
    };
    let Ok(RingInput::Piece { gradient, shards, .. }) = inbox.try_recv() else {
        panic!("the ring may begin with what is written");
    };
    assert_eq!(shards, piece);
    let mut writer = buffer.writer(driver.layout(), mode);
    writer.write_f64(0, &[1.0, 2.0, 3.0]).unwrap();
    writer.samples(1).unwrap();
    writer.finish().unwrap();
    assert_eq!(written(&gradient), None, "it is not counted");
    driver.computed(Gradient {
        step,
        piece,
        shard,
        buffer: Some(buffer),
    });
    assert_eq!(driver.read(Member::tally).total, 1);
    assert!(written(&gradient).is_some());
    assert!(inbox.try_recv().is_err(), "it is offered once");
}

#[test]
fn a_gradient_that_an_earlier_ring_was_offered_is_offered_to_the_next_one() {
    let (driver, mut outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 1, &[3, SHARDS], 0));
    let task = driver.next();
    driver.handle(halt(2));
    driver.handle(form(2, 1, &[3, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    while inbox.try_recv().is_ok() {}
    compute(&driver, task);
    assert!(matches!(inbox.try_recv(), Ok(RingInput::Piece { gradient, .. }) if written(&gradient).is_some()));
}

#[test]
fn a_sum_that_came_before_the_halt_is_applied_and_one_that_came_after_is_not() {
    let (driver, mut outbox) = driver(10, Order::Exact);
    driver.handle(form(1, 1, &[1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    for _ in 1..SHARDS {
        compute(&driver, driver.next());
    }
    sum(&driver, &mut inbox, generation(1), 3);
    driver.handle(halt(2));
    drop(apply(&driver, driver.next()));
    assert!(driver.sum_of(testing::sum(0)).is_some(), "kept for members that are behind");
    let mut halted = None;
    while let Ok(message) = outbox.messages.try_recv() {
        if let WorkerMessage::Halted { standing, .. } = message {
            halted = Some(standing);
        }
    }
    assert_eq!(halted.unwrap().step, Step::new(1));
    let late = CompletedSum {
        generation: generation(1),
        step: Step::new(1),
        sum: Sum::from_buffer(Step::new(1), GradientBuffer::zeros(driver.layout())),
        trailer: Trailer::Continue,
    };
    driver.summed(late);
    compute(&driver, driver.next());
    assert_eq!(driver.read(Member::step), Step::new(1));
}

#[test]
fn in_fast_order_a_run_of_shards_shares_one_buffer() {
    let (driver, mut outbox) = driver(3, Order::Fast);
    driver.handle(form_in(Order::Fast, 1, 1, &[1, SHARDS], 0));
    let mut inbox = ring(&mut outbox);
    let places: BTreeSet<usize> = (1..SHARDS).map(|_| compute(&driver, driver.next()).2).collect();
    assert_eq!(places.len(), 1);
    sum(&driver, &mut inbox, generation(1), 1);
    drop(apply(&driver, driver.next()));
}
