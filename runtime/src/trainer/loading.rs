//! Whether a model has the state that it has loaded. Must not know whence that came.

use sardana_actors::worker::SavedState;
use sardana_protocol::snapshot::Share;
use sardana_protocol::words::Step;

use super::{Facts, TrainingError};
use crate::model::{Trainable, hashes_unless_saved, share_hashes_watched};

/// The model must have the state that it has loaded, if that came with hashes.
pub(super) fn check_loaded(
    model: &dyn Trainable,
    facts: &Facts,
    step: Step,
    state: SavedState,
    looked_at: impl Fn(usize),
) -> Result<(), TrainingError> {
    let SavedState {
        bytes,
        shares,
        compared_here,
    } = state;
    let of = u32::try_from(shares.len()).unwrap_or(u32::MAX);
    if of == 0 {
        return Ok(());
    }
    let pieces = &facts.pieces;
    let found = if compared_here {
        hashes_unless_saved(model, (&facts.specs, &bytes), (pieces, of), looked_at)
    } else {
        // Other workers may want the memory meanwhile.
        drop(bytes);
        share_hashes_watched(model, pieces, of, looked_at).map(Some)
    };
    let Some(found) = found.map_err(TrainingError::state_at(step))? else {
        return Ok(());
    };
    match (0..of)
        .zip(shares.iter().zip(found))
        .find(|(_, (expected, found))| *expected != found)
    {
        Some((index, (&expected, found))) => Err(TrainingError::Loaded {
            step,
            share: Share { index, of },
            expected,
            found,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::*;
    use crate::model::toys::{Fault, Line, OnDevice, line_spec};
    use crate::model::{restore, restore_as, save, share_hashes};

    #[test]
    fn a_loaded_state_is_compared_share_by_share() {
        let source = Line {
            w: [1.0, 2.0],
            velocity: [3.0, 4.0],
            ..Line::default()
        };
        let facts = prepare(&line_spec(1), |_| Ok(Line::default())).unwrap().facts;
        let shares = share_hashes(&source, &facts.pieces, 2).unwrap();
        let (step, state) = (Step::new(5), save(&source).unwrap());
        let looked_at = std::cell::Cell::new(0);
        let count = |bytes| looked_at.set(looked_at.get() + bytes);
        let bytes = facts.pieces.bytes();
        let mut good = Line::default();
        restore_as(&mut good, &facts.specs, &state, count).unwrap();
        assert_eq!(looked_at.take(), bytes, "all that is loaded is told");
        let came = |compared_here| SavedState {
            bytes: state.clone().freeze(),
            shares: shares.clone(),
            compared_here,
        };
        for compared_here in [true, false] {
            check_loaded(&good, &facts, step, came(compared_here), count).unwrap();
            assert_eq!(looked_at.take(), bytes, "all that is compared or hashed is told");
            // Its velocity stays as it was: the second of the two shares.
            let mut forgets = Line::faulty(Fault::LoadForgets);
            restore(&mut forgets, &state).unwrap();
            let error = check_loaded(&forgets, &facts, step, came(compared_here), |_| ()).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("share 1 of 2") && error.contains("at s5") && error.contains("STEP-2"),
                "{error}"
            );
        }
        // What came without hashes is not looked at.
        let mut bare = came(true);
        bare.shares.clear();
        check_loaded(&Line::default(), &facts, step, bare, count).unwrap();
        assert_eq!(looked_at.take(), 0);
        // Bytes that were compared elsewhere may be others by now.
        let mut others = came(false);
        others.bytes = save(&Line::default()).unwrap().freeze();
        check_loaded(&good, &facts, step, others, |_| ()).unwrap();
        // One that hashes itself is not shown, and hashes once.
        let on_device = OnDevice(good);
        let shown = on_device.0.shown.get();
        check_loaded(&on_device, &facts, step, came(true), count).unwrap();
        assert_eq!((looked_at.take(), on_device.0.shown.get()), (bytes, shown));
        assert_eq!(on_device.0.hashed.get(), 1);
    }
}
