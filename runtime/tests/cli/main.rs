//! The `sardana` program as a person meets it: what it says, what it leaves behind, and its exit codes.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod help;
mod mistakes;
mod output;
mod program;
mod signals;
mod worker;
