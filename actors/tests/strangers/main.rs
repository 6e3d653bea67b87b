//! A coordinator over real QUIC, and peers that say what they should not, say nothing, or come at the wrong time.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test waits for the events that it is about")]

mod agents;
mod bystanders;
mod costs;
mod crowds;
mod depots;
mod groups;
mod hellos;
mod log;
#[expect(dead_code, reason = "shared with other tests")]
mod raw;
mod rivals;
mod workers;
