//! Timeouts of a worker towards its coordinator, and bounds of what it keeps.

use std::time::Duration;

use sardana_net::enrol::limits::WORKER_RENEWED_WITHIN;
use sardana_net::trust::limits::{CLOCK_SLACK, LEAST_LEFT};
use sardana_protocol::limits::REBALANCE_STEPS;

/// How long a worker looks for its coordinator before it gives up: a coordinator that is started with its workers is there
/// within a second; one that is restarted needs a few.
pub const COORDINATOR_PATIENCE: Duration = Duration::from_secs(15);

/// How long a worker that has once been welcomed trains on and looks for a coordinator that is away. Its certificate outlives that, also
/// where clocks differ.
pub const COORDINATOR_ABSENCE: Duration = Duration::from_secs(60 * 60);

/// How long an ending worker waits until its coordinator has what it said last. A live one has it within a round trip; with a dead
/// one this is what the end costs.
pub const LAST_WORDS: Duration = Duration::from_millis(500);

/// How long a worker that was asked to leave goes on until it is released; then it ends as if it were lost. Clouds that take a
/// machine back give 30 seconds, and a worker that is killed after that costs more than one that leaves before.
pub const LEAVE_PATIENCE: Duration = Duration::from_secs(25);

/// How long a released worker waits until its last ring has passed everything on. A live neighbour takes it in a round trip; one
/// that is gone needs nothing.
pub const PASSING_ON: Duration = Duration::from_secs(2);

/// Of how many gradients the last ones' median is a worker's pace: so many that interruptions do not show, so few that even a worker
/// with a single shard has computed them all in the steps between two changes of its ranges.
pub const PACE_WINDOW: usize = 16;

/// Fewer gradients than this make no pace: the first ones of a process wait for memory and for compilers.
pub const PACE_LEAST: usize = 4;

/// What keeps the training thread no longer, a gradient or an update, it does before its ring hears of the step: so long no link of the ring is looked after, and
/// nothing of the gradient is on its way. To wake the network's thread for it, and to be woken by it, costs as much.
pub const BRIEF: Duration = Duration::from_micros(300);

const _: () = assert!(LEAST_LEFT.as_secs() >= COORDINATOR_ABSENCE.as_secs() + CLOCK_SLACK.as_secs());
const _: () = assert!(WORKER_RENEWED_WITHIN.as_secs() >= COORDINATOR_ABSENCE.as_secs() + CLOCK_SLACK.as_secs());
const _: () = assert!(PACE_WINDOW as u64 <= REBALANCE_STEPS);
const _: () = assert!(PACE_LEAST <= PACE_WINDOW);
