//! Brings values to all ranks as they are. Knows no reductions.

use std::cell::RefCell;
use std::ops::Range;

use super::element::Element;
use super::error::GroupError;
use super::lane::{Frame, Incoming, Lane, Outgoing};
use super::operation::Operation;
use crate::links::frame::FrameKind;

/// Brings each rank's part of `values`, which `part` tells, to all ranks: each goes around the ring.
pub(super) async fn all_gather<E: Element>(
    operation: Operation,
    lane: &mut Lane,
    values: &RefCell<&mut [E]>,
    part: impl Fn(u32) -> Range<usize>,
) -> Result<(), GroupError> {
    for round in 0..operation.world_size - 1 {
        let (sent, received) = (part(operation.before(round)), part(operation.before(round + 1)));
        tokio::try_join!(
            send(operation, &mut lane.to, values, sent),
            receive(operation, &mut lane.from, values, received)
        )?;
    }
    Ok(())
}

/// Brings the `root`'s values to all ranks, one after the other; each passes a chunk on as it comes.
pub(super) async fn broadcast<E: Element>(
    operation: Operation,
    lane: &mut Lane,
    values: &mut [E],
    root: u32,
) -> Result<(), GroupError> {
    let all = 0..values.len();
    let values = RefCell::new(values);
    if operation.rank == root {
        return send(operation, &mut lane.to, &values, all).await;
    }
    let next = (operation.rank + 1) % operation.world_size;
    for (frame, range) in frames::<E>(operation, all) {
        receive_one(operation, &mut lane.from, &values, (frame, range.clone())).await?;
        if next != root {
            send_one(operation, &mut lane.to, &values, (frame, range)).await?;
        }
    }
    Ok(())
}

async fn send<E: Element>(
    operation: Operation,
    to: &mut Outgoing,
    values: &RefCell<&mut [E]>,
    range: Range<usize>,
) -> Result<(), GroupError> {
    for one in frames::<E>(operation, range) {
        send_one(operation, to, values, one).await?;
    }
    Ok(())
}

async fn receive<E: Element>(
    operation: Operation,
    from: &mut Incoming,
    values: &RefCell<&mut [E]>,
    range: Range<usize>,
) -> Result<(), GroupError> {
    for one in frames::<E>(operation, range) {
        receive_one(operation, from, values, one).await?;
    }
    Ok(())
}

async fn send_one<E: Element>(
    operation: Operation,
    to: &mut Outgoing,
    values: &RefCell<&mut [E]>,
    (frame, range): (Frame, Range<usize>),
) -> Result<(), GroupError> {
    let load = |out: &mut [u8]| out.copy_from_slice(bytemuck::cast_slice(&values.borrow()[range]));
    to.send(operation.stamp, frame, load).await
}

async fn receive_one<E: Element>(
    operation: Operation,
    from: &mut Incoming,
    values: &RefCell<&mut [E]>,
    (frame, range): (Frame, Range<usize>),
) -> Result<(), GroupError> {
    let payload = from.receive(operation.stamp, frame).await?;
    bytemuck::cast_slice_mut(&mut values.borrow_mut()[range]).copy_from_slice(&payload);
    Ok(())
}

fn frames<E: Element>(operation: Operation, range: Range<usize>) -> impl Iterator<Item = (Frame, Range<usize>)> + use<E> {
    operation.chunks(range, size_of::<E>()).map(|(index, range)| {
        let frame = Frame {
            kind: FrameKind::Values,
            index,
            bytes: range.len() * size_of::<E>(),
        };
        (frame, range)
    })
}
