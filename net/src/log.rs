//! What is logged of other processes' doing: that they are turned away, or break off what they began. They can do so as often as they like,
//! so that each kind of line is logged only so often: no process fills a disk with lines, nor hides what another one does.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many lines of one kind are logged at once: more than processes enrol at once.
pub const AT_ONCE: u32 = 256;

/// After that one line in this time: some 20 MB a day of each kind.
const EVERY: Duration = Duration::from_secs(1);

/// Logs as `tracing`'s macro of this level does, but only so often from this place. `unsaid`, if it is there: how many were not logged here
/// since the last line.
#[macro_export]
macro_rules! bounded {
    ($level:ident, target: $target:literal, $($what:tt)*) => {
        $crate::log::bounded!(@ |unsaid| ::tracing::$level!(target: $target, unsaid, $($what)*))
    };
    (@ |$unsaid:ident| $log:expr) => {{
        static LINES: $crate::log::Lines = $crate::log::Lines::new();
        if let Some(unsaid) = LINES.one_more(::std::time::Instant::now()) {
            let $unsaid = (unsaid > 0).then_some(unsaid);
            $log;
        }
    }};
    ($level:ident, $($what:tt)*) => {
        $crate::log::bounded!(@ |unsaid| ::tracing::$level!(unsaid, $($what)*))
    };
}
pub use bounded;

/// Logs a refusal so, as a warning or at another level after `at`, with the target that operators filter for.
#[macro_export]
macro_rules! refused {
    (at $level:ident, $($what:tt)*) => { $crate::log::bounded!($level, target: "sardana::event::refused", $($what)*) };
    ($($what:tt)*) => { $crate::log::refused!(at warn, $($what)*) };
}
pub use refused;

/// The lines of one kind.
#[derive(Debug)]
pub struct Lines(Mutex<Allowance>);

#[derive(Debug)]
struct Allowance {
    /// How many may be logged now.
    left: u32,
    /// When the last allowed line was given back. None before the first.
    since: Option<Instant>,
    unsaid: u64,
}

impl Lines {
    /// None was logged yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Allowance {
            left: AT_ONCE,
            since: None,
            unsaid: 0,
        }))
    }

    /// Whether one more line is to be logged, and how many were not since the last.
    pub fn one_more(&self, now: Instant) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).one_more(now)
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

impl Allowance {
    fn one_more(&mut self, now: Instant) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since).as_secs() / EVERY.as_secs();
        if passed > 0 {
            let back = u32::try_from(passed).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(back).min(AT_ONCE);
            self.since = Some(now);
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.unsaid = self.unsaid.saturating_add(1);
            return None;
        };
        self.left = left;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_now_and_then_and_none_of_it_is_lost() {
        let (lines, start) = (Lines::new(), Instant::now());
        let logged = |at: u64, times: u32| -> Vec<u64> {
            let now = start + Duration::from_millis(at);
            (0..times).filter_map(|_| lines.one_more(now)).collect()
        };
        assert_eq!(logged(0, 1_000), [0; AT_ONCE as usize]);
        assert_eq!(logged(999, 64), [0_u64; 0]);
        assert_eq!(logged(1_000, 100), [1_064 - u64::from(AT_ONCE)]);
        assert_eq!(logged(3_500, 3), [99, 0], "two seconds");
        assert_eq!(logged(3_600_000, 1_000).len(), AT_ONCE as usize, "it has become calm");
    }
}
