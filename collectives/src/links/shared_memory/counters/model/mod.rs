//! Both ends as they ship, over the integers of a model checker: it tries the orders in which they can act, and the old values that the
//! memory model lets one of them see. That it would find a fault is shown by faults.
//!
//! A slot holds a number, which the reader takes out of it: whoever sees a slot too early, or too long, sees another one. Every wait of the
//! model sleeps at once, and an end that nobody wakes is a deadlock.

mod bell;
mod memory;

use std::cell::Cell;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures_util::FutureExt;
use loom::thread;

use super::*;
use bell::Bell;
use memory::{End, Fault, Said, View};

/// What a slot holds that is the writer's.
const EMPTY: u64 = 0;

/// How a link ends after its frames. An end that says it keeps its socket open, so that no closed socket wakes whom a ring should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    WriterFinishes,
    WriterResets,
    /// It finishes, and closes its socket.
    WriterLeaves,
    /// It says nothing: its socket does.
    WriterKilled,
    /// The same, between counting its last frame and ringing.
    WriterKilledWithin,
    ReaderRefuses,
    ReaderKilled,
}

/// The writer's part: frame `number` is the number after it. Where the reader ends the link it goes on until it sees that.
fn write<const FRAMES: usize, const SLOTS: usize>(view: View<FRAMES, SLOTS>, frames: u64, ending: Ending) {
    let bell = Bell::new(view.again());
    let mut writer = Writer::new(view);
    let reader_ends = matches!(ending, Ending::ReaderRefuses | Ending::ReaderKilled);
    while reader_ends || writer.next() < frames {
        if let Err(over) = room(&writer, &bell) {
            assert!(reader_ends && over == Over::Refused, "{over:?}");
            return;
        }
        let number = writer.take_slot();
        let view = writer.memory();
        assert_eq!(view.slot(number), EMPTY, "the slot is still the reader's");
        view.put(number, number + 1);
        if ending == Ending::WriterKilledWithin && number + 1 == frames {
            bell.kill();
        }
        writer.count(&bell);
    }
    match ending {
        Ending::WriterFinishes => writer.end(State::Finished, &bell),
        Ending::WriterResets => writer.end(State::Reset, &bell),
        Ending::WriterLeaves => {
            writer.end(State::Finished, &bell);
            bell.close();
        }
        Ending::WriterKilled | Ending::WriterKilledWithin => bell.close(),
        Ending::ReaderRefuses | Ending::ReaderKilled => unreachable!("the writer goes on until it is refused"),
    }
}

/// The reader's part.
fn read<const FRAMES: usize, const SLOTS: usize>(view: View<FRAMES, SLOTS>, frames: u64, ending: Ending) {
    let bell = Bell::new(view.again());
    let mut reader = Reader::new(view);
    let over = loop {
        let last = reader.next() == frames;
        if last && ending == Ending::ReaderRefuses {
            return reader.end(&bell);
        }
        if last && ending == Ending::ReaderKilled {
            return bell.close();
        }
        if let Err(over) = frame(&reader, &bell) {
            break over;
        }
        let (view, number) = (reader.memory(), reader.slot());
        assert_eq!(view.slot(number), number + 1, "the frame is not the one that was written");
        view.put(number, EMPTY);
        reader.count_with_slot();
    };
    assert_eq!(reader.next(), frames, "frames are lost");
    let finished = matches!(ending, Ending::WriterFinishes | Ending::WriterLeaves);
    assert_eq!(over, if finished { Over::Finished } else { Over::Reset });
}

fn room<const FRAMES: usize, const SLOTS: usize>(
    writer: &Writer<View<FRAMES, SLOTS>>,
    bell: &Bell<FRAMES, SLOTS>,
) -> Result<(), Over> {
    let view = writer.memory();
    let frames = FRAMES as u64;
    let waited = if view.has(Fault::LooksOnce(End::Sender)) {
        let has_room = || Ok(writer.unread()? < frames);
        wait(view, view.own(), bell, once(has_room), Over::Refused).now_or_never()
    } else {
        writer.room(frames, bell).now_or_never()
    };
    waited.expect("the model's bell sleeps in place")?;
    let waited = writer.free_slot(bell).now_or_never();
    waited.expect("the model's bell sleeps in place")
}

fn frame<const FRAMES: usize, const SLOTS: usize>(
    reader: &Reader<View<FRAMES, SLOTS>>,
    bell: &Bell<FRAMES, SLOTS>,
) -> Result<(), Over> {
    let view = reader.memory();
    let waited = if view.has(Fault::LooksOnce(End::Receiver)) {
        reader.wakes(bell)?;
        wait(view, view.own(), bell, once(|| reader.has_frame()), Over::Reset).now_or_never()
    } else {
        reader.frame(bell).now_or_never()
    };
    waited.expect("the model's bell sleeps in place")
}

/// `ready`, but blind each second time: when the end has said that it sleeps.
fn once(ready: impl Fn() -> Result<bool, Over>) -> impl Fn() -> Result<bool, Over> {
    let looked = Cell::new(false);
    move || {
        let blind = looked.replace(!looked.get());
        if blind { Ok(false) } else { ready() }
    }
}

/// Tries all orders in which the threads change places at most `changes` times where they need not. Says how many there were.
fn tried<const FRAMES: usize, const SLOTS: usize>(
    frames: u64,
    ending: Ending,
    fault: Option<Fault>,
    changes: usize,
) -> usize {
    let orders = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&orders);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(changes);
    model.check(move || {
        counted.fetch_add(1, Relaxed);
        let (sender, receiver) = View::<FRAMES, SLOTS>::pair(fault);
        let writing = thread::spawn(move || write(sender, frames, ending));
        let reading = thread::spawn(move || read(receiver, frames, ending));
        writing.join().expect("the model has ended with the first panic");
        reading.join().expect("the model has ended with the first panic");
    });
    orders.load(Relaxed)
}

#[test]
fn every_frame_comes_once_and_in_order_through_one_slot() {
    let orders = tried::<1, 1>(2, Ending::WriterFinishes, None, 3) + tried::<1, 1>(3, Ending::WriterFinishes, None, 3);
    assert!(orders > 10_000, "{orders}");
    tried::<1, 1>(4, Ending::WriterFinishes, None, 2);
}

#[test]
fn every_frame_comes_once_and_in_order_through_two_slots() {
    let orders = tried::<2, 2>(2, Ending::WriterFinishes, None, 3) + tried::<2, 2>(3, Ending::WriterFinishes, None, 3);
    assert!(orders > 10_000, "{orders}");
    tried::<2, 2>(4, Ending::WriterFinishes, None, 2);
}

#[test]
fn every_frame_comes_once_and_in_order_where_there_are_more_places_than_slots() {
    let orders = tried::<2, 1>(2, Ending::WriterFinishes, None, 3) + tried::<2, 1>(3, Ending::WriterFinishes, None, 2);
    assert!(orders > 1_000, "{orders}");
    tried::<4, 1>(4, Ending::WriterFinishes, None, 2);
}

#[test]
fn an_end_that_sleeps_sees_every_way_in_which_the_other_goes() {
    for ending in [
        Ending::WriterResets,
        Ending::WriterLeaves,
        Ending::WriterKilled,
        Ending::WriterKilledWithin,
        Ending::ReaderRefuses,
        Ending::ReaderKilled,
    ] {
        for frames in [0, 1, 2] {
            let orders = tried::<1, 1>(frames, ending, None, 3) + tried::<2, 2>(frames, ending, None, 3);
            assert!(orders > 10, "{ending:?} after {frames} frames: {orders}");
        }
    }
}

#[test]
fn the_model_finds_each_fault() {
    let (early, late) = ("the frame is not the one that was written", "the slot is still the reader's");
    let faults = [
        (Fault::Unreleased(Said::Written), early),
        (Fault::Unacquired(Said::Written), early),
        (Fault::Unreleased(Said::Read), late),
        (Fault::Unacquired(Said::Read), late),
        // That the writer's end is not released is no fault: the fence after its last count is before it.
        (Fault::Unacquired(Said::Over), "frames are lost"),
        (Fault::Unfenced(End::Sender), "deadlock"),
        (Fault::Unfenced(End::Receiver), "deadlock"),
        (Fault::LooksOnce(End::Sender), "deadlock"),
        (Fault::LooksOnce(End::Receiver), "deadlock"),
        (Fault::Silent(End::Sender), "deadlock"),
        (Fault::Silent(End::Receiver), "deadlock"),
    ];
    type Tried = fn(Fault) -> usize;
    let one: Tried = |fault| tried::<1, 1>(3, Ending::WriterFinishes, Some(fault), 3);
    // Here the writer waits for a slot, and never for a frame's place.
    let fewer_slots: Tried = |fault| tried::<2, 1>(2, Ending::WriterFinishes, Some(fault), 3);
    for (fault, expected) in faults {
        let looks_once = fault == Fault::LooksOnce(End::Sender);
        for tried in [Some(one), Some(fewer_slots).filter(|_| !looks_once)].into_iter().flatten() {
            let found = catch_unwind(|| tried(fault)).expect_err("a fault is found");
            let found = found.downcast_ref::<String>().expect("what the model says has values in it");
            assert!(found.contains(expected), "{fault:?}: {found}");
        }
    }
}
