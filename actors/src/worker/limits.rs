//! Timeouts of a worker towards its coordinator.

use std::time::Duration;

/// How long a worker looks for its coordinator before it gives up: a coordinator that is started with its workers is there
/// within a second; one that is restarted needs a few.
pub const COORDINATOR_PATIENCE: Duration = Duration::from_secs(15);

/// Between two attempts to reach the coordinator.
pub const RETRY_EVERY: Duration = Duration::from_millis(200);

/// Between two looks whether reports are due: short, so that people see steps as they happen; each look costs microseconds.
pub const BEAT_EVERY: Duration = Duration::from_millis(50);

/// How long the coordinator may take to answer a hello.
pub const GREETING_DEADLINE: Duration = Duration::from_secs(5);

/// How long an ending worker waits until its coordinator has what it said last. A live one has it within a round trip; with a dead
/// one this is what the end costs.
pub const LAST_WORDS: Duration = Duration::from_millis(500);
