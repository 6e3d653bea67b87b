//! A stand-in for training: states and gradients are numbers that depend on everything they should depend on.

use sardana_protocol::words::{ShardRange, Step};

/// The state before the first update.
pub(crate) const ZERO: u64 = 0x5eed;

/// Scrambles two numbers into one; not symmetric, so that order shows.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.rotate_left(17) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 31;
    x.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The gradient of one shard.
pub(crate) fn gradient(state: u64, step: Step, shard: u32) -> u64 {
    mix(mix(state, step.get()), u64::from(shard))
}

/// The state after the update by these gradients, in this order.
pub(crate) fn apply(state: u64, gradients: &[(u32, u64)]) -> u64 {
    gradients.iter().fold(state, |sum, &(_, gradient)| mix(sum, gradient))
}

/// The states of an undisturbed run.
pub(crate) fn reference(shards: u32, steps: u64) -> Vec<u64> {
    let mut states = vec![ZERO];
    for step in 0..steps {
        let state = states[states.len() - 1];
        let gradients: Vec<_> = (0..shards)
            .map(|shard| (shard, gradient(state, Step::new(step), shard)))
            .collect();
        states.push(apply(state, &gradients));
    }
    states
}

/// What one buffer holds: shards of one piece with their gradients, in order.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) shards: ShardRange,
    pub(crate) gradients: Vec<(u32, u64)>,
}
