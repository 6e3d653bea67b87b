//! `sardana checkpoints` as a person meets it, on directories that the store itself has written.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod copying;
mod damaged;
mod files;
mod looking;
mod mistakes;
mod pruning;
mod python;
mod site;
