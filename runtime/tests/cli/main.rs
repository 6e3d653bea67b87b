//! The `sardana` program as a person meets it: what it says, what it leaves behind, and its exit codes.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod bench;
mod bench_copy;
mod bench_link;
#[path = "../../../actors/tests/notices/cloud.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod cloud;
mod data;
mod doctor;
mod earlier;
mod help;
mod hosts;
mod lines;
mod mistakes;
mod mistakes_hosts;
mod notices;
mod operating;
mod output;
mod picture;
mod program;
mod saved;
mod signals;
mod site;
mod terminal;
mod watch;
mod worker;
