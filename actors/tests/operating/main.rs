//! Operators and agents over real QUIC: what is asked, what is ordered, and what children print.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test waits for the events that it is about")]

#[path = "../../../storage/tests/catalogue/disk.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod disk;
mod ends;
mod groups;
#[path = "../strangers/log.rs"]
mod log;
mod orders;
mod output;
#[path = "../strangers/raw.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod raw;
mod recording;
mod requests;
