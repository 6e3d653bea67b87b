//! Which shards a worker computes next, as far as it is known: what may be decoded ahead. It is scheduling, and never reaches a sample.

use std::ops::Range;

use sardana_protocol::words::Step;

use super::sampler::{Sampler, Shard};

/// The shards that a worker computes next, if nothing changes.
#[derive(Clone, Debug)]
pub struct Coming {
    sampler: Sampler,
    step: Step,
    shards: Range<u32>,
    end: Step,
}

impl Coming {
    /// Shards `shards` of `step`, and of each step after it before `end`.
    #[must_use]
    pub const fn new(sampler: Sampler, step: Step, shards: Range<u32>, end: Step) -> Self {
        Self {
            sampler,
            step,
            shards,
            end,
        }
    }

    /// Whether this shard is among them.
    #[must_use]
    pub fn has(&self, step: Step, shard: u32) -> bool {
        self.shards.contains(&shard) && self.step <= step && step < self.end
    }

    /// The first step.
    #[must_use]
    pub const fn step(&self) -> Step {
        self.step
    }

    /// The step after the last.
    pub(crate) const fn end(&self) -> Step {
        self.end
    }

    /// Which shards of each step they are.
    #[must_use]
    pub const fn shards(&self) -> &Range<u32> {
        &self.shards
    }

    /// The first shard at or after number `shard` of `step`. None at the job's end.
    #[must_use]
    pub fn from(&self, step: Step, shard: u32) -> Option<Shard> {
        let (step, shard) = self.place_from(step, shard)?;
        Some(self.shard_in(step, shard, Vec::new()))
    }

    /// The step and the number of that shard.
    pub(crate) fn place_from(&self, step: Step, shard: u32) -> Option<(Step, u32)> {
        if self.shards.is_empty() {
            return None;
        }
        let (step, shard) = if step < self.step {
            (self.step, self.shards.start)
        } else if shard >= self.shards.end {
            (step.next(), self.shards.start)
        } else {
            (step, shard.max(self.shards.start))
        };
        (step < self.end).then_some((step, shard))
    }

    /// One of these shards, with its samples in the memory of `room`.
    pub(crate) fn shard_in(&self, step: Step, shard: u32, room: Vec<u64>) -> Shard {
        self.sampler.shard_in(step, shard, room)
    }
}
