//! What runs of the real shells under faults must have gone through, once there were enough of them.

use strum::VariantNames;

use super::Counts;
use super::faults::Fault;

/// So many runs under faults must have gone through all of it.
pub const COVERED_WITHIN: u64 = 40;

/// What must have been told, besides faults that must have come.
const TOLD: [&str; 7] = ["Adopted", "CaughtUp", "Left", "Lost", "Resumed", "StateLost", "Switched"];

/// What so many runs under faults should have gone through, and never have.
#[must_use]
pub fn never(counts: &Counts, runs: u64) -> Vec<&'static str> {
    if runs < COVERED_WITHIN {
        return Vec::new();
    }
    let demanded = TOLD.iter().chain(Fault::VARIANTS).copied();
    demanded.filter(|what| !counts.contains_key(what)).collect()
}
