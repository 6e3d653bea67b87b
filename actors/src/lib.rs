//! Who does what: the coordinator, workers and agents of Sardana as thin shells over the protocol's machines, and the QUIC
//! connections between them.
//!
//! Decisions are in `sardana-protocol`; a shell here receives, calls its machine and sends what the machine says.
//!
//! - [`coordinator`], [`worker`], [`agent`]: the actors; [`operator`]: a person's commands to the first; [`peers`]: links and transfers between workers.
//! - [`depot`]: checkpoint actors, which keep checkpoints, and what workers ask of them.
//! - [`trust`]: the job's authority, who a peer is and whom it may dial.
//! - [`enrol`]: how somebody from outside gets a certificate.
//! - [`quic`]: endpoints, dialling and accepting; [`ground`]: the sockets and threads that all stand on.
//! - [`wire`]: messages as bytes.
//! - [`memory`]: what the host has left; [`fault`]: where chaos tests kill.

// Under the name by which the tests outside call it.
#[cfg(test)]
extern crate self as sardana_actors;

pub mod agent;
mod control;
pub mod coordinator;
pub mod depot;
pub mod enrol;
pub mod fault;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod ground;
#[cfg(test)]
mod lives_tests;
mod log;
pub mod memory;
pub mod operator;
pub mod peers;
pub mod quic;
#[cfg(test)]
mod refused;
mod room;
pub mod trust;
mod watched;
pub mod whereabouts;
pub mod wire;
pub mod worker;
