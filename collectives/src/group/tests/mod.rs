//! Groups of threads over links within this process, against plain loops over what each rank had.

mod compressed;
mod mistakes;
mod reductions;
mod spreading;

use std::thread;

use super::{Alarm, Group, GroupError};

/// Does the same on all ranks, each in a thread of its own, and returns what each returns, in rank order.
fn on_all<T: Send>(groups: Vec<Group>, rank: impl Fn(Group) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let rank = &rank;
        let ranks: Vec<_> = groups.into_iter().map(|group| scope.spawn(move || rank(group))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// Ranks that share an alarm, as the threads of a process do.
fn threads(world_size: u32, chunk_bytes: usize) -> Vec<Group> {
    let alarm = Alarm::default();
    Group::linked(world_size, chunk_bytes, || alarm.clone())
}

/// Ranks that know of each other what their links tell, as processes do.
fn apart(world_size: u32, chunk_bytes: usize) -> Vec<Group> {
    Group::linked(world_size, chunk_bytes, Alarm::default)
}

/// The error that ended a group.
fn first_of(error: &GroupError) -> &GroupError {
    match error {
        GroupError::Ended { source, .. } | GroupError::Broken { source, .. } => first_of(source),
        GroupError::Mismatch { .. }
        | GroupError::Unknown { .. }
        | GroupError::Link { .. }
        | GroupError::Over { .. }
        | GroupError::MeanOfIntegers { .. }
        | GroupError::NoSuchRank { .. }
        | GroupError::TooLong { .. } => error,
    }
}
