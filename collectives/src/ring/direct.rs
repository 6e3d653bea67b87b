//! Executes the direct plan: every rank sends each owner its shards' gradients of the owner's chunks; the owner adds them in shard order and sends the
//! finished chunks to all. All of it at once, within one task.
//!
//! ```text
//! bring:    my gradients of each chunk ─────> its owner           unless that is this rank
//! add:      mine, and what each rank brings, in shard order ─> sum's buffer          of its own chunks
//! tell:     sum's buffer ─> every other rank                                         of its own chunks
//! receive:  each chunk, finished, from its owner ─> sum's buffer  unless that is this rank, or it stays where that one has it
//! ```
//! Chunks are dealt to the owners in turn, so that all are busy from the first ones on. Each of the four goes through its chunks in the order in which they
//! travel. So what any of them waits for is of an earlier chunk or comes before in this list: they never wait for each other in a circle. And a rank
//! waits for few links at a time.
//!
//! The first owner has the last chunk, and closes: once its chunks are finished it has heard from every rank, so it decides the trailer then and sends
//! it after them. It may be the last to have the whole sum all the same, and is no better off than any other where the ring breaks before.
//!
//! A rank without shards sends an empty frame for each chunk: by it the owner knows that the rank is at this step. Memory beyond the buffers is a chunk and
//! what the links hold.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard};

use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Adding, Brought, DirectPart, HopId, Owner};
use sardana_protocol::words::ShardRange;

use super::inbox::{Contribution, Inbox, Piece, own};
use super::passage::{Chunk, Incoming, Outgoing, Passage, Term, Terms, own_terms};
use super::{CompletedSum, PlanLinks, RingError};
use crate::borrowed::Borrowed;
use crate::coming::Coming;
use crate::gradient::{Filling, GradientView, Sum};
use crate::layout::Layout;
use crate::links::frame::PlanSlot;
use crate::links::{LinkSender, Received};
use crate::runs::Runs;
use crate::stores::Destination;
use crate::yielding::yield_to_others;

/// One rank's part of a direct plan, with its links.
#[derive(Debug)]
pub(super) struct DirectExecutor {
    brings: Vec<ShardRange>,
    turns: Turns,
    /// To each other owner, by its turn, and from it.
    to: BTreeMap<u32, Outgoing>,
    sum_from: BTreeMap<u32, Incoming>,
    /// The owner that this rank is.
    here: Option<Here>,
    /// To every other rank, if this one is an owner.
    sums_to: Vec<Outgoing>,
    /// The sum's buffer, and the trailer.
    sum: Coming<GradientView>,
    trailer: Coming<Trailer>,
}

/// Which owner has which chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turns {
    owners: u32,
    own: Option<u32>,
}

/// What an owner adds up with.
#[derive(Debug)]
struct Here {
    adds: Vec<Brought>,
    from: BTreeMap<HopId, Incoming>,
    /// Whether each link brings one gradient of a chunk at most, and the links are in the order in which these are added.
    at_once: bool,
    /// A chunk to which gradients are being added, where not all are there at once.
    running: Vec<u8>,
}

/// The room for the sum, which two futures of one task fill. Locked for one chunk at a time, so neither ever waits.
struct Room<'a>(Mutex<Filling<'a>>);

impl DirectExecutor {
    pub(super) fn new(slot: PlanSlot, part: &DirectPart, links: &mut PlanLinks) -> Result<Self, RingError> {
        let mut executor = Self {
            brings: part.brings.clone(),
            turns: Turns {
                owners: u32::try_from(part.owners.len()).expect("there are no more owners than ranks"),
                own: None,
            },
            to: BTreeMap::new(),
            sum_from: BTreeMap::new(),
            here: None,
            sums_to: Vec::new(),
            sum: Coming::default(),
            trailer: Coming::default(),
        };
        for (turn, owner) in (0..).zip(&part.owners) {
            match owner {
                Owner::Here(adding) => {
                    executor.turns.own = Some(turn);
                    executor.here = Some(Here::new(slot, adding, links)?);
                    let sums_to = adding.sums_to.iter().map(|&end| Outgoing::take(slot, end, links));
                    executor.sums_to = sums_to.collect::<Result<_, _>>()?;
                }
                &Owner::There { to, sum_from } => {
                    executor.to.insert(turn, Outgoing::take(slot, to, links)?);
                    executor.sum_from.insert(turn, Incoming::take(slot, sum_from, links)?);
                }
            }
        }
        Ok(executor)
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
            brings,
            turns,
            to,
            sum_from,
            here,
            sums_to,
            sum,
            trailer,
        } = self;
        let (turns, sum, trailer) = (*turns, &*sum, &*trailer);
        let Contribution { into, pieces } = contribution;
        trailer.expect();
        let borrows = here.is_none() && into.may_borrow() && sum_from.values().all(Incoming::lends);
        if !borrows {
            into.take_memory().await;
        }
        let room = Room(Mutex::new(Filling::new(passage.layout(), into, sum)));
        let complete = async {
            let bringing = bring_all(passage, turns, to, brings, &pieces);
            let adding = async {
                match here {
                    Some(here) => here.add_all(passage, turns, &pieces, &room, inbox, trailer).await,
                    None => Ok(()),
                }
            };
            let receiving = receive_all(passage, turns, sum_from, &room, trailer);
            tokio::try_join!(bringing, adding, receiving)?;
            // The trainer may write the next step's gradients where this step's were.
            drop(pieces);
            let trailer = trailer.there().await;
            completed(CompletedSum {
                generation: passage.config.generation,
                step: passage.step,
                sum: Sum::from_buffer(passage.step, room.into_filling().finish()),
                trailer,
            });
            Ok(trailer)
        };
        let telling = tell_all(passage, turns, sums_to, sum, trailer);
        let (trailer, ()) = tokio::try_join!(complete, telling)?;
        // Nothing here reads the buffer any more.
        sum.expect();
        Ok(trailer)
    }

    pub(super) fn senders(&mut self) -> impl Iterator<Item = &mut LinkSender> + Send {
        self.to.values_mut().chain(&mut self.sums_to).map(|to| &mut to.link)
    }
}

impl Turns {
    /// The owner of a chunk. The first one has the last chunk.
    fn of(self, layout: &Layout, chunk: u32) -> u32 {
        (layout.chunks() - 1 - chunk) % self.owners
    }

    /// The chunks of the owner that this rank is, in the order in which they travel.
    fn own(self, layout: &Layout) -> impl Iterator<Item = u32> {
        layout.travel().filter(move |&chunk| Some(self.of(layout, chunk)) == self.own)
    }

    fn closes(self) -> bool {
        self.own == Some(0)
    }
}

impl<'a> Room<'a> {
    fn fill(&self, index: u32, fill: impl FnOnce(&mut Destination<'_>)) {
        self.filling().fill(index, fill);
    }

    fn borrow(&self, index: u32, chunk: Borrowed) {
        self.filling().borrow(index, chunk);
    }

    fn filling(&self) -> MutexGuard<'_, Filling<'a>> {
        self.0.lock().expect("terms of equal lengths are added without a panic")
    }

    fn into_filling(self) -> Filling<'a> {
        let filling = self.0.into_inner();
        filling.expect("terms of equal lengths are added without a panic")
    }
}

impl Here {
    fn new(slot: PlanSlot, adding: &Adding, links: &mut PlanLinks) -> Result<Self, RingError> {
        let mut from = BTreeMap::new();
        for end in adding.adds.iter().filter_map(|brought| brought.from) {
            if let Entry::Vacant(place) = from.entry(end.hop) {
                place.insert(Incoming::take(slot, end, links)?);
            }
        }
        let others = || adding.adds.iter().filter(|brought| brought.from.is_some());
        let hops = others().map(|brought| brought.from.map(|end| end.hop));
        let one_each = others().all(|brought| Brought::gradients(brought.shards) <= 1);
        Ok(Self {
            at_once: one_each && hops.is_sorted_by(|hop, next| hop < next),
            adds: adding.adds.clone(),
            from,
            running: Vec::new(),
        })
    }

    /// Adds up this owner's chunks, and decides the trailer if it closes.
    async fn add_all(
        &mut self,
        passage: Passage<'_>,
        turns: Turns,
        pieces: &[Piece],
        room: &Room<'_>,
        inbox: &mut Inbox,
        trailer: &Coming<Trailer>,
    ) -> Result<(), RingError> {
        let mut is_first = true;
        for index in turns.own(passage.layout()) {
            if !std::mem::take(&mut is_first) {
                // Other owners wait for this rank's gradients, which this future must not keep from being sent.
                yield_to_others().await;
            }
            if self.at_once {
                self.add_at_once(passage, pieces, room, index).await?;
            } else {
                self.add(passage, pieces, index).await?;
                room.fill(index, |out| out.put(&self.running));
            }
        }
        if turns.closes() {
            trailer.come(inbox.trailer()?);
        }
        Ok(())
    }

    /// Adds up chunk `index` where the links and the gradients have it.
    async fn add_at_once(
        &mut self,
        passage: Passage<'_>,
        pieces: &[Piece],
        room: &Room<'_>,
        index: u32,
    ) -> Result<(), RingError> {
        let mut links = self.from.values_mut();
        let mut gradients = Terms::new();
        for brought in &self.adds {
            if brought.from.is_none() {
                let own = own_terms(passage, own(brought.shards, pieces), index).await?;
                gradients.extend(own.into_iter().map(Term::Own));
                continue;
            }
            let link = links.next().expect("an owner has a link from each other rank");
            if brought.shards.is_empty() {
                link.receive(passage, Chunk::nothing(index)).await?;
            } else {
                let gradient = link.receive(passage, Chunk::running(index)).await?;
                gradients.push(Term::Received(gradient));
            }
        }
        room.fill(index, |out| passage.finish(index, out, &mut gradients));
        Ok(())
    }

    /// Adds up chunk `index`, one gradient after the other as they come.
    async fn add(&mut self, passage: Passage<'_>, pieces: &[Piece], index: u32) -> Result<(), RingError> {
        let running = &mut self.running;
        running.clear();
        for brought in &self.adds {
            let Some(end) = brought.from else {
                for gradient in own_terms(passage, own(brought.shards, pieces), index).await? {
                    passage.add(index, running, gradient);
                }
                continue;
            };
            let link = self.from.get_mut(&end.hop).expect("an owner has a link from each other rank");
            if brought.shards.is_empty() {
                link.receive(passage, Chunk::nothing(index)).await?;
            }
            for _ in 0..Brought::gradients(brought.shards) {
                let gradient = link.receive(passage, Chunk::running(index)).await?;
                passage.add(index, running, gradient);
            }
        }
        Ok(())
    }
}

/// Sends the chunks of the owner that this rank is as they are finished, and the trailer after them if it closes.
async fn tell_all(
    passage: Passage<'_>,
    turns: Turns,
    sums_to: &mut [Outgoing],
    sum: &Coming<GradientView>,
    trailer: &Coming<Trailer>,
) -> Result<(), RingError> {
    let mut view = None;
    for index in turns.own(passage.layout()) {
        let view = match &view {
            Some(view) => view,
            None => view.insert(sum.there().await),
        };
        let chunk = view.chunk_in_place(index).await.map_err(passage.lacks())?;
        for to in &mut *sums_to {
            to.send_in_place(passage, Chunk::sum(index), chunk.lent()).await?;
        }
    }
    if turns.closes() {
        let trailer = trailer.there().await;
        for to in sums_to {
            to.send_trailer(passage, trailer).await?;
        }
    }
    Ok(())
}

/// Receives what other owners have finished, with the trailer if one of them closes.
async fn receive_all(
    passage: Passage<'_>,
    turns: Turns,
    sum_from: &mut BTreeMap<u32, Incoming>,
    room: &Room<'_>,
    trailer: &Coming<Trailer>,
) -> Result<(), RingError> {
    for index in passage.layout().travel() {
        if let Some(from) = sum_from.get_mut(&turns.of(passage.layout(), index)) {
            match from.borrow(passage, Chunk::sum(index)).await? {
                Received::Payload(mut chunk) => room.fill(index, |out| out.put_next(chunk.left(), &mut chunk)),
                Received::Borrowed(chunk) => room.borrow(index, chunk),
            }
        }
    }
    if let Some(closer) = sum_from.get_mut(&0) {
        trailer.come(closer.receive_trailer(passage).await?);
    }
    Ok(())
}

/// Sends this rank's gradients of each chunk to its owner, if that is another rank.
async fn bring_all(
    passage: Passage<'_>,
    turns: Turns,
    owners: &mut BTreeMap<u32, Outgoing>,
    brings: &[ShardRange],
    pieces: &[Piece],
) -> Result<(), RingError> {
    for index in passage.layout().travel() {
        if let Some(to) = owners.get_mut(&turns.of(passage.layout(), index)) {
            for &run in brings {
                bring(passage, to, run, own(run, pieces), index).await?;
            }
        }
    }
    Ok(())
}

/// Sends chunk `index` of each gradient of a run.
async fn bring(
    passage: Passage<'_>,
    to: &mut Outgoing,
    run: ShardRange,
    own: &[Piece],
    index: u32,
) -> Result<(), RingError> {
    if run.is_empty() {
        return to.send(passage, Chunk::nothing(index), |_| ()).await;
    }
    if Brought::gradients(run) == 1 && own.len() > 1 {
        let mut terms = own_terms(passage, own, index).await?;
        return to
            .pass(passage, Chunk::running(index), |out| passage.sum(index, out, &mut terms))
            .await;
    }
    for piece in own {
        let gradient = piece.gradient.chunk_in_place(index).await.map_err(passage.lacks())?;
        to.pass_in_place(passage, Chunk::running(index), gradient).await?;
    }
    Ok(())
}
