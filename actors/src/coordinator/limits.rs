//! Bounds of the coordinator's own: why this number, and what happens when it is reached.

use std::time::Duration;

use sardana_protocol::limits::{MAX_WORKERS, MISSED_KEPT, OPEN_TALLIES, RELEASED_KEPT};
use sardana_storage::catalogue::limits::VALUE_BYTES;

/// Of so many workers this life knows that it has greeted them, that their end was seen, or that they are not certified again: of all that
/// a job can have, four times over. What is known of a worker that ended is needed as long as something that it said is under way, and of
/// a worker that lives as long as it is connected. See each place for what becomes of a worker that is forgotten.
pub const WORKERS_KEPT: usize = 4 * MAX_WORKERS as usize;

/// Of so many checkpoint actors, alike.
pub const DEPOTS_KEPT: usize = 1_024;

/// When the job could not be written down, it is tried again after this, and each time after twice as long as before.
pub const RECORD_AGAIN: Duration = Duration::from_secs(1);

/// It is tried again after this at the latest. A full disk is often emptied by a person, who wants to see that it helped.
pub const RECORD_AGAIN_MOST: Duration = Duration::from_secs(30);

/// Most values of the largest kind that each of the two parts of a record which concern no single worker may fill: what the job is, and
/// what was counted.
pub const RECORD_VALUES: usize = 3;

/// Most entries of a record that is read: more were never written.
pub const RECORD_ENTRIES: usize = RELEASED_KEPT + 2 * MISSED_KEPT + 4 * MAX_WORKERS as usize;

/// Most messages that wait for one worker or agent. A worker that reads has a few; a worker that does not is told the same some times a
/// second, and counts as silent long before these are written. When this is reached its connection is closed, and it may come again.
pub(super) const QUEUE: usize = 1_024;

/// Most orders that wait for one checkpoint actor: a store that expires may have to be told of each checkpoint that it keeps, in forty
/// bytes. When this is reached its connection is closed, and it tells all that it keeps when it comes again.
pub(super) const DEPOT_QUEUE: usize = 65_536;

// The largest tally has 47 bytes.
const _: () = assert!(OPEN_TALLIES * 47 + 1_024 < RECORD_VALUES * VALUE_BYTES);
const _: () = assert!(RECORD_AGAIN.as_millis() < RECORD_AGAIN_MOST.as_millis());
