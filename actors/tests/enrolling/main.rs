//! Enrolment and renewal over real QUIC: which processes get a certificate, what the others are told, and what strangers cost.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "../strangers/bystanders.rs"]
mod bystanders;
mod invited;
mod kept;
#[path = "../strangers/log.rs"]
mod log;
#[path = "../strangers/raw.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod raw;
mod renewed;
mod run_out;
mod site;
mod uninvited;
