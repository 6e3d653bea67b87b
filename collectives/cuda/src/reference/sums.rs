//! Running sums with shards added to them.

use half::{bf16, f16};

use super::Number;
use super::halves::{widen_bf16, widen_f16};

/// Adds `shards` to `running`, element by element, from the first shard to the last: f32, all of one length.
///
/// # Panics
/// When a shard is not as long as `running`.
pub fn sum_f32(running: &mut [f32], shards: &[&[f32]]) {
    shards.iter().for_each(|shard| add(running, shard));
}

/// Adds `shards` to `running` as [`sum_f32`] does: f64.
///
/// # Panics
/// When a shard is not as long as `running`.
pub fn sum_f64(running: &mut [f64], shards: &[&[f64]]) {
    shards.iter().for_each(|shard| add(running, shard));
}

/// Adds bf16 `shards`, which are f32 with fewer bits, to an f32 `running`. The sum is not rounded to bf16.
///
/// # Panics
/// When a shard is not as long as `running`.
pub fn sum_bf16(running: &mut [f32], shards: &[&[bf16]]) {
    shards.iter().for_each(|shard| add(running, &widen_bf16(shard)));
}

/// Adds f16 `shards`, which are f32 with fewer bits, to an f32 `running`. The sum is not rounded to f16.
///
/// # Panics
/// When a shard is not as long as `running`.
pub fn sum_f16(running: &mut [f32], shards: &[&[f16]]) {
    shards.iter().for_each(|shard| add(running, &widen_f16(shard)));
}

fn add<T: Number>(running: &mut [T], shard: &[T]) {
    assert_eq!(shard.len(), running.len(), "a shard is as long as the running sum");
    for (running, &own) in running.iter_mut().zip(shard) {
        *running = running.plus(own);
    }
}
