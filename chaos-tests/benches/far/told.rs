//! What path a bench is told to lay.

use std::time::Duration;

use clap::Args;

use crate::way::Kind;

/// The queue of a path of which nothing else is said, in milliseconds of its rate: a router's buffer.
const QUEUE_MS: u64 = 100;

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Told {
    /// How many datagrams of a hundred are lost at random, in both directions.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) loss_percent: f64,
    /// How much waits before the line, of what is under way on the path when it is full (the bandwidth-delay product). 100 ms of the
    /// line's rate unless told.
    #[arg(long)]
    pub(crate) queue_percent: Option<u32>,
    /// Which datagrams are lost.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Told {
    /// One direction of the path. Both lose the same share, but not the same datagrams.
    pub(crate) fn way(self, round_trip: Duration, mbit: u64, back: bool) -> Kind {
        // Nothing is under way on a path without a length.
        let percent = self.queue_percent.filter(|_| !round_trip.is_zero());
        let queue = percent.map_or(Duration::from_millis(QUEUE_MS), |percent| round_trip * percent / 100);
        Kind {
            takes: round_trip / 2,
            bytes_per_second: mbit * 125_000,
            queue,
            lost_per_million: (self.loss_percent * 10_000.0).round() as u64,
            seed: self.seed.wrapping_mul(2).wrapping_add(u64::from(back)),
        }
    }
}
