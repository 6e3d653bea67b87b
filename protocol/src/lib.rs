//! The words of Sardana and every decision it takes, without I/O.
//!
//! Nothing here reads a clock, draws a random number, opens a file or a socket, or knows of an async runtime: time, fresh
//! ids and what the network brought are arguments, and what is to be done comes back as values. That is why the very code
//! that ships also runs under a simulator.
//!
//! - [`words`]: the newtypes of the glossary; [`job`]: what a job is; [`state`]: the hash of its state; [`hash`]: what its pieces are
//!   called.
//! - [`messages`]: what workers, agents and the coordinator say to each other; [`codec`]: values as bytes.
//! - [`snapshot`]: which member holds what of a snapshot; [`status`]: what an operator asks and sees.
//! - [`checkpoint`]: what a checkpoint consists of, and which depots keep it.
//! - [`assign`]: which rank computes which shards; [`plan`]: along which hops their gradients are added.
//! - [`memory`]: how many gradients a worker holds; [`admission`]: which workers may take part; [`member`]: a worker's machine.
//! - [`membership`]: the coordinator's machine; two of its subjects have machines of their own, `checkpoint_manager` and `snapshot_round`.
//! - [`notices`]: what an agent does when its cloud announces that the machine goes away; [`replacing`]: when it starts a worker in place
//!   of one that ended.
//! - [`rate`]: how much there is a second.
//! - [`planted`]: bugs for a simulator to find, none of them in what ships; `samples`: values for tests.
//! - [`limits`]: every bound and timeout, with its argument.

pub mod admission;
pub mod assign;
pub mod checkpoint;
mod checkpoint_manager;
pub mod codec;
pub mod data;
pub mod hash;
mod holders;
pub mod job;
mod laggards;
pub mod limits;
pub mod lineage;
pub mod member;
pub mod membership;
pub mod memory;
pub mod messages;
pub mod notices;
pub mod plan;
pub mod planted;
pub mod rate;
pub mod replacing;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod snapshot;
mod snapshot_round;
pub mod state;
pub mod status;
pub mod words;
