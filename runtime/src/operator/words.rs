//! Single values of a status in the words that people read.

use std::fmt::Write as _;
use std::time::Duration;

use sardana_protocol::job::JobKind;
use sardana_protocol::status::{CheckpointsView, DepotView, Doing, JobStatus, WorkerView};
use sardana_protocol::words::{Pace, WorkerId, count};

/// `text` without control characters: it came over a network, and goes to a terminal.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

pub(super) fn doing(view: &WorkerView) -> &'static str {
    match view.doing {
        _ if view.leaving => "leaving",
        Doing::Waiting => "waiting",
        Doing::Answering => "answering",
        Doing::Training => "training",
        Doing::Standby => "spare",
        Doing::Copying => "copying",
        Doing::Following => "following",
        Doing::Finished => "finished",
        Doing::Calling => "in the group",
    }
}

/// A length of time in two numbers at most.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span < Duration::from_millis(1) => format!("{} µs", span.as_micros()),
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 100.0 => format!("{rate:.0} steps/s"),
        rate if rate >= 1.0 => format!("{rate:.1} steps/s"),
        rate if rate > 0.0 => format!("{:.1} s/step", 1.0 / rate),
        _ => "0 steps/s".to_owned(),
    }
}

/// How long one shard takes, with three digits: workers are compared by it.
pub(super) fn pace(pace: Pace) -> String {
    let each = pace.each();
    let (number, unit) = match each.as_micros() {
        0..1_000 => return format!("{} µs", each.as_micros()),
        1_000..1_000_000 => (each.as_secs_f64() * 1e3, "ms"),
        _ => (each.as_secs_f64(), "s"),
    };
    format!("{} {unit}", three_digits(number))
}

/// A number from 1 up to 1,000 in three digits.
#[must_use]
pub fn three_digits(number: f64) -> String {
    let digits = match number {
        number if number < 9.995 => 2,
        number if number < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$}")
}

/// So many bytes, with three digits.
#[must_use]
pub fn size(bytes: u64) -> String {
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

/// Rows as text in columns; the first row is the columns' names.
#[must_use]
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// How much of the job is done, from 0 to 1. None before the job's length is known, and of a group, whose work has no steps.
pub(super) fn progress(status: &JobStatus) -> Option<f64> {
    let spec = status.spec.as_ref().filter(|spec| spec.kind() != JobKind::Group)?;
    let steps = spec.steps.get().max(1);
    #[expect(clippy::cast_precision_loss, reason = "a part of a bar")]
    let part = status.overview.step.get() as f64 / steps as f64;
    Some(part.clamp(0.0, 1.0))
}

/// How long the rest takes at the present rate, if that can be said.
pub(super) fn rest(status: &JobStatus) -> Option<Duration> {
    let left = status.spec.as_ref()?.steps.get().saturating_sub(status.overview.step.get());
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let seconds = left as f64 / status.steps_per_second;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The auxiliary sums of the newest step by name, each for one sample.
pub(super) fn sums(status: &JobStatus) -> Vec<(String, f64)> {
    let Some(last) = &status.last else { return Vec::new() };
    #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
    let samples = last.samples.max(1) as f64;
    let name = |place: usize| {
        let name = status.auxiliary.get(place).map(|name| plain(name));
        name.unwrap_or_else(|| format!("sum {place}"))
    };
    let sums = last.sums.iter().enumerate();
    sums.map(|(place, sum)| (name(place), sum / samples)).collect()
}

/// The host of a worker, as its agent calls it, and its process there.
pub(super) fn host(status: &JobStatus, worker: WorkerId) -> Option<(&str, Option<u32>)> {
    status.agents.iter().find_map(|agent| {
        let child = agent.children.iter().find(|(child, _)| *child == worker)?;
        Some((agent.host.as_str(), child.1))
    })
}

pub(super) fn round_trip(status: &JobStatus, worker: WorkerId) -> Option<Duration> {
    let mut trips = status.round_trips.iter();
    trips.find_map(|(other, trip)| (*other == worker).then_some(*trip))
}

/// What one worker is, in the columns of [`COLUMNS`].
pub(super) fn row(status: &JobStatus, view: &WorkerView) -> [String; COLUMNS.len()] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        or_dash(view.rank.map(|rank| rank.to_string())),
        view.worker.to_string(),
        or_dash(view.shards.map(|shards| shards.to_string())),
        or_dash(view.pace.map(pace)),
        doing(view).to_owned(),
        view.step.to_string(),
        view.computed.to_string(),
        span(view.silent),
        or_dash(round_trip(status, view.worker).map(span)),
        or_dash(host(status, view.worker).map(|(host, _)| plain(host))),
        view.address.to_string(),
    ]
}

/// What is saved, in one line.
pub(super) fn checkpoints(view: &CheckpointsView) -> String {
    let mut line = match view.newest {
        Some(saved) => format!(
            "checkpoints: {} saved {} ago, whole on {} of {}",
            saved.step,
            span(saved.ago),
            saved.whole,
            count(saved.placed, "host")
        ),
        None => "checkpoints: none yet".to_owned(),
    };
    if view.newest.is_some_and(|saved| saved.placed < view.replicas) {
        let _ = write!(line, " ({} asked for)", view.replicas);
    }
    if let Some((step, since)) = view.writing {
        let _ = write!(line, "; {step} being written for {}", span(since));
    }
    let _ = write!(
        line,
        "; {} committed, {} merged, {} given up, lag at most {}",
        view.committed,
        view.merged,
        view.given_up,
        count(view.largest_lag, "step")
    );
    if view.depots.is_empty() {
        line.push_str("; NO CHECKPOINT ACTOR IS CONNECTED");
    }
    line
}

/// A depot, in one line.
pub(super) fn depot(depot: &DepotView) -> String {
    let (host, address) = (plain(&depot.host), depot.address);
    let checkpoints = count(depot.checkpoints, "checkpoint");
    format!("{host} at {address}, {checkpoints}, {}", depot.depot)
}

/// What is said of each worker.
pub(super) const COLUMNS: [&str; 11] = [
    "rank", "worker", "shards", "a shard", "doing", "step", "computed", "silent", "trip", "host", "address",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = [["a", "long name"], ["bcd", "x"]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "a    long name\nbcd  x\n");
    }

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
    fn spans_and_rates_are_short() {
        let spans = [
            (0, "0 µs"),
            (1_500, "1 ms"),
            (61_000_000, "1 min 1 s"),
            (90_000_000_000, "1 d 1 h"),
        ];
        for (micros, words) in spans {
            assert_eq!(span(Duration::from_micros(micros)), words);
        }
        for (micros, words) in [
            (7, "7 µs"),
            (1_234, "1.23 ms"),
            (23_456, "23.5 ms"),
            (99_960, "100 ms"),
            (234_567, "235 ms"),
            (2_345_678, "2.35 s"),
        ] {
            assert_eq!(pace(Pace::new(Duration::from_micros(micros))), words);
        }
        for (per_second, words) in [
            (250.4, "250 steps/s"),
            (2.25, "2.2 steps/s"),
            (0.05, "20.0 s/step"),
            (0.0, "0 steps/s"),
        ] {
            assert_eq!(rate(per_second), words);
        }
    }
}
