//! Checkpoints in the words that people read.

use std::time::{Duration, SystemTime};

use sardana::checkpoints::Entry;
use sardana::operator::three_digits;

/// So many bytes, with three digits.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut number = bytes as f64 / 1_024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for larger in units {
        if number < 1_023.5 {
            break;
        }
        (number, unit) = (number / 1_024.0, larger);
    }
    format!("{} {unit}", three_digits(number))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (bytes, words) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.00 KiB"),
            (1_536, "1.50 KiB"),
            (20 << 20, "20.0 MiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (500 << 30, "500 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(size(bytes), words);
        }
    }
}
