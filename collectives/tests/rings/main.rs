//! Rings as a user of the crate runs them: every rank a task, over in-process links and over QUIC, against sums that know
//! nothing of rings.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod dance;
mod direct;
mod draw;
mod early;
mod elsewhere;
mod far;
mod fast;
mod faults;
mod groups;
mod inputs;
mod interleaved;
mod links;
mod loopback;
#[cfg(target_os = "linux")]
mod mixed;
mod odd;
mod ordered;
mod quic;
mod through;
mod way;
