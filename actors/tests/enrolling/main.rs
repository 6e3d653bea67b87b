//! Enrolment and renewal over real QUIC: who gets a certificate, who does not and what they are told, and what strangers cost.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod invited;
#[path = "../strangers/log.rs"]
mod log;
mod renewed;
mod site;
mod uninvited;
