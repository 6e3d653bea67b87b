//! Executes the ring plan (`fast`): receives and sends at once within one task, with the sum's own buffer between them.
//!
//! What is received may lie long before its turn to be sent comes, so it waits in the sum's buffer and not in a queue: a bounded
//! queue would stall the circle. Memory beyond the buffers is a few chunks.

use std::sync::{Mutex, MutexGuard};

use bytes::{Bytes, BytesMut};
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::RingPart;
use tokio::sync::watch;

use super::inbox::{Contribution, Inbox, Piece};
use super::passage::{Chunk, Incoming, Outgoing, Passage};
use super::{CompletedSum, PlanLinks, RingError};
use crate::gradient::{GradientBuffer, Sum};
use crate::links::LinkSender;
use crate::links::frame::PlanSlot;
use crate::moves::{RingMove, RingPlace};
use crate::reduce;

/// One rank's part of a ring plan, with its links.
#[derive(Debug)]
pub(super) struct FastExecutor {
    place: RingPlace,
    /// None when the rank is alone.
    links: Option<(Incoming, Outgoing)>,
}

/// The buffer that both directions work on. Locked for one copy at a time, by futures of one task, so none ever waits.
struct Shared {
    sum: Mutex<GradientBuffer>,
}

impl FastExecutor {
    pub(super) fn new(place: RingPlace, slot: PlanSlot, part: &RingPart, links: &mut PlanLinks) -> Result<Self, RingError> {
        let links = match part.hops {
            Some((from, to)) => Some((Incoming::take(slot, from, links)?, Outgoing::take(slot, to, links)?)),
            None => None,
        };
        Ok(Self { place, links })
    }

    /// Sums one step.
    pub(super) async fn pass(
        &mut self,
        passage: Passage<'_>,
        contribution: Contribution,
        inbox: &mut Inbox,
        completed: &mut impl FnMut(CompletedSum),
    ) -> Result<Trailer, RingError> {
        let Contribution { into, pieces } = contribution;
        let pieces: Vec<Piece> = pieces.into_values().collect();
        let shared = Shared { sum: Mutex::new(into) };
        match &mut self.links {
            Some((from, to)) => {
                let (received, progress) = watch::channel(0);
                let receiving = receive_all(passage, self.place, from, &pieces, &shared, received);
                let sending = send_all(passage, self.place, to, &pieces, &shared, progress);
                tokio::try_join!(receiving, sending)?;
            }
            None => {
                for index in 0..passage.layout().chunks() {
                    shared.store(passage, index, &local(passage, index, &pieces));
                }
            }
        }
        let trailer = match &mut self.links {
            Some((from, _)) if !self.place.closes() => from.receive_trailer(passage).await?,
            Some(_) | None => inbox.trailer()?,
        };
        drop(pieces);
        completed(CompletedSum {
            generation: passage.config.generation,
            step: passage.step,
            sum: Sum::from_buffer(passage.step, shared.into_buffer()),
            trailer,
        });
        match &mut self.links {
            Some((_, to)) if self.place.passes_trailer() => to.send_trailer(passage, trailer).await?,
            Some(_) | None => {}
        }
        Ok(trailer)
    }

    pub(super) fn senders(&mut self) -> impl Iterator<Item = &mut LinkSender> + Send {
        self.links.iter_mut().map(|(_, to)| &mut to.link)
    }
}

/// Receives in the plan's order, adds this rank's own to partial sums, and counts receipts.
async fn receive_all(
    passage: Passage<'_>,
    place: RingPlace,
    from: &mut Incoming,
    pieces: &[Piece],
    shared: &Shared,
    received: watch::Sender<u32>,
) -> Result<(), RingError> {
    let layout = passage.layout();
    for receipt in place.receives(layout.chunks()) {
        let chunk = chunk_of(receipt);
        let mut sum = from.receive(passage, chunk).await?;
        if !receipt.whole && !pieces.is_empty() {
            reduce::add(
                layout,
                layout.chunk(chunk.index),
                &mut sum,
                &local(passage, chunk.index, pieces),
            );
        }
        shared.store(passage, chunk.index, &sum);
        received.send_modify(|count| *count += 1);
    }
    Ok(())
}

/// Sends its own segment, then what it made of each receipt.
async fn send_all(
    passage: Passage<'_>,
    place: RingPlace,
    to: &mut Outgoing,
    pieces: &[Piece],
    shared: &Shared,
    mut received: watch::Receiver<u32>,
) -> Result<(), RingError> {
    let chunks = passage.layout().chunks();
    let own = place.own(chunks);
    for (index, sending) in (0..).zip(place.sends(chunks)) {
        let chunk = chunk_of(sending);
        let payload = if index < own {
            local(passage, chunk.index, pieces).freeze()
        } else {
            let needed = index - own + 1;
            // Receiving ends before that only with all receipts counted, or with an error that ends this future too.
            let _ = received.wait_for(|count| *count >= needed).await;
            shared.load(passage, chunk.index)
        };
        if sending.whole {
            to.send(passage, chunk, payload).await?;
        } else {
            to.pass(passage, chunk.index, payload).await?;
        }
    }
    Ok(())
}

const fn chunk_of(RingMove { chunk, whole }: RingMove) -> Chunk {
    if whole { Chunk::sum(chunk) } else { Chunk::running(chunk) }
}

/// The sum over this rank's own gradients of one chunk; zeros for a spare.
fn local(passage: Passage<'_>, index: u32, pieces: &[Piece]) -> BytesMut {
    let layout = passage.layout();
    let range = layout.chunk(index);
    let Some((first, rest)) = pieces.split_first() else {
        return BytesMut::zeroed(range.len());
    };
    let mut sum = BytesMut::from(&first.gradient.bytes()[range.clone()]);
    for piece in rest {
        reduce::add(layout, range.clone(), &mut sum, &piece.gradient.bytes()[range.clone()]);
    }
    sum
}

impl Shared {
    fn store(&self, passage: Passage<'_>, index: u32, bytes: &[u8]) {
        self.lock().bytes_mut()[passage.layout().chunk(index)].copy_from_slice(bytes);
    }

    fn load(&self, passage: Passage<'_>, index: u32) -> Bytes {
        Bytes::copy_from_slice(&self.lock().bytes()[passage.layout().chunk(index)])
    }

    fn lock(&self) -> MutexGuard<'_, GradientBuffer> {
        self.sum.lock().expect("a copy of equal lengths does not panic")
    }

    fn into_buffer(self) -> GradientBuffer {
        self.sum.into_inner().expect("a copy of equal lengths does not panic")
    }
}
