//! Memory that is spare, until a state comes or a step begins.

use bytes::BytesMut;
use sardana_protocol::member::Command;

use super::*;

const BYTES: usize = 5 << 20;

/// A driver that has not begun a step, and where its spare memory is.
fn waits() -> (Arc<StepDriver>, Outbox, *const u8) {
    let (driver, outbox) = driver(3, Order::Exact);
    let room = BytesMut::zeroed(BYTES);
    let place = room.as_ptr();
    driver.keep_spare(room);
    (driver, outbox, place)
}

#[test]
fn a_state_that_comes_is_put_where_the_last_one_was() {
    let (driver, _outbox, place) = waits();
    let room = driver.state_room(BYTES);
    assert_eq!((room.as_ptr(), room.len()), (place, BYTES));
    let another = driver.state_room(BYTES);
    assert!(another.as_ptr() != place && another.len() == BYTES, "that is in use");
}

#[test]
fn a_state_of_another_length_is_not_put_there() {
    let (driver, _outbox, place) = waits();
    for bytes in [0, BYTES - 1, BYTES + 1] {
        assert_eq!(driver.state_room(bytes).len(), bytes);
    }
    assert_eq!(driver.state_room(BYTES).as_ptr(), place, "it is still there");
}

#[test]
fn memory_is_let_go_of_when_a_step_begins_and_not_at_a_halt() {
    let (driver, _outbox, place) = waits();
    driver.execute(Command::Retain { pieces: vec![] });
    assert!(driver.lock().buffers.spare.is_at(place), "a state may come");
    driver.execute(Command::Retain {
        pieces: vec![ShardRange::new(0, SHARDS)],
    });
    assert!(!driver.lock().buffers.spare.is_at(place));
}
