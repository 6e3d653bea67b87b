//! Reduces in the order of the ring: each rank's part begins at the rank after it, and goes around once. All links carry something at all times,
//! and in which order an element's values are combined depends on its place and on the number of ranks. Knows no types of numbers.
//! (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.)
//!
//! What is received may lie until its round to be sent comes, so it waits in memory and not in a queue: a bounded queue would stall the circle. So
//! that this memory stays small, the parts are reduced block by block.

use std::cell::RefCell;
use std::mem::swap;
use std::ops::Range;

use super::element::Reduction;
use super::error::GroupError;
use super::lane::{Frame, Lane};
use super::operation::{Operation, part};
use super::travel::Travel;
use crate::limits::BLOCK_CHUNKS;
use crate::links::frame::FrameKind;
use crate::runs::Runs;

/// Running values that were received, and those that are sent meanwhile.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    received: Vec<u8>,
    sent: Vec<u8>,
}

/// Makes this rank's part of `values` the result.
pub(super) async fn reduce_scatter<T: Travel>(
    operation: Operation,
    lane: &mut Lane,
    travel: T,
    reduction: Reduction,
    values: &RefCell<&mut [T::Value]>,
    rooms: &mut Rooms,
) -> Result<(), GroupError> {
    let length = values.borrow().len();
    let block = (operation.chunk_bytes / T::RUNNING_BYTES).max(1) * BLOCK_CHUNKS;
    let longest = length.div_ceil(operation.world_size as usize);
    let bytes = block.min(longest) * T::RUNNING_BYTES;
    rooms.received.resize(bytes, 0);
    rooms.sent.resize(bytes, 0);
    for start in (0..longest).step_by(block) {
        let block = |rank: u32| {
            let part = part(length, rank, operation.world_size);
            let start = part.end.min(part.start + start);
            start..part.end.min(start + block)
        };
        for round in 1..operation.world_size {
            let (sends, receives) = (block(operation.before(round)), block(operation.before(round + 1)));
            let Lane { from, to } = lane;
            let Rooms { received, sent } = rooms;
            let sending = async {
                for (frame, at) in frames::<T>(operation, &sends) {
                    let own = sends.start + at.start..sends.start + at.end;
                    let load = |out: &mut [u8]| match round {
                        1 => travel.begin(&values.borrow()[own], out),
                        _ => out.copy_from_slice(&sent[bytes_of::<T>(&at)]),
                    };
                    to.send(operation.stamp, frame, load).await?;
                }
                Ok(())
            };
            let receiving = async {
                for (frame, at) in frames::<T>(operation, &receives) {
                    let mut running = from.receive(operation.stamp, frame).await?;
                    let own = receives.start + at.start..receives.start + at.end;
                    if round + 1 < operation.world_size {
                        let room = &mut received[bytes_of::<T>(&at)];
                        let own = &values.borrow()[own];
                        running.each(own.len(), T::RUNNING_BYTES, |at, run| {
                            travel.fold(reduction, run, &own[at.clone()], &mut room[bytes_of::<T>(&at)]);
                        });
                    } else {
                        let own = &mut values.borrow_mut()[own];
                        running.each(own.len(), T::RUNNING_BYTES, |at, run| {
                            travel.close(reduction, operation.world_size, run, &mut own[at]);
                        });
                    }
                }
                Ok(())
            };
            tokio::try_join!(sending, receiving)?;
            swap(&mut rooms.received, &mut rooms.sent);
        }
    }
    Ok(())
}

/// The frames of one block's running values, with their places in the block.
fn frames<T: Travel>(operation: Operation, block: &Range<usize>) -> impl Iterator<Item = (Frame, Range<usize>)> + use<T> {
    operation.chunks(0..block.len(), T::RUNNING_BYTES).map(|(index, at)| {
        let frame = Frame {
            kind: FrameKind::Running,
            index,
            bytes: at.len() * T::RUNNING_BYTES,
        };
        (frame, at)
    })
}

fn bytes_of<T: Travel>(places: &Range<usize>) -> Range<usize> {
    places.start * T::RUNNING_BYTES..places.end * T::RUNNING_BYTES
}
