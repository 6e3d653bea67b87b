//! Brings values to all ranks. Knows no reductions.

use std::cell::RefCell;
use std::ops::Range;

use super::element::Element;
use super::error::GroupError;
use super::lane::{Frame, Incoming, Lane, Outgoing};
use super::operation::Operation;
use super::travel::{AsTheyAre, Travel};
use crate::links::frame::FrameKind;
use crate::runs::Runs;

/// Brings each rank's part of `values`, which `part` tells, to all ranks: each goes around the ring.
pub(super) async fn all_gather<T: Travel>(
    operation: Operation,
    lane: &mut Lane,
    travel: T,
    values: &RefCell<&mut [T::Value]>,
    part: impl Fn(u32) -> Range<usize>,
) -> Result<(), GroupError> {
    for round in 0..operation.world_size - 1 {
        let (sent, received) = (part(operation.before(round)), part(operation.before(round + 1)));
        tokio::try_join!(
            send(operation, &mut lane.to, travel, values, sent),
            receive(operation, &mut lane.from, travel, values, received)
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
    let (travel, all) = (AsTheyAre::<E>::NEW, 0..values.len());
    let values = RefCell::new(values);
    if operation.rank == root {
        return send(operation, &mut lane.to, travel, &values, all).await;
    }
    let next = (operation.rank + 1) % operation.world_size;
    for (frame, range) in frames::<AsTheyAre<E>>(operation, all) {
        receive_one(operation, &mut lane.from, travel, &values, (frame, range.clone())).await?;
        if next != root {
            send_one(operation, &mut lane.to, travel, &values, (frame, range)).await?;
        }
    }
    Ok(())
}

async fn send<T: Travel>(
    operation: Operation,
    to: &mut Outgoing,
    travel: T,
    values: &RefCell<&mut [T::Value]>,
    range: Range<usize>,
) -> Result<(), GroupError> {
    for one in frames::<T>(operation, range) {
        send_one(operation, to, travel, values, one).await?;
    }
    Ok(())
}

async fn receive<T: Travel>(
    operation: Operation,
    from: &mut Incoming,
    travel: T,
    values: &RefCell<&mut [T::Value]>,
    range: Range<usize>,
) -> Result<(), GroupError> {
    for one in frames::<T>(operation, range) {
        receive_one(operation, from, travel, values, one).await?;
    }
    Ok(())
}

async fn send_one<T: Travel>(
    operation: Operation,
    to: &mut Outgoing,
    travel: T,
    values: &RefCell<&mut [T::Value]>,
    (frame, range): (Frame, Range<usize>),
) -> Result<(), GroupError> {
    let store = |out: &mut [u8]| travel.store(&values.borrow()[range], out);
    to.send(operation.stamp, frame, store).await
}

async fn receive_one<T: Travel>(
    operation: Operation,
    from: &mut Incoming,
    travel: T,
    values: &RefCell<&mut [T::Value]>,
    (frame, range): (Frame, Range<usize>),
) -> Result<(), GroupError> {
    let mut payload = from.receive(operation.stamp, frame).await?;
    let results = &mut values.borrow_mut()[range];
    payload.each(results.len(), T::RESULT_BYTES, |at, run| travel.load(run, &mut results[at]));
    Ok(())
}

fn frames<T: Travel>(operation: Operation, range: Range<usize>) -> impl Iterator<Item = (Frame, Range<usize>)> + use<T> {
    operation.chunks(range, T::RESULT_BYTES).map(|(index, range)| {
        let frame = Frame {
            kind: FrameKind::Values,
            index,
            bytes: range.len() * T::RESULT_BYTES,
        };
        (frame, range)
    })
}
