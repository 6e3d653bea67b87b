//! How long steps took, by the journal of the processes that applied them. For benchmarks.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::journal::{Deed, Journal};

/// The steps of some processes, each with when it ended, in nanoseconds since 1970, and how long it took, in ms.
#[derive(Debug, Clone, Default)]
pub struct Pace(Vec<(u64, f64)>);

impl Pace {
    /// The steps of every process.
    #[must_use]
    pub fn of(journal: &Journal) -> Self {
        let mut last = BTreeMap::new();
        let mut steps = Vec::new();
        let updates = journal.lines.iter().filter(|line| matches!(line.deed, Deed::Update { .. }));
        for line in updates {
            if let Some(before) = last.insert(line.life, line.end_ns) {
                steps.push((line.end_ns, (line.end_ns - before) as f64 / 1e6));
            }
        }
        Self(steps)
    }

    /// How long those steps took, in ms, that were under way between two moments, in nanoseconds since 1970.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = f64> {
        let under_way = move |(end, took): &&(u64, f64)| *end > from && end - (took * 1e6) as u64 <= to;
        self.0.iter().filter(under_way).map(|(_, took)| *took)
    }
}

/// Prints how long steps took in each part of a run, from when to when it was in nanoseconds since 1970, against the first part.
///
/// # Errors
/// When no step was applied in a part.
pub fn print_parts(pace: &Pace, parts: [(&str, (u64, u64)); 3]) -> Result<()> {
    let mut first = None;
    for (what, (from, to)) in parts {
        let mut steps: Vec<f64> = pace.within(from, to).collect();
        ensure!(!steps.is_empty(), "no step was applied {what}");
        let now = [0.5, 0.99, 1.0].map(|share| quantile(&mut steps, share));
        let of = *first.get_or_insert(now);
        println!(
            "  a step {what:<21} median {:>7.2} ms ({:.3} of before), p99 {:>7.2} ms ({:.3}), longest {:>7.2} ms ({:.3})",
            now[0],
            now[0] / of[0],
            now[1],
            now[1] / of[1],
            now[2],
            now[2] / of[2]
        );
    }
    Ok(())
}

/// The smallest of `values`, which this sorts, that is not below a share of all; no number if there are none.
#[must_use]
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64).ceil() as usize;
    values.get(at.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_under_way_in_a_span_are_found() {
        let pace = Pace(vec![(10_000_000, 5.0), (20_000_000, 10.0), (45_000_000, 25.0)]);
        let within = |from, to| pace.within(from, to).collect::<Vec<_>>();
        assert_eq!(within(0, 4_999_999), [0.0; 0]);
        assert_eq!(within(0, 5_000_000), [5.0]);
        assert_eq!(within(10_000_000, 21_000_000), [10.0, 25.0]);
        assert_eq!(within(45_000_000, u64::MAX), [0.0; 0]);
    }

    #[test]
    fn quantiles() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.5), 100.0);
        assert_eq!(quantile(&mut values, 0.99), 198.0);
        assert_eq!(quantile(&mut values, 1.0), 200.0);
        assert!(quantile(&mut [], 0.5).is_nan());
    }
}
