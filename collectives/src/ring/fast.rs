//! Executes the ring plan (`fast`): receives and sends at once within one task, with the sum's own buffer between them.
//!
//! What is received may lie long before its turn to be sent comes, so it waits in the sum's buffer and not in a queue: a bounded
//! queue would stall the circle. Memory beyond the buffers is a few chunks.
//!
//! Where f32 are [compressed](crate::compression) they lie in the sum's buffer as they are between two hops, and travel as halves. The rank that
//! finishes a chunk rounds it there as well: what it passes on is what it keeps.

use std::iter::once;
use std::sync::{Mutex, MutexGuard};

use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::RingPart;
use tokio::sync::watch;

use super::elsewhere::Elsewhere;
use super::inbox::{Contribution, Inbox, Piece};
use super::means::SummationConfig;
use super::passage::{Chunk, Incoming, Outgoing, Passage, Term, Terms, own_terms};
use super::telling::Around;
use super::{CompletedSum, PlanLinks, RingConfig, RingError};
use crate::compression::Half;
use crate::gradient::{GradientBuffer, Sum};
use crate::links::frame::PlanSlot;
use crate::links::{LinkSender, Payload};
use crate::moves::{RingMove, RingPlace};
use crate::runs::Runs;
use crate::yielding::yield_to_others;

/// One rank's part of a ring plan, with its links.
#[derive(Debug)]
pub(super) struct FastExecutor {
    place: RingPlace,
    half: Option<Half>,
    /// None when the rank is alone.
    links: Option<Around>,
    /// How many chunks of the step under way have been received.
    receipts: watch::Sender<u32>,
}

/// The buffer that both directions work on. Locked for one copy at a time, by futures of one task, so none ever waits.
struct Shared<'a> {
    half: Option<Half>,
    sum: Mutex<&'a mut [u8]>,
}

impl FastExecutor {
    pub(super) fn new(
        config: &RingConfig,
        slot: PlanSlot,
        part: &RingPart,
        links: &mut PlanLinks,
    ) -> Result<Self, RingError> {
        let links = match part.hops {
            Some((from, to)) => Some((Incoming::take(slot, from, links)?, Outgoing::take(slot, to, links)?)),
            None => None,
        };
        Ok(Self {
            place: RingPlace::new(config.rank, config.world_size),
            half: Half::of(config.compression),
            links,
            receipts: watch::Sender::default(),
        })
    }

    /// Agrees with the other ranks on another means of summing. None for a rank that is alone.
    pub(super) async fn begin_elsewhere(
        &mut self,
        config: &RingConfig,
        summation: &SummationConfig,
    ) -> Result<Option<Elsewhere>, RingError> {
        let step = config.step;
        match &mut self.links {
            Some(links) => {
                let begun = Elsewhere::begin(Passage { config, step }, summation.clone(), links);
                Ok(Some(begun.await?))
            }
            None => Ok(None),
        }
    }

    /// Sums one step.
    pub(super) async fn pass(
        &mut self,
        passage: Passage<'_>,
        contribution: Contribution,
        elsewhere: &mut Option<Elsewhere>,
        inbox: &mut Inbox,
        completed: &mut impl FnMut(CompletedSum),
    ) -> Result<Trailer, RingError> {
        let Contribution { mut into, pieces } = contribution;
        let summed = match (&mut self.links, elsewhere) {
            (Some(links), Some(elsewhere)) => elsewhere.sum(passage, links, &mut into, &pieces).await?,
            (_, None) | (None, _) => false,
        };
        if !summed {
            self.sum_over_links(passage, &mut into, &pieces).await?;
        }
        let trailer = match &mut self.links {
            Some((from, _)) if !self.place.closes() => from.receive_trailer(passage).await?,
            Some(_) | None => inbox.trailer()?,
        };
        drop(pieces);
        completed(CompletedSum {
            generation: passage.config.generation,
            step: passage.step,
            sum: Sum::from_buffer(passage.step, into),
            trailer,
        });
        match &mut self.links {
            Some((_, to)) if self.place.passes_trailer() => to.send_trailer(passage, trailer).await?,
            Some(_) | None => {}
        }
        Ok(trailer)
    }

    async fn sum_over_links(
        &mut self,
        passage: Passage<'_>,
        into: &mut GradientBuffer,
        pieces: &[Piece],
    ) -> Result<(), RingError> {
        into.take_memory().await;
        // Once a step: it goes through all chunks.
        let shared = Shared {
            half: self.half,
            sum: Mutex::new(into.bytes_mut()),
        };
        match &mut self.links {
            Some((from, to)) => {
                self.receipts.send_replace(0);
                let receiving = receive_all(passage, self.place, from, pieces, &shared, &self.receipts);
                let sending = send_all(passage, self.place, to, pieces, &shared, self.receipts.subscribe());
                tokio::try_join!(receiving, sending)?;
            }
            None => {
                for index in 0..passage.layout().chunks() {
                    shared.sum(passage, index, &mut own_terms(passage, pieces, index).await?);
                    // No link ends its turn.
                    yield_to_others().await;
                }
            }
        }
        Ok(())
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
    own: &[Piece],
    shared: &Shared<'_>,
    receipts: &watch::Sender<u32>,
) -> Result<(), RingError> {
    let chunks = passage.layout().chunks();
    for receipt in place.receives(chunks) {
        let chunk = shared.chunk_of(receipt);
        let received = from.receive(passage, chunk).await?;
        let own = if receipt.whole { &[] } else { own };
        let own = own_terms(passage, own, chunk.index).await?;
        shared.sum_received(passage, chunk.index, received, &own);
        if !receipt.whole && place.finishes(chunk.index, chunks) {
            shared.round(passage, chunk.index);
        }
        receipts.send_modify(|count| *count += 1);
    }
    Ok(())
}

/// Sends its own segment, then what it made of each receipt.
async fn send_all(
    passage: Passage<'_>,
    place: RingPlace,
    to: &mut Outgoing,
    own: &[Piece],
    shared: &Shared<'_>,
    mut received: watch::Receiver<u32>,
) -> Result<(), RingError> {
    let chunks = passage.layout().chunks();
    let first = place.own(chunks);
    for (number, sending) in (0..).zip(place.sends(chunks)) {
        let chunk = shared.chunk_of(sending);
        if number < first {
            let mut own = own_terms(passage, own, chunk.index).await?;
            to.pass(passage, chunk, |out| shared.begin(passage, chunk.index, out, &mut own))
                .await?;
            continue;
        }
        let needed = number - first + 1;
        // Receiving ends before that only with all receipts counted, or with an error that ends this future too.
        let _ = received.wait_for(|count| *count >= needed).await;
        let load = |out: &mut [u8]| shared.load(passage, chunk.index, out);
        if sending.whole {
            to.send(passage, chunk, load).await?;
        } else {
            to.pass(passage, chunk, load).await?;
        }
    }
    Ok(())
}

/// The sum of `terms`; zeros where a spare has none.
fn sum(passage: Passage<'_>, index: u32, out: &mut [u8], terms: &mut [impl Runs]) {
    if terms.is_empty() {
        out.fill(0);
    } else {
        passage.sum(index, out, terms);
    }
}

impl<'a> Shared<'a> {
    const fn chunk_of(&self, RingMove { chunk, whole }: RingMove) -> Chunk {
        let chunk = if whole { Chunk::sum(chunk) } else { Chunk::running(chunk) };
        chunk.compressed(self.half)
    }

    /// Writes the sum of this rank's own as it is sent.
    fn begin(&self, passage: Passage<'_>, index: u32, out: &mut [u8], own: &mut [&[u8]]) {
        match self.half {
            Some(half) => half.pack_sum(passage.layout(), passage.layout().chunk(index), out, own),
            None => sum(passage, index, out, own),
        }
    }

    /// Sums what lies in memory.
    fn sum(&self, passage: Passage<'_>, index: u32, terms: &mut [impl Runs]) {
        let range = passage.layout().chunk(index);
        sum(passage, index, &mut self.lock()[range], terms);
    }

    /// Adds this rank's own to what was received.
    fn sum_received(&self, passage: Passage<'_>, index: u32, mut received: Payload<'_>, own: &[&[u8]]) {
        let Some(half) = self.half else {
            let own = own.iter().map(|own| Term::Own(own));
            let mut terms: Terms<'_> = once(Term::Received(received)).chain(own).collect();
            return self.sum(passage, index, &mut terms);
        };
        let range = passage.layout().chunk(index);
        let mut sum = self.lock();
        let out = &mut sum[range.clone()];
        half.sum_unpacked(passage.layout(), range, out, &mut received, own);
    }

    /// Keeps of a finished chunk what the others get.
    fn round(&self, passage: Passage<'_>, index: u32) {
        if let Some(half) = self.half {
            let range = passage.layout().chunk(index);
            half.round_part(passage.layout(), range.clone(), &mut self.lock()[range]);
        }
    }

    /// Writes what this rank has made of a chunk as it is sent.
    fn load(&self, passage: Passage<'_>, index: u32, out: &mut [u8]) {
        let range = passage.layout().chunk(index);
        let sum = self.lock();
        let sum = &sum[range.clone()];
        match self.half {
            Some(half) => half.pack_sum(passage.layout(), range, out, &[sum]),
            None => out.copy_from_slice(sum),
        }
    }

    fn lock(&self) -> MutexGuard<'_, &'a mut [u8]> {
        self.sum.lock().expect("a copy of equal lengths does not panic")
    }
}
