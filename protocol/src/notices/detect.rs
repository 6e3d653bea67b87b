//! Which cloud this machine is of, from what its metadata service answers.

use std::time::Duration;

use super::Cloud;
use crate::limits::{DETECT_AGAIN, DETECT_TRIES};

/// In which order answers are believed: GCE signs its own, Azure answers only what is asked in its way, and others than AWS imitate AWS.
pub const DETECTION_ORDER: [Cloud; 3] = [Cloud::Gce, Cloud::Azure, Cloud::Aws];

/// What came back when a metadata service was asked in one cloud's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// What that cloud documents.
    Answers,
    /// A service is there, and cannot answer now.
    Busy,
    /// Nothing, or nothing of that cloud.
    Silent,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detected {
    /// It is this cloud.
    Cloud(Cloud),
    /// Ask once more, later.
    Again {
        /// How much later.
        after: Duration,
    },
    /// No cloud is there. Ask no more.
    NoCloud,
}

/// Decides after the `tries`th time that a service was asked in all three ways; `answer` says what came back of each.
#[must_use]
pub fn detect(answer: impl Fn(Cloud) -> Probe, tries: u32) -> Detected {
    let found = |wanted: Probe| DETECTION_ORDER.into_iter().find(|cloud| answer(*cloud) == wanted);
    match (found(Probe::Answers), found(Probe::Busy)) {
        (Some(cloud), _) => Detected::Cloud(cloud),
        (None, Some(_)) if tries < DETECT_TRIES => Detected::Again { after: DETECT_AGAIN },
        (None, _) => Detected::NoCloud,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_answer_counts() {
        let all = |_| Probe::Answers;
        assert_eq!(detect(all, 1), Detected::Cloud(Cloud::Gce));
        let imitated = |cloud| match cloud {
            Cloud::Gce => Probe::Busy,
            Cloud::Azure => Probe::Silent,
            Cloud::Aws => Probe::Answers,
        };
        assert_eq!(detect(imitated, 1), Detected::Cloud(Cloud::Aws));
    }

    #[test]
    fn a_busy_service_is_asked_again_a_few_times_and_silence_never() {
        for tries in 1..DETECT_TRIES {
            assert_eq!(detect(|_| Probe::Busy, tries), Detected::Again { after: DETECT_AGAIN });
        }
        assert_eq!(detect(|_| Probe::Busy, DETECT_TRIES), Detected::NoCloud);
        assert_eq!(detect(|_| Probe::Silent, 1), Detected::NoCloud);
    }
}
