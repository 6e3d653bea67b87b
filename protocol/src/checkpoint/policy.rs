//! When checkpoints are taken, and how long they are kept.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::words::Step;

/// How often a checkpoint is taken. Besides, one is taken when the job stops, when it is done, and when its last workers leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Every {
    /// Whenever another multiple of so many steps is reached.
    Steps(NonZeroU64),
    /// So long after the last one.
    Time(Duration),
}

/// Which checkpoints are kept. The newest always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// So many of the newest.
    pub last: NonZeroU32,
    /// Besides, the first at or after each multiple of so many steps.
    pub every: Option<NonZeroU64>,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            last: NonZeroU32::MIN.saturating_add(2),
            every: None,
        }
    }
}

/// A text that is no rule for checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found:?}")]
pub struct PolicyError {
    expected: &'static str,
    found: String,
}

const EVERY: &str = "a number of steps above 0 (100), or a time above 0 with its unit (500ms, 30s, 5m, 2h)";
const KEEP: &str = "last=N, or last=N,every=STEPS, both above 0 (last=3,every=1000)";

impl Every {
    /// Whether one is due at `step`, at the time `now`, when the last was taken at `last`.
    #[must_use]
    pub fn is_due(self, last: (Step, Duration), step: Step, now: Duration) -> bool {
        match self {
            Self::Steps(steps) => step.get() / steps > last.0.get() / steps,
            Self::Time(time) => step > last.0 && now.saturating_sub(last.1) >= time,
        }
    }

    /// How many would have been due by then: all but the last of them are merged with it.
    #[must_use]
    pub fn due(self, last: (Step, Duration), step: Step, now: Duration) -> u64 {
        match self {
            Self::Steps(steps) => (step.get() / steps).saturating_sub(last.0.get() / steps),
            Self::Time(time) => {
                let times = now.saturating_sub(last.1).as_nanos() / time.as_nanos().max(1);
                u64::try_from(times).unwrap_or(u64::MAX)
            }
        }
    }
}

impl FromStr for Every {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let error = || PolicyError {
            expected: EVERY,
            found: text.to_owned(),
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: NonZeroU64 = number.parse().map_err(|_| error())?;
        let millis = match unit {
            "" => return Ok(Self::Steps(number)),
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(error()),
        };
        let time = number.get().checked_mul(millis).ok_or_else(error)?;
        Ok(Self::Time(Duration::from_millis(time)))
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(steps) => write!(f, "{steps}"),
            Self::Time(time) => write!(f, "{}ms", time.as_millis()),
        }
    }
}

impl FromStr for Keep {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let error = || PolicyError {
            expected: KEEP,
            found: text.to_owned(),
        };
        let (mut last, mut every) = (None, None);
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("last", number)) if last.is_none() => last = Some(number.parse().map_err(|_| error())?),
                Some(("every", number)) if every.is_none() => every = Some(number.parse().map_err(|_| error())?),
                _ => return Err(error()),
            }
        }
        let last = last.ok_or_else(error)?;
        Ok(Self { last, every })
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "last={}", self.last)?;
        self.every.map_or(Ok(()), |every| write!(f, ",every={every}"))
    }
}

impl Keep {
    /// Which of these are not kept any more; the same, in ascending order, once each. All of them are complete.
    #[must_use]
    pub fn expired<T: Copy>(&self, step_of: impl Fn(T) -> Step, kept: &[T]) -> Vec<T> {
        let mut kept = kept.to_vec();
        kept.sort_by_key(|&one| step_of(one));
        let newest = kept.len().saturating_sub(self.last.get() as usize);
        let mut before: Option<u64> = None;
        let mut expired = Vec::new();
        for (index, &one) in kept.iter().enumerate() {
            let is_first = self.every.is_some_and(|every| {
                let multiple = step_of(one).get() / every;
                before.replace(multiple) != Some(multiple)
            });
            if index < newest && !is_first {
                expired.push(one);
            }
        }
        expired
    }

    /// Whether one of this step would not be kept, beside complete ones of these steps, in ascending order. It counts as newer than one of
    /// the same step.
    #[must_use]
    pub fn would_expire(&self, step: Step, complete: &[Step]) -> bool {
        let (older, newer) = complete.split_at(complete.partition_point(|one| *one <= step));
        let multiple = |step: Step, every: NonZeroU64| step.get() / every;
        let is_first = self.every.is_some_and(|every| {
            older
                .last()
                .is_none_or(|last| multiple(*last, every) != multiple(step, every))
        });
        newer.len() >= self.last.get() as usize && !is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(steps: &[u64]) -> Vec<Step> {
        steps.iter().copied().map(Step::new).collect()
    }

    fn expired(keep: &str, kept: &[u64]) -> Vec<u64> {
        let keep: Keep = keep.parse().unwrap();
        keep.expired(|step| step, &steps(kept)).into_iter().map(Step::get).collect()
    }

    #[test]
    fn texts_are_read_as_written() {
        for text in ["1", "100", "250ms"] {
            assert_eq!(text.parse::<Every>().unwrap().to_string(), text);
        }
        for (text, millis) in [("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000)] {
            assert_eq!(text.parse(), Ok(Every::Time(Duration::from_millis(millis))));
        }
        for text in ["last=3", "last=3,every=1000"] {
            assert_eq!(text.parse::<Keep>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "0",
            "0s",
            "-1",
            "1d",
            "s",
            "1.5s",
            "99999999999999999999h",
            "9999999999999999999h",
        ] {
            let error = bad.parse::<Every>().unwrap_err().to_string();
            assert!(error.contains("number of steps") && error.contains(bad), "{error}");
        }
        for bad in ["", "3", "last=0", "every=10", "last=1,last=2", "last=1,every=0", "last=1,"] {
            assert!(bad.parse::<Keep>().is_err(), "{bad}");
        }
    }

    #[test]
    fn one_is_due_at_each_multiple_of_steps_or_after_each_time() {
        let every: Every = "10".parse().unwrap();
        let due = |last, step| every.is_due((Step::new(last), Duration::ZERO), Step::new(step), Duration::ZERO);
        assert!(!due(0, 9) && due(0, 10) && due(9, 10) && !due(10, 19) && due(12, 20));
        let every: Every = "2s".parse().unwrap();
        let due = |step, now| {
            every.is_due(
                (Step::new(5), Duration::from_secs(1)),
                Step::new(step),
                Duration::from_secs(now),
            )
        };
        assert!(!due(6, 2) && due(6, 3) && !due(5, 30));
    }

    #[test]
    fn all_that_were_due_are_counted() {
        let at = |text: &str, last, step, now| {
            let every: Every = text.parse().unwrap();
            every.due(
                (Step::new(last), Duration::from_secs(1)),
                Step::new(step),
                Duration::from_secs(now),
            )
        };
        assert_eq!(at("10", 0, 9, 9), 0);
        assert_eq!(at("10", 9, 10, 9), 1);
        assert_eq!(at("10", 12, 40, 9), 3, "at 20, 30 and 40");
        assert_eq!(at("10", 40, 12, 9), 0, "the state was lost");
        assert_eq!(at("2s", 0, 5, 2), 0);
        assert_eq!(at("2s", 0, 5, 6), 2, "after 2 s and after 4 s");
    }

    #[test]
    fn the_newest_and_the_first_of_each_multiple_are_kept() {
        assert_eq!(expired("last=2", &[30, 10, 20]), [10]);
        assert_eq!(expired("last=3", &[10, 20]), Vec::<u64>::new());
        assert_eq!(
            expired("last=1,every=100", &[50, 99, 101, 150, 203, 260, 300]),
            [99, 150, 260]
        );
        assert_eq!(expired("last=1", &[7, 7]), [7]);
    }

    #[test]
    fn what_is_not_complete_would_expire_as_if_it_were() {
        for keep in ["last=1", "last=3", "last=2,every=3", "last=1,every=1"] {
            let policy: Keep = keep.parse().unwrap();
            // Each set of steps below 8, and a second one of the same step.
            for set in 0_u64..1 << 8 {
                let complete: Vec<u64> = (0..8)
                    .filter(|step| set >> step & 1 == 1)
                    .flat_map(|step| vec![step; 1 + step as usize % 2])
                    .collect();
                for step in 0..9 {
                    let all: Vec<(u64, bool)> = complete.iter().map(|&one| (one, false)).chain([(step, true)]).collect();
                    let gone = policy.expired(|(step, _)| Step::new(step), &all).contains(&(step, true));
                    let would = policy.would_expire(Step::new(step), &steps(&complete));
                    assert_eq!(would, gone, "{keep}: {step} beside {complete:?}");
                }
            }
        }
    }
}
