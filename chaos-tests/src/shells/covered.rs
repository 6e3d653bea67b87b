//! What runs of the real shells under faults must have gone through, once there were enough of them.

use super::Counts;

/// So many runs under faults must have gone through all of it.
pub const COVERED_WITHIN: u64 = 40;

const COVERED: &[&str] = &[
    "Adopted",
    "CaughtUp",
    "fault: a narrow path",
    "fault: a storm",
    "fault: a worker cut off",
    "fault: a worker cut off from the coordinator",
    "fault: a worker drained",
    "fault: a worker frozen",
    "fault: a worker killed",
    "fault: a worker that nobody hears",
    "fault: datagrams out of order",
    "fault: most workers killed",
    "fault: one worker more",
    "fault: the coordinator cut off",
    "fault: the coordinator killed",
    "fault: the coordinator killed, and its records lost",
    "fault: two workers cut off from each other",
    "Left",
    "Lost",
    "Resumed",
    "StateLost",
    "Switched",
];

/// What so many runs under faults should have gone through, and never have.
#[must_use]
pub fn never(counts: &Counts, runs: u64) -> Vec<&'static str> {
    let demanded = if runs < COVERED_WITHIN { &[] } else { COVERED };
    demanded.iter().copied().filter(|what| !counts.contains_key(what)).collect()
}
