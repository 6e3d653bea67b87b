//! Where a test may kill a coordinator: before and after it says what others rely on. Empty without the feature `fault-points`.

use sardana_protocol::membership::{CheckpointEvent, JobEvent};
use sardana_protocol::messages::{CoordinatorMessage, Trailer};
use sardana_protocol::snapshot::SnapshotId;
use sardana_protocol::words::{Rank, Step};

use crate::fault::{self, COMPILED_IN, Point};

/// The coordinator is about to say this, when the job is known to have come to `step`. Returns where it is once it has said it.
pub(super) fn before(message: &CoordinatorMessage, step: Step) -> Option<Point> {
    if !COMPILED_IN {
        return None;
    }
    let (point, afterwards) = match message {
        CoordinatorMessage::Halt { .. } => (Point::CoordinatorHalt, None),
        CoordinatorMessage::Form(form) if form.rank == Rank::ZERO => (Point::CoordinatorForm, None),
        CoordinatorMessage::Form(_) => (Point::CoordinatorForms, None),
        CoordinatorMessage::CloseWith { trailer, .. } => match trailer {
            Trailer::Snapshot => (Point::CoordinatorSnapshot, None),
            Trailer::Switch(_) => (Point::CoordinatorSwitch, Some(Point::CoordinatorSwitched)),
            Trailer::Continue | Trailer::Stop => return None,
        },
        CoordinatorMessage::Copy(_) => (Point::CoordinatorCopy, None),
        CoordinatorMessage::Prepare(_) => (Point::CoordinatorPrepare, None),
        CoordinatorMessage::Complete { .. } => (Point::CoordinatorComplete, None),
        CoordinatorMessage::Save(_) => (Point::CoordinatorSave, None),
        CoordinatorMessage::Serve(_)
        | CoordinatorMessage::SaveOver { .. }
        | CoordinatorMessage::Released { .. }
        | CoordinatorMessage::Renewed { .. }
        | CoordinatorMessage::Dismiss { .. } => return None,
    };
    fault::reached(point, step);
    afterwards
}

/// It has handed that to the transport.
pub(super) fn after(point: Option<Point>, step: Step) {
    if let Some(point) = point {
        fault::reached(point, step);
    }
}

/// The coordinator is about to have the manifest of this snapshot made.
pub(super) fn before_commit(snapshot: SnapshotId) {
    fault::reached(Point::CoordinatorCommit, snapshot.step);
}

/// The coordinator is about to tell this.
pub(super) fn before_telling(event: &JobEvent) {
    if let JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. }) = event {
        fault::reached(Point::CoordinatorCommitted, key.step);
    }
}
