//! How long the actors around the machines wait, and how often they look: here, since simulated actors keep to the same.

use std::time::Duration;

/// Between two looks of a coordinator at what is due: shorter than anything that it waits for, and each look costs microseconds.
pub const TICK: Duration = Duration::from_millis(100);

/// Between two writings of how far the job is, where nothing else is to be written: a coordinator that is started again has lost count of
/// no more.
pub const RECORD_EVERY: Duration = Duration::from_secs(1);

/// Between two attempts of a worker to reach its coordinator.
pub const RETRY_EVERY: Duration = Duration::from_millis(200);

/// How long a coordinator may take to answer a hello: it answers within milliseconds, so this is for slow paths and busy hosts. An address
/// that does not answer at all is given up after as long.
pub const GREETING_DEADLINE: Duration = Duration::from_secs(5);

/// Between two looks of a worker whether reports are due: short, so that people see steps as they happen; each look costs microseconds.
pub const BEAT_EVERY: Duration = Duration::from_millis(50);

/// How long the links of a generation may take to be made. The other end may still be finishing an update before it learns of the
/// generation, so this is long; it only matters when two workers cannot reach each other although both live.
pub const LINK_DEADLINE: Duration = Duration::from_secs(5);

/// How long a worker that is asked for a part of the state or for a sum waits to be told which workers it may serve: the coordinator names
/// the asker before it tells the asker which to ask, and over another connection. After this the asker is refused (SEC-1).
pub const NAMING_DEADLINE: Duration = Duration::from_secs(5);
