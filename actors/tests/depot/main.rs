//! Checkpoint actors over real connections: what is acknowledged is on the disk, what is damaged comes from elsewhere, and no process is
//! obeyed that is not named, or leads no more.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod bounds;
mod disk;
mod failing;
mod hanging;
mod leader;
mod near;
mod orders;
mod raw;
mod reopening;
mod replicas;
mod round_trips;
#[cfg(target_os = "linux")]
mod shown;
mod site;
mod turns;
mod unread;
