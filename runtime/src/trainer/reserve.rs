//! Tests: one piece of memory holds each state that comes, and each copy of this one.

use sardana_actors::worker::{CopyReply, SavedState};
use sardana_protocol::snapshot::Share;

use super::*;
use crate::model::save;
use crate::model::toys::{Line, line_spec};

fn prepared() -> Prepared<Line> {
    prepare(&line_spec(1), |_| Ok(Line::default())).unwrap()
}

#[test]
fn what_the_probe_copied_the_state_to_is_for_copies_and_for_states_that_come() {
    let mut prepared = prepared();
    let (bytes, place) = (prepared.reserve.len(), prepared.reserve.as_ptr());
    assert_eq!(bytes, prepared.facts.pieces.bytes());
    let saved = save(&prepared.model).unwrap();
    let (driver, _outbox) = StepDriver::new(&line_spec(1), Arc::clone(&prepared.layout), None);
    let mut training = Training::begin(&mut prepared, &driver, Copies::at_once());
    assert!(training.prepared.reserve.is_empty(), "it is given away");

    for _ in 0..2 {
        // Two shares of three, as a snapshot of three members has them.
        let shares: Vec<Share> = [2, 0].map(|index| Share { index, of: 3 }).into();
        let (reply, mut copied) = CopyReply::new();
        let copy = Task::Copy {
            shares,
            room: None,
            reply,
        };
        assert!(training.perform(copy).unwrap().is_continue());
        let copied = copied.try_recv().unwrap();
        assert_eq!(copied[0].as_ptr(), place);
        assert_ne!(driver.reserve().whole(bytes).as_ptr(), place, "it is held");
        drop(copied);

        let mut state = driver.reserve().whole(bytes);
        assert_eq!(state.as_ptr(), place, "nothing of the copy is held");
        state.copy_from_slice(&saved);
        let load = Task::Load {
            step: Step::ZERO,
            state: SavedState {
                bytes: driver.reserve().read_only(state),
                shares: vec![],
                compared_here: true,
            },
        };
        assert!(training.perform(load).unwrap().is_continue());
    }
    assert_eq!(driver.reserve().whole(bytes).as_ptr(), place, "the state that came is loaded");
}

#[test]
fn room_that_was_made_for_other_shares_serves_if_it_is_enough() {
    let reserve = Reserve::default();
    let made = reserve.room(7);
    let place = made.as_ref().as_ptr();
    let room = room_for_copies(Some(made), reserve.clone())(5);
    assert_eq!((room.as_ref().as_ptr(), room.as_ref().len()), (place, 5));
    assert_eq!(room_for_copies(Some(room), reserve.clone())(9).as_ref().len(), 9);
    assert_eq!(room_for_copies(None, reserve)(5).as_ref().len(), 5);
}
