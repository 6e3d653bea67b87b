//! Times, of a processor and of many repetitions, as numbers and as words. Must not know what took them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What all threads of this process have had of a processor.
pub(super) fn processor() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// The smallest of `values`, which this sorts, that is not below a share of all; no number if there are none.
pub(super) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64).ceil() as usize;
    values.get(at.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

/// Seconds as a person reads them.
pub(super) fn words(seconds: f64) -> String {
    if seconds < 1e-3 {
        format!("{:.1} us", seconds * 1e6)
    } else {
        format!("{:.2} ms", seconds * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.0), 1.0);
        assert_eq!(quantile(&mut values, 0.5), 100.0);
        assert_eq!(quantile(&mut values, 0.99), 198.0);
        assert_eq!(quantile(&mut values, 1.0), 200.0);
        assert!(quantile(&mut [], 0.5).is_nan());
    }

    #[test]
    fn seconds_as_words() {
        assert_eq!((words(0.000_012_3).as_str(), words(0.25).as_str()), ("12.3 us", "250.00 ms"));
    }
}
