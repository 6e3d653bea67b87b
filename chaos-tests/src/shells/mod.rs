//! The second level of simulation: the real shells — coordinator, workers, step drivers, rings, transfers, enrolment, over real QUIC and TLS — in
//! one thread, on a network in memory, in virtual time. One seed decides when each datagram is sent and how long it is.
//!
//! - [`play`]: one run; [`circumstances`]: what its seed draws; `cluster`: what runs; `faults`: what goes wrong;
//! - `air`: the network; `weather`: what it does to datagrams; `host`: what a process stands on; `even`: TLS of even lengths;
//! - [`trace`]: every datagram; [`story`]: what people are told; `checked`: a model whose every state is compared;
//! - `covered`: what many runs must have gone through.
//!
//! The first level, [`crate::simulation`], is faster by orders of magnitude and knows the machines alone; this one finds what is wrong
//! between them and the wire. It must not know the shells' insides: it starts them, kills them, and hears what they say.

pub mod circumstances;
pub mod story;
pub mod trace;

mod air;
mod checked;
mod cluster;
mod covered;
mod even;
mod faults;
mod host;
mod panics;
mod run;
mod weather;

pub use covered::{COVERED_WITHIN, never};
pub use run::{Counts, Played, play};
