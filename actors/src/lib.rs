//! The processes' parts: the coordinator, workers and agents of Sardana as thin shells over the protocol's machines.
//!
//! Decisions are in `sardana-protocol`; a shell here receives, calls its machine and sends what the machine says.
//!
//! - [`coordinator`], [`worker`], [`agent`]: the actors; [`operator`]: a person's commands to the first; [`peers`]: links and transfers between workers.
//! - [`group`]: a worker whose program makes collective calls of its own.
//! - [`depot`]: checkpoint actors, which keep checkpoints, and what workers ask of them.
//! - [`memory`]: what the host has left; [`fault`]: where chaos tests kill.

// Under the name by which the tests outside call it.
#[cfg(test)]
extern crate self as sardana_actors;

pub mod agent;
pub mod coordinator;
pub mod depot;
pub mod fault;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod group;
#[cfg(test)]
mod lives_tests;
pub mod memory;
pub mod operator;
mod panicked;
pub mod peers;
#[cfg(test)]
mod refused;
pub mod room;
#[cfg(test)]
mod testing;
mod watched;
pub mod worker;
