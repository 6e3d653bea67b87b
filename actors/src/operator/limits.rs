//! Bounds of what operators ask and are told.

use std::time::Duration;

use sardana_net::wire::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES};
use sardana_protocol::codec::LARGEST_LIMIT;
use sardana_protocol::limits::{LINKS_SHOWN, MAX_AUXILIARY, MAX_DEVICE_BYTES, MAX_GPU_BYTES, MAX_TEXT_BYTES, MAX_WORKERS};

/// Longest request: one text and a number. A longer one ends the connection.
pub const REQUEST_BYTES: usize = 4 << 10;

/// Longest answer. Holds the status of the largest job.
pub const ANSWER_BYTES: usize = 2 << 20;

/// How long an operator waits for a greeting or an answer. A coordinator answers between two of its messages.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Between two answers to one operator: more of them show a person nothing, and cost the coordinator time.
pub const ANSWER_EVERY: Duration = Duration::from_millis(20);

/// Most operators at a time. Another one is refused with this number.
pub const MAX_OPERATORS: usize = 16;

/// How many of the last events are kept for operators.
pub const KEPT_EVENTS: usize = 64;

/// Longest event in words; the rest is cut.
pub const EVENT_BYTES: usize = 512;

/// Most agents in an answer: as many as there may be workers.
pub const MAX_AGENTS: usize = MAX_WORKERS as usize;

/// Longest name of a host that is kept; the rest is cut. DNS allows no longer one.
pub const HOST_BYTES: usize = 253;

/// Most children of one agent that are kept.
pub const MAX_CHILDREN: usize = MAX_WORKERS as usize;

/// A child that was ordered and of which nothing was heard for this long is not counted as coming any more.
pub const COMING: Duration = Duration::from_secs(15);

const _: () = assert!(REQUEST_BYTES > 2 * MAX_TEXT_BYTES && REQUEST_BYTES <= HELLO_FRAME_BYTES);
// A worker's view, its round trip and its line at its agent fill less than 160 bytes, what it has of a GPU's memory its name and 64 more, and what it computes on, where
// each has something else, 16 more; an agent its host's name and 40; a line about links less than 90.
const _: () = assert!(
    ANSWER_BYTES
        > MAX_WORKERS as usize * 160
            + MAX_WORKERS as usize * (MAX_GPU_BYTES + 64)
            + MAX_WORKERS as usize * (MAX_DEVICE_BYTES + 16)
            + MAX_AGENTS * (HOST_BYTES + 40)
            + KEPT_EVENTS * (EVENT_BYTES + 20)
            + MAX_AUXILIARY * (MAX_TEXT_BYTES + 12)
            + LINKS_SHOWN * 90
            + 2 * MAX_TEXT_BYTES
);
const _: () = assert!(ANSWER_BYTES > CONTROL_FRAME_BYTES && ANSWER_BYTES <= LARGEST_LIMIT);
