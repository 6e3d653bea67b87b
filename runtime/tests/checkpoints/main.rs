//! `sardana checkpoints` as a person meets it, on directories that the store itself has written.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod copying;
mod damaged;
mod files;
mod looking;
mod mistakes;
#[path = "../cli/program.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod program;
mod pruning;
mod python;
mod site;
