//! Reduces in rank order, 0 to n-1: the running values go from the first rank to the last, which sends what they have become around to the others.
//! All chunks are on their way together. Knows no types of numbers.
//!
//! What is combined is read where the link and the caller's buffer have it, and written where the next link takes it from; the result replaces the
//! caller's values. A rank's own values of a chunk have gone on before the chunk's result can come, so nothing else is kept.

use std::cell::RefCell;
use std::ops::Range;

use super::element::{Element, Reduction};
use super::error::GroupError;
use super::lane::{Frame, Incoming, Lane, Lanes, Outgoing};
use super::operation::{Operation, common};
use crate::links::frame::FrameKind;
use crate::runs::Runs;

/// Reduces `values` of all ranks. `takes` says which of the results a rank gets; the results of later ranks are not before those of earlier ones, and
/// all but the last rank's end alike.
pub(super) async fn reduce<E: Element>(
    operation: Operation,
    lanes: &mut Lanes,
    reduction: Reduction,
    values: &mut [E],
    takes: impl Fn(u32) -> Range<usize>,
) -> Result<(), GroupError> {
    let Lanes { running, finished } = lanes;
    if operation.is_last() {
        operation.call(running).await?;
        operation.agreed(finished).await?;
        return close(operation, &mut running.from, &mut finished.to, reduction, values, &takes(0)).await;
    }
    let values = RefCell::new(values);
    let onwards = async {
        operation.call(running).await?;
        pass_on(operation, running, reduction, &values).await
    };
    let back = async {
        operation.agreed(finished).await?;
        let next = (!operation.ends_lap_at_next()).then(|| takes(operation.rank + 1));
        take(operation, finished, &values, takes(operation.rank), next).await
    };
    tokio::try_join!(onwards, back).map(|_| ())
}

/// Combines this rank's own with the running values, chunk by chunk.
async fn pass_on<E: Element>(
    operation: Operation,
    lane: &mut Lane,
    reduction: Reduction,
    values: &RefCell<&mut [E]>,
) -> Result<(), GroupError> {
    let length = values.borrow().len();
    for (index, range) in operation.running_chunks::<E>(0..length) {
        let frame = running_frame::<E>(index, &range);
        if operation.is_first() {
            let begin = |out: &mut [u8]| E::begin(&values.borrow()[range], out);
            lane.to.send(operation.stamp, frame, begin).await?;
        } else {
            let mut running = lane.from.receive(operation.stamp, frame).await?;
            let fold = |out: &mut [u8]| {
                let own = &values.borrow()[range];
                running.each(own.len(), E::RUNNING_BYTES, |at, run| {
                    let out = &mut out[at.start * E::RUNNING_BYTES..at.end * E::RUNNING_BYTES];
                    E::fold(reduction, run, &own[at], out);
                });
            };
            lane.to.send(operation.stamp, frame, fold).await?;
        }
    }
    Ok(())
}

/// Combines the last rank's own, which makes the result, and sends on what others take of it.
async fn close<E: Element>(
    operation: Operation,
    from: &mut Incoming,
    to: &mut Outgoing,
    reduction: Reduction,
    values: &mut [E],
    others: &Range<usize>,
) -> Result<(), GroupError> {
    for (index, range) in operation.running_chunks::<E>(0..values.len()) {
        let mut running = from.receive(operation.stamp, running_frame::<E>(index, &range)).await?;
        let own = &mut values[range.clone()];
        running.each(own.len(), E::RUNNING_BYTES, |at, run| {
            E::close(reduction, operation.world_size, run, &mut own[at]);
        });
        let sent = common(&range, others);
        if !sent.is_empty() {
            let result = bytemuck::cast_slice(&values[sent.clone()]);
            to.send(operation.stamp, sum_frame::<E>(index, &sent), |out| {
                out.copy_from_slice(result)
            })
            .await?;
        }
    }
    Ok(())
}

/// Takes the results `own` as they come around, and sends on those that the next rank takes, if one does.
async fn take<E: Element>(
    operation: Operation,
    lane: &mut Lane,
    values: &RefCell<&mut [E]>,
    own: Range<usize>,
    next: Option<Range<usize>>,
) -> Result<(), GroupError> {
    // Cut where the running values are.
    for (index, range) in operation.running_chunks::<E>(own) {
        let mut result = lane.from.receive(operation.stamp, sum_frame::<E>(index, &range)).await?;
        result.copy_to(bytemuck::cast_slice_mut(&mut values.borrow_mut()[range.clone()]));
        let sent = next.as_ref().map_or(0..0, |next| common(&range, next));
        if !sent.is_empty() {
            let frame = sum_frame::<E>(index, &sent);
            let store = |out: &mut [u8]| out.copy_from_slice(bytemuck::cast_slice(&values.borrow()[sent]));
            lane.to.send(operation.stamp, frame, store).await?;
        }
    }
    Ok(())
}

fn running_frame<E: Element>(index: u32, range: &Range<usize>) -> Frame {
    Frame {
        kind: FrameKind::Running,
        index,
        bytes: range.len() * E::RUNNING_BYTES,
    }
}

fn sum_frame<E: Element>(index: u32, range: &Range<usize>) -> Frame {
    Frame {
        kind: FrameKind::Sum,
        index,
        bytes: range.len() * size_of::<E>(),
    }
}
