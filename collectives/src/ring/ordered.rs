//! Executes the ordered plan: chunk by chunk, all chunks in flight together, both directions at once, within one task.
//!
//! ```text
//! visits:    receive running ─> add my shards in order ─> pass on        (one future per visit)
//! the end:  receive the sum, or close it ─> sum's buffer ─> queue       (complete: gradients are let go, the sum is delivered)
//! way back:                                       queue ─> send on
//! ```
//! Memory beyond the buffers is bounded by one chunk per visit, the queue, and what the links hold.

use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{OrderedPart, VisitPart};
use tokio::sync::mpsc;

use super::inbox::{Contribution, Inbox, Piece};
use super::passage::{Chunk, Incoming, Outgoing, Passage};
use super::{CompletedSum, PlanLinks, RingError};
use crate::gradient::{GradientBuffer, Sum};
use crate::limits::QUEUED_CHUNKS;
use crate::links::LinkSender;
use crate::links::frame::PlanSlot;
use crate::reduce;

/// One rank's part of an ordered plan, with its links.
#[derive(Debug)]
pub(super) struct OrderedExecutor {
    visits: Vec<LinkedStay>,
    end: End,
    sum_to: Option<Outgoing>,
}

/// A visit whose running sum goes on.
#[derive(Debug)]
struct LinkedStay {
    visit: VisitPart,
    from: Option<Incoming>,
    to: Outgoing,
}

/// How this rank comes to the finished sum.
#[derive(Debug)]
enum End {
    /// Its last visit finishes it.
    Close { visit: VisitPart, from: Option<Incoming> },
    /// It comes back from the closer.
    Receive { from: Incoming },
}

/// What goes on along the way back.
enum Outbound {
    Chunk(u32, Bytes),
    Trailer(Trailer),
}

/// The way back's queue; none at its end.
type Queue = Option<mpsc::Sender<Outbound>>;

impl OrderedExecutor {
    pub(super) fn new(slot: PlanSlot, part: &OrderedPart, links: &mut PlanLinks) -> Result<Self, RingError> {
        let mut visits = Vec::new();
        let mut end = None;
        for &visit in &part.visits {
            let from = visit.from.map(|hop| Incoming::take(slot, hop, links)).transpose()?;
            match visit.to {
                Some(hop) => visits.push(LinkedStay {
                    visit,
                    from,
                    to: Outgoing::take(slot, hop, links)?,
                }),
                None => end = Some(End::Close { visit, from }),
            }
        }
        if let Some(hop) = part.sum_from {
            end = Some(End::Receive {
                from: Incoming::take(slot, hop, links)?,
            });
        }
        Ok(Self {
            visits,
            end: end.expect("every rank of a plan closes the sum or receives it"),
            sum_to: part.sum_to.map(|hop| Outgoing::take(slot, hop, links)).transpose()?,
        })
    }

    /// Sums one step.
    pub(super) async fn pass(
        &mut self,
        passage: Passage<'_>,
        contribution: Contribution,
        inbox: &mut Inbox,
        completed: &mut impl FnMut(CompletedSum),
    ) -> Result<Trailer, RingError> {
        let Self { visits, end, sum_to } = self;
        let (queue, queued) = mpsc::channel(QUEUED_CHUNKS);
        let queue = sum_to.is_some().then_some(queue);
        let Contribution { mut into, pieces } = contribution;
        let complete = async {
            let of = |visit: &VisitPart| -> Vec<Piece> {
                pieces
                    .range(visit.shards.start()..visit.shards.end())
                    .map(|(_, piece)| piece.clone())
                    .collect()
            };
            let passing = try_join_all(visits.iter_mut().map(|visit| visit.pass(passage, of(&visit.visit))));
            let ending = async {
                match end {
                    End::Close { visit, from } => close(passage, from.as_mut(), &of(visit), &mut into, &queue, inbox).await,
                    End::Receive { from } => receive(passage, from, &mut into, &queue).await,
                }
            };
            let (_, trailer) = tokio::try_join!(passing, ending)?;
            // The trainer may write the next step's gradients where this step's were.
            drop(pieces);
            completed(CompletedSum {
                generation: passage.config.generation,
                step: passage.step,
                sum: Sum::from_buffer(passage.step, into),
                trailer,
            });
            // Ends the way back, once that has sent what is queued.
            drop(queue);
            Ok(trailer)
        };
        let (trailer, ()) = tokio::try_join!(complete, send_on(passage, sum_to.as_mut(), queued))?;
        Ok(trailer)
    }

    pub(super) fn senders(&mut self) -> impl Iterator<Item = &mut LinkSender> + Send {
        let visits = self.visits.iter_mut().map(|visit| &mut visit.to.link);
        visits.chain(self.sum_to.as_mut().map(|to| &mut to.link))
    }
}

impl LinkedStay {
    async fn pass(&mut self, passage: Passage<'_>, pieces: Vec<Piece>) -> Result<(), RingError> {
        for index in 0..passage.layout().chunks() {
            let running = add(passage, self.from.as_mut(), index, &pieces).await?;
            self.to.pass(passage, index, running.freeze()).await?;
        }
        Ok(())
    }
}

/// The running sum of one chunk after this visit.
async fn add(
    passage: Passage<'_>,
    from: Option<&mut Incoming>,
    index: u32,
    pieces: &[Piece],
) -> Result<BytesMut, RingError> {
    let layout = passage.layout();
    let range = layout.chunk(index);
    let (mut running, rest) = match from {
        Some(from) => (from.receive(passage, Chunk::running(index)).await?, pieces),
        None => {
            // Copied, not added to zeros: 0.0 + -0.0 would not be the shard's own bits.
            let (first, rest) = pieces
                .split_first()
                .expect("a plan starts with shard 0, and its gradient is here");
            (BytesMut::from(&first.gradient.bytes()[range.clone()]), rest)
        }
    };
    for piece in rest {
        reduce::add(layout, range.clone(), &mut running, &piece.gradient.bytes()[range.clone()]);
    }
    Ok(running)
}

/// Adds the last shards to each chunk, and decides the trailer when all are done.
async fn close(
    passage: Passage<'_>,
    mut from: Option<&mut Incoming>,
    pieces: &[Piece],
    into: &mut GradientBuffer,
    queue: &Queue,
    inbox: &mut Inbox,
) -> Result<Trailer, RingError> {
    for index in 0..passage.layout().chunks() {
        let sum = add(passage, from.as_deref_mut(), index, pieces).await?;
        store(passage, index, sum, into, queue).await;
    }
    let trailer = inbox.trailer()?;
    enqueue(queue, Outbound::Trailer(trailer)).await;
    Ok(trailer)
}

/// Receives each chunk of the finished sum, and the trailer.
async fn receive(
    passage: Passage<'_>,
    from: &mut Incoming,
    into: &mut GradientBuffer,
    queue: &Queue,
) -> Result<Trailer, RingError> {
    for index in 0..passage.layout().chunks() {
        let sum = from.receive(passage, Chunk::sum(index)).await?;
        store(passage, index, sum, into, queue).await;
    }
    let trailer = from.receive_trailer(passage).await?;
    enqueue(queue, Outbound::Trailer(trailer)).await;
    Ok(trailer)
}

async fn store(passage: Passage<'_>, index: u32, sum: BytesMut, into: &mut GradientBuffer, queue: &Queue) {
    into.bytes_mut()[passage.layout().chunk(index)].copy_from_slice(&sum);
    enqueue(queue, Outbound::Chunk(index, sum.freeze())).await;
}

async fn enqueue(queue: &Queue, outbound: Outbound) {
    if let Some(queue) = queue {
        // The other end is gone only when sending has failed, and then the whole step fails with that.
        let _ = queue.send(outbound).await;
    }
}

/// Sends the finished sum on along the way back.
async fn send_on(
    passage: Passage<'_>,
    to: Option<&mut Outgoing>,
    mut queued: mpsc::Receiver<Outbound>,
) -> Result<(), RingError> {
    let Some(to) = to else {
        return Ok(());
    };
    while let Some(outbound) = queued.recv().await {
        match outbound {
            Outbound::Chunk(index, sum) => to.send(passage, Chunk::sum(index), sum).await?,
            Outbound::Trailer(trailer) => to.send_trailer(passage, trailer).await?,
        }
    }
    Ok(())
}
