//! Everything that a user can get wrong: each mistake ends in an error that names it, on its own worker, and never in a hang.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test waits for the events that it is about")]

mod alone;
mod loopback;
mod models;
mod processes;
mod site;
mod slope;
mod strangers;
