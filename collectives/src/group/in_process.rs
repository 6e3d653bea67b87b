//! Groups for the threads of one process.

use sardana_protocol::words::{Generation, Incarnation, Rank};

use super::alarm::Alarm;
use super::lane::{GroupLinks, LaneLinks};
use super::{Group, Place};
use crate::limits::CHUNK_BYTES;
use crate::links;

impl Group {
    /// A group of `world_size` ranks for the threads of this process, in rank order; none for 0.
    #[must_use]
    pub fn in_process(world_size: u32) -> Vec<Self> {
        let alarm = Alarm::default();
        Self::linked(world_size, CHUNK_BYTES, || alarm.clone())
    }

    pub(super) fn linked(world_size: u32, chunk_bytes: usize, alarm: impl Fn() -> Alarm) -> Vec<Self> {
        let lane = || {
            let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..world_size).map(|_| links::in_process()).unzip();
            // A rank sends to the next, and receives from the one before.
            receivers.rotate_right(usize::from(world_size > 0));
            let ends = receivers.into_iter().zip(senders);
            ends.map(|(from, to)| LaneLinks { from, to }).collect::<Vec<_>>()
        };
        let lanes = (0..).zip(lane().into_iter().zip(lane()));
        let group = |(rank, (running, finished))| {
            let place = Place {
                rank: Rank::new(rank),
                world_size,
                generation: Generation::new(Incarnation::new(1), 1),
            };
            Self::with(place, GroupLinks { running, finished }, alarm(), chunk_bytes)
        };
        lanes.map(group).collect()
    }
}
