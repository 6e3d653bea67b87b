//! Executes the ordered plan: chunk by chunk, all chunks in flight together, both directions at once, within one task.
//!
//! ```text
//! visits:   receive running ─> add my shards in order ─> pass on    (one future per visit)
//! the end:  receive the sum, or close it ─> sum's buffer            (complete: gradients are let go, the sum is delivered)
//! way back:                                 sum's buffer ─> send on
//! ```
//! Where the sum is sent no further its chunks may stay [where the rank before has them](crate::borrowed), and none is copied.
//!
//! A chunk waits for this rank's own gradients only as far as the chunk itself is not written yet. What is added is read where the link and
//! the gradients have it, and written where the next link takes it from. Memory beyond the buffers is what the links hold. Where a visit's gradients lie in
//! memory elsewhere the sum goes [`through`](super::through) that.

use std::sync::Arc;

use futures_util::future::try_join_all;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{OrderedPart, VisitPart};

use super::inbox::{Contribution, Inbox, Piece, own};
use super::passage::{Chunk, Incoming, Outgoing, Passage, terms};
use super::through::Through;
use super::{CompletedSum, PlanLinks, RingError};
use crate::coming::Coming;
use crate::gradient::{Filling, GradientView, Places, Resident, Sum};
use crate::links::frame::PlanSlot;
use crate::links::{LinkSender, Payload, Received};
use crate::runs::Runs;
use crate::yielding::yield_to_others;

/// One rank's part of an ordered plan, with its links.
#[derive(Debug)]
pub(super) struct OrderedExecutor {
    visits: Vec<LinkedStay>,
    end: End,
    sum_to: Option<Outgoing>,
    /// The sum's buffer, and the trailer.
    sum: Coming<GradientView>,
    trailer: Coming<Trailer>,
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
            sum: Coming::default(),
            trailer: Coming::default(),
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
        let Self {
            visits,
            end,
            sum_to,
            sum,
            trailer: closed,
        } = self;
        let (sum, closed) = (&*sum, &*closed);
        let Contribution { mut into, pieces } = contribution;
        let goes_on = sum_to.is_some();
        if goes_on {
            into.let_borrow(false);
        }
        closed.expect();
        let borrows = matches!(end, End::Receive { from } if from.lends()) && into.may_borrow();
        if !borrows {
            into.take_memory().await;
        }
        let mut filling = Filling::new(passage.layout(), into, sum);
        let complete = async {
            let passing = pass_all(passage, visits, &pieces);
            let ending = async {
                match end {
                    End::Close { visit, from } => {
                        add(passage, from.as_mut(), own(visit.shards, &pieces), Goes::Here(&mut filling)).await?;
                        inbox.trailer()
                    }
                    End::Receive { from } => {
                        receive(passage, from, &mut filling, goes_on).await?;
                        from.receive_trailer(passage).await
                    }
                }
            };
            let ((), trailer) = tokio::try_join!(passing, ending)?;
            // The trainer may write the next step's gradients where this step's were.
            drop(pieces);
            closed.come(trailer);
            completed(CompletedSum {
                generation: passage.config.generation,
                step: passage.step,
                sum: Sum::from_buffer(passage.step, filling.finish()),
                trailer,
            });
            Ok(trailer)
        };
        let sending = async {
            match sum_to {
                Some(to) => send_on(passage, to, sum, closed).await,
                None => Ok(()),
            }
        };
        // Each chunk that is taken in or added up is sent before the next.
        let (trailer, ()) = tokio::try_join!(biased; complete, sending)?;
        // Nothing here reads the buffer any more.
        sum.expect();
        Ok(trailer)
    }

    pub(super) fn senders(&mut self) -> impl Iterator<Item = &mut LinkSender> + Send {
        let visits = self.visits.iter_mut().map(|visit| &mut visit.to.link);
        visits.chain(self.sum_to.as_mut().map(|to| &mut to.link))
    }
}

/// Passes the running sum on at each visit.
async fn pass_all(passage: Passage<'_>, visits: &mut [LinkedStay], pieces: &[Piece]) -> Result<(), RingError> {
    if let [visit] = visits {
        // As nearly always. To wait for several allocates.
        return visit.pass(passage, pieces).await;
    }
    let passing = visits.iter_mut().map(|visit| visit.pass(passage, pieces));
    try_join_all(passing).await.map(drop)
}

impl LinkedStay {
    async fn pass(&mut self, passage: Passage<'_>, pieces: &[Piece]) -> Result<(), RingError> {
        let own = own(self.visit.shards, pieces);
        add(passage, self.from.as_mut(), own, Goes::On(&mut self.to)).await
    }
}

/// Where a visit's sum goes.
pub(super) enum Goes<'a, 'b> {
    /// To the next visit.
    On(&'a mut Outgoing),
    /// It is finished.
    Here(&'a mut Filling<'b>),
}

impl Goes<'_, '_> {
    /// Where the sum goes, if it is finished.
    pub(super) fn places(&mut self) -> Option<Places> {
        match self {
            Self::On(_) => None,
            Self::Here(filling) => Some(filling.places()),
        }
    }

    /// Where the sum stays beside these gradients, if it is finished.
    pub(super) fn room_beside(&mut self, gradients: &Arc<dyn Resident>) -> Option<Arc<dyn Resident>> {
        match self {
            Self::On(_) => None,
            Self::Here(filling) => filling.room_beside(gradients),
        }
    }

    /// Says that it has stayed there.
    pub(super) fn stays(&mut self, resident: &Arc<dyn Resident>) {
        match self {
            Self::On(_) => {}
            Self::Here(filling) => filling.stays(resident),
        }
    }

    /// The link that it goes on by, if the rank at its other end may read it where it lies.
    pub(super) fn shown_to(&mut self) -> Option<&mut Outgoing> {
        match self {
            Self::On(to) => Some(&mut **to).filter(|to| to.is_read_in_place()),
            Self::Here(_) => None,
        }
    }

    /// Adds the terms of a chunk where it goes.
    pub(super) async fn put(&mut self, passage: Passage<'_>, index: u32, terms: &mut [impl Runs]) -> Result<(), RingError> {
        match self {
            Self::On(to) => {
                let chunk = Chunk::running(index);
                to.pass(passage, chunk, |out| passage.sum(index, out, terms)).await
            }
            Self::Here(filling) => {
                filling.fill(index, |out| passage.finish(index, out, terms));
                Ok(())
            }
        }
    }
}

/// Adds a visit's shards to each chunk.
async fn add(
    passage: Passage<'_>,
    mut from: Option<&mut Incoming>,
    own: &[Piece],
    mut goes: Goes<'_, '_>,
) -> Result<(), RingError> {
    let mut travel = passage.layout().travel();
    let first = travel.next().expect("a gradient has its number of samples");
    // At once, so that a link that breaks ends this before there is a gradient.
    let receiving = receive_running(passage, from.as_deref_mut(), first);
    let finding = async { Ok(Through::find(passage, own).await) };
    let (running, through) = tokio::try_join!(receiving, finding)?;
    if let Some(through) = through {
        let first = running.map(copied);
        return through.visit(passage, from, first, own, goes).await;
    }
    put(passage, running, own, first, &mut goes).await?;
    for index in travel {
        if let Goes::Here(_) = &goes {
            // Other ranks wait for the chunk before, which this must not keep from being sent.
            yield_to_others().await;
        }
        let running = receive_running(passage, from.as_deref_mut(), index).await?;
        put(passage, running, own, index, &mut goes).await?;
    }
    Ok(())
}

/// Adds a visit's shards to one chunk.
async fn put(
    passage: Passage<'_>,
    running: Option<Payload<'_>>,
    own: &[Piece],
    index: u32,
    goes: &mut Goes<'_, '_>,
) -> Result<(), RingError> {
    // A running sum that begins with one gradient is that gradient: the next rank may read it where it lies.
    if let (None, [piece], Goes::On(to)) = (&running, own, &mut *goes) {
        let gradient = piece.gradient.chunk_in_place(index).await.map_err(passage.lacks())?;
        return to.pass_in_place(passage, Chunk::running(index), gradient).await;
    }
    let mut terms = terms(passage, running, own, index).await?;
    goes.put(passage, index, &mut terms).await
}

fn copied(mut running: Payload<'_>) -> Vec<u8> {
    let mut bytes = vec![0; running.left()];
    running.copy_to(&mut bytes);
    bytes
}

/// A chunk of the sum so far. None where the sum begins.
pub(super) async fn receive_running<'a>(
    passage: Passage<'_>,
    from: Option<&'a mut Incoming>,
    index: u32,
) -> Result<Option<Payload<'a>>, RingError> {
    match from {
        Some(from) => from.receive(passage, Chunk::running(index)).await.map(Some),
        None => Ok(None),
    }
}

/// Receives each chunk of the finished sum. Where that `goes_on`, what sends it has its turn after each of them.
async fn receive(
    passage: Passage<'_>,
    from: &mut Incoming,
    filling: &mut Filling<'_>,
    goes_on: bool,
) -> Result<(), RingError> {
    for index in passage.layout().travel() {
        match from.borrow(passage, Chunk::sum(index)).await? {
            Received::Payload(mut chunk) => filling.fill(index, |out| out.put_next(chunk.left(), &mut chunk)),
            Received::Borrowed(chunk) => filling.borrow(index, chunk),
        }
        if goes_on {
            yield_to_others().await;
        }
    }
    Ok(())
}

/// Sends the finished sum on, chunk by chunk as they are there, and then its trailer.
async fn send_on(
    passage: Passage<'_>,
    to: &mut Outgoing,
    sum: &Coming<GradientView>,
    trailer: &Coming<Trailer>,
) -> Result<(), RingError> {
    let sum = sum.there().await;
    for index in passage.layout().travel() {
        let chunk = sum.chunk_in_place(index).await.map_err(passage.lacks())?;
        to.send_in_place(passage, Chunk::sum(index), chunk.lent()).await?;
    }
    to.send_trailer(passage, trailer.there().await).await
}
