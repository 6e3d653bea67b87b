//! Checkpoints in the words that people read.

use std::time::{Duration, SystemTime};

use sardana::checkpoints::Entry;
pub(super) use sardana::operator::size;

/// How long ago something was, in two numbers at most.
pub(super) fn ago(then: Option<SystemTime>) -> String {
    let Some(then) = then else { return "-".to_owned() };
    // A clock that was set back.
    let seconds = then.elapsed().unwrap_or(Duration::ZERO).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// On how many hosts it should be, and on how many it was placed.
pub(super) fn hosts(entry: &Entry) -> String {
    entry.manifest.as_ref().map_or_else(
        || "-".to_owned(),
        |manifest| {
            let (wanted, placed) = (manifest.replicas as usize, manifest.depots.len());
            if placed < wanted {
                format!("{placed} of {placed}, not {wanted}")
            } else {
                format!("{wanted} of {placed}")
            }
        },
    )
}
