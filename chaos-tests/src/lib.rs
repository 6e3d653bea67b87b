//! The adversary: real worker processes over real QUIC that come and go, are killed and stopped, at chosen and at random moments,
//! and are compared with an undisturbed plain loop (BITS-1). And simulated clusters of the same machines, in virtual time.
//!
//! - [`setup`]: what is trained, and how a worker process is told; [`model`]: the toy model; [`journal`]: what was really computed;
//! - [`trial`]: runs a job while an adversary watches; [`verdict`]: what must hold afterwards;
//! - [`gate`]: holds all workers at a step, so that no test needs to sleep; [`dice`]: random schedules from one seed; [`pace`]: how long steps took.
//! - [`half_open`]: strangers who begin handshakes and never finish them.
//! - [`simulation`]: the machines alone, on simulated hosts, disks and networks: thousands of hours in minutes.
//! - [`shells`]: the second level: the real shells over real QUIC, on a network in memory, in virtual time.
//!
//! It must not know how the product works inside, only what it promises.

#[cfg(feature = "processes")]
mod counting;
pub mod dice;
#[cfg(feature = "processes")]
pub mod gate;
#[cfg(feature = "processes")]
pub mod half_open;
#[cfg(feature = "processes")]
pub mod journal;
#[cfg(feature = "processes")]
pub mod model;
#[cfg(feature = "processes")]
pub mod pace;
#[cfg(feature = "processes")]
pub mod setup;
#[cfg(feature = "processes")]
pub mod shells;
pub mod simulation;
#[cfg(feature = "processes")]
pub mod trial;
#[cfg(feature = "processes")]
pub mod verdict;
