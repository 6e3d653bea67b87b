//! One direction of a path: a queue before a line of some rate, which takes its time and loses some. Must not know clocks or sockets.

use std::time::{Duration, Instant};

use sardana_chaos_tests::dice::Dice;

/// What a way is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// From one end to the other, without a queue.
    pub(crate) takes: Duration,
    pub(crate) bytes_per_second: u64,
    /// What waits longer than this for its turn finds no room: the buffer of a router, as time.
    pub(crate) queue: Duration,
    /// So many datagrams of a million are lost on the line, at random.
    pub(crate) lost_per_million: u64,
    pub(crate) seed: u64,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Arrives(Instant),
    /// It found no room in the queue.
    Crowded,
    /// It left, and did not arrive.
    Lost,
}

/// One direction of a path, and what is on it.
#[derive(Debug)]
pub(crate) struct Way {
    kind: Kind,
    /// When the line has sent all that waits.
    free: Instant,
    dice: Dice,
}

impl Way {
    pub(crate) fn new(kind: Kind, now: Instant) -> Self {
        Self {
            kind,
            free: now,
            dice: Dice::new(kind.seed),
        }
    }

    pub(crate) fn take(&mut self, now: Instant, bytes: usize) -> Fate {
        let begins = self.free.max(now);
        if begins - now > self.kind.queue {
            return Fate::Crowded;
        }
        self.free = begins + Duration::from_secs_f64(bytes as f64 / self.kind.bytes_per_second as f64);
        if self.dice.below(1_000_000) < self.kind.lost_per_million {
            return Fate::Lost;
        }
        Fate::Arrives(self.free + self.kind.takes)
    }
}
