//! Checkpoints in the words that people read.

use std::time::{Duration, SystemTime};

use sardana::checkpoints::{Entry, ManifestKey};

/// A checkpoint's step, and enough of its id to ask for it.
pub(super) fn short(key: ManifestKey) -> String {
    format!("{} ({})", key.step, short_id(key))
}

/// Enough of an id to ask for it.
pub(super) fn short_id(key: ManifestKey) -> String {
    key.id.to_string().chars().take(12).collect()
}

/// `text` without control characters: it comes from a file, and goes to a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

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
    let digits = match number {
        number if number < 9.995 => 2,
        number if number < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$} {unit}")
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

/// Rows in columns, the first of them the names.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
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

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = [["a", "long name"], ["bcd", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "a    long name\nbcd  x\n");
    }
}
