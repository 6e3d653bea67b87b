//! How long to leave alone what has made its users wait in vain: ten times as long as they have waited, and twice as long each time in a row. Must not know
//! what that is.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{LONGEST_SETBACK, SETBACK_FACTOR};

/// The setbacks that something has had in a row.
#[derive(Debug, Default)]
pub(crate) struct Setbacks(Mutex<Row>);

#[derive(Debug, Default)]
struct Row {
    count: u32,
    until: Option<Instant>,
}

/// It is left alone after so many setbacks in a row, for so long from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftAlone {
    pub(crate) setbacks: u32,
    pub(crate) left: Duration,
}

impl Setbacks {
    /// It was waited for so long, and did not come.
    pub(crate) fn waited_in_vain(&self, waited: Duration) {
        let mut row = self.row();
        let doubled = 1_u32.checked_shl(row.count).unwrap_or(u32::MAX);
        let pause = waited.saturating_mul(SETBACK_FACTOR).saturating_mul(doubled);
        row.count = row.count.saturating_add(1);
        row.until = Some(Instant::now() + pause.min(LONGEST_SETBACK));
    }

    /// It came.
    pub(crate) fn came(&self) {
        *self.row() = Row::default();
    }

    /// Whether it is left alone now.
    pub(crate) fn left_alone(&self) -> Option<LeftAlone> {
        let row = self.row();
        let left = row.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(LeftAlone {
            setbacks: row.count,
            left,
        })
    }

    fn row(&self) -> MutexGuard<'_, Row> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_left_alone_twice_as_long_each_time_and_at_most_an_hour() {
        let (setbacks, waited) = (Setbacks::default(), Duration::from_secs(30));
        assert_eq!(setbacks.left_alone(), None);
        for (count, pause) in [(1, 300), (2, 600), (3, 1_200), (4, 2_400), (5, 3_600), (6, 3_600)] {
            setbacks.waited_in_vain(waited);
            let left = Duration::from_secs(pause);
            assert_eq!(setbacks.left_alone(), Some(LeftAlone { setbacks: count, left }));
            advance(left - Duration::from_secs(1)).await;
            assert!(setbacks.left_alone().is_some());
            advance(Duration::from_secs(1)).await;
            assert_eq!(setbacks.left_alone(), None);
        }
        setbacks.came();
        setbacks.waited_in_vain(waited);
        assert_eq!(setbacks.left_alone().map(|alone| alone.left), Some(waited * 10));
    }
}
