//! A visit whose gradients lie in memory elsewhere, such as a GPU's: the running sum passes that memory part by part, is added to there, and goes on. So of k
//! gradients none comes to the host.
//!
//! ```text
//! links: chunks ─> a part in a slot ─> Resident::pass ─> the part in its slot ─> chunks: added to by what lies here, and passed on
//! ```
//! A slot is memory that what holds the gradients copies from and to by itself. Where nothing lies here, another process of this host borrows a part there, and a part that is
//! finished goes to the finished sum by itself. What was borrowed so need not come to a slot. Several parts are under way at once; each comes back in its turn. What lies behind the tensors, the auxiliary sums and the
//! number of samples, is added here.

use std::ops::Range;
use std::sync::Arc;

use sardana_protocol::state::Dtype;
use smallvec::SmallVec;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::RingError;
use super::inbox::Piece;
use super::ordered::Goes;
use super::passage::{Chunk, Incoming, Passage, Term, Terms, own_terms};
use crate::borrowed::Borrowed;
use crate::gradient::{Passed, Passing, Places, Resident, ResidentError, Slot};
use crate::layout::Layout;
use crate::limits::{CHUNK_BYTES, LOWERED_BYTES, PASSING_AT_ONCE};
use crate::links::Received;
use crate::reduce;
use crate::runs::Runs;

/// What a visit's first gradients lie in: those that can be added to a sum together, up to the first that cannot.
pub(super) struct Through {
    dtype: Dtype,
    residents: Vec<Arc<dyn Resident>>,
    /// Where the sum goes, if all that is left to add to it lies there.
    goes: Option<Places>,
    /// Where it stays besides.
    stays: Option<Arc<dyn Resident>>,
}

/// A part that was sent through, and its chunks.
struct UnderWay {
    chunks: Range<u32>,
    passed: Passed,
    /// Whether it goes to the finished sum by itself.
    is_placed: bool,
}

impl Through {
    /// None if the first gradient is in the host's memory, or tensors are of several types. Waits until it is known.
    pub(super) async fn find(passage: Passage<'_>, own: &[Piece]) -> Option<Self> {
        let layout = passage.layout();
        let dtype = layout.dtype()?;
        let mut residents: Vec<Arc<dyn Resident>> = Vec::new();
        for piece in own {
            let Some(resident) = piece.gradient.lies(layout).await else {
                break;
            };
            if residents.first().is_some_and(|first| !first.adds_with(&*resident)) {
                break;
            }
            residents.push(resident);
        }
        (!residents.is_empty()).then_some(Self {
            dtype,
            residents,
            goes: None,
            stays: None,
        })
    }

    /// Makes the visit. The first chunk of the running sum is here already, if there is one.
    pub(super) async fn visit(
        mut self,
        passage: Passage<'_>,
        from: Option<&mut Incoming>,
        first: Option<Vec<u8>>,
        own: &[Piece],
        mut goes: Goes<'_, '_>,
    ) -> Result<(), RingError> {
        let (there, here) = own.split_at(self.residents.len());
        if here.is_empty() {
            self.goes = goes.places();
            self.stays = self.residents.first().and_then(|first| goes.room_beside(first));
        }
        let (under_way, coming) = channel(PASSING_AT_ONCE);
        let sending = self.send_all(passage, (from, first), there, under_way);
        let going = go_on(passage, coming, here, &mut goes);
        tokio::try_join!(sending, going)?;
        if let Some(stays) = &self.stays {
            goes.stays(stays);
        }
        Ok(())
    }

    /// Sends each part through, as it comes.
    async fn send_all(
        &self,
        passage: Passage<'_>,
        (mut from, mut first): (Option<&mut Incoming>, Option<Vec<u8>>),
        there: &[Piece],
        under_way: Sender<UnderWay>,
    ) -> Result<(), RingError> {
        let layout = passage.layout();
        let Some((first_there, others)) = self.residents.split_first() else {
            return Ok(());
        };
        for chunks in parts(layout) {
            let range = bytes_of(layout, &chunks);
            let mut slot = first_there.slot().map_err(passage.lacks())?;
            let bytes = first_of(&mut *slot, range.len()).map_err(passage.lacks())?;
            let tensors = range.start..range.end.min(layout.tensors_end().max(range.start));
            // What lies behind the tensors is added here.
            let is_whole = tensors == range;
            let lent = receive(passage, (from.as_deref_mut(), first.take()), &chunks, (bytes, is_whole)).await?;
            let begins = from.is_none();
            add_tail(layout, tensors.end..range.end, begins, &mut bytes[tensors.len()..], there).await;
            let is_none = tensors.is_empty();
            let goes = self.goes.as_ref().filter(|_| is_whole);
            let goes = goes.map(|places| places.place(range.clone()));
            let is_placed = goes.is_some();
            let (passing, passed) = Passing::new(tensors, self.dtype, begins, slot);
            let passing = passing.lent(lent).finished_in(goes, self.stays.clone());
            if is_none {
                passing.finish();
            } else {
                Arc::clone(first_there).pass(others, passing);
            }
            let part = UnderWay {
                chunks,
                passed,
                is_placed,
            };
            if under_way.send(part).await.is_err() {
                // What they go on with has failed, which ends this future too.
                break;
            }
        }
        Ok(())
    }
}

/// Receives a part of the running sum into `bytes`, but for chunks that the rank before lends, if they may be elsewhere: each with where it begins in the part. The first
/// chunk of all is here already, if there is one.
async fn receive(
    passage: Passage<'_>,
    (mut from, mut first): (Option<&mut Incoming>, Option<Vec<u8>>),
    chunks: &Range<u32>,
    (bytes, may_be_lent): (&mut [u8], bool),
) -> Result<Vec<(usize, Borrowed)>, RingError> {
    let (layout, range) = (passage.layout(), bytes_of(passage.layout(), chunks));
    let mut lent = Vec::new();
    for index in chunks.clone().rev() {
        let place = within(layout, index, &range);
        if let Some(first) = first.take() {
            bytes[place].copy_from_slice(&first);
            continue;
        }
        let Some(from) = from.as_deref_mut() else { continue };
        match from.borrow(passage, Chunk::running(index)).await? {
            Received::Borrowed(chunk) if may_be_lent => lent.push((place.start, chunk)),
            Received::Borrowed(chunk) => bytes[place].copy_from_slice(&chunk),
            Received::Payload(mut running) => running.copy_to(&mut bytes[place]),
        }
    }
    Ok(lent)
}

/// Passes the parts on as they come back, with what lies here added.
async fn go_on(
    passage: Passage<'_>,
    mut coming: Receiver<UnderWay>,
    here: &[Piece],
    goes: &mut Goes<'_, '_>,
) -> Result<(), RingError> {
    let gone = || ResidentError::new("what was to add to it is gone");
    while let Some(UnderWay {
        chunks,
        passed,
        is_placed,
    }) = coming.recv().await
    {
        let mut slot = passed.await.unwrap_or_else(|_| Err(gone())).map_err(passage.lacks())?;
        if is_placed {
            continue;
        }
        let range = bytes_of(passage.layout(), &chunks);
        let part = slot.in_place().map_err(passage.lacks())?;
        check_length(part.bytes(), range.len()).map_err(passage.lacks())?;
        for index in chunks.rev() {
            let sum = part.part(within(passage.layout(), index, &range));
            if let Some(to) = goes.shown_to().filter(|_| here.is_empty()) {
                to.pass_in_place(passage, Chunk::running(index), sum.lent().in_turn()).await?;
                continue;
            }
            let own = own_terms(passage, here, index).await?.into_iter().map(Term::Own);
            let mut terms: Terms<'_> = [Term::Own(sum.bytes())].into_iter().chain(own).collect();
            goes.put(passage, index, &mut terms).await?;
        }
    }
    Ok(())
}

/// So many bytes of a slot, which has as many as a part may have.
fn first_of(slot: &mut dyn Slot, length: usize) -> Result<&mut [u8], ResidentError> {
    let bytes = slot.bytes()?;
    check_length(bytes, length)?;
    Ok(&mut bytes[..length])
}

fn check_length(slot: &[u8], length: usize) -> Result<(), ResidentError> {
    let found = slot.len();
    if length <= found {
        return Ok(());
    }
    let short = format!("expected a slot of {length} bytes or more, found {found}");
    Err(ResidentError::new(short))
}

/// Adds what lies behind the tensors, as far as it is in `tail`, whose running sum `bytes` holds unless it begins.
async fn add_tail(layout: &Layout, tail: Range<usize>, begins: bool, bytes: &mut [u8], own: &[Piece]) {
    if tail.is_empty() {
        return;
    }
    let running = (!begins).then(|| bytes.to_vec());
    let mut terms: SmallVec<[&[u8]; 16]> = running.iter().map(Vec::as_slice).collect();
    for piece in own {
        terms.push(piece.gradient.tail(tail.clone()).await);
    }
    reduce::sum_into(layout, tail, bytes, &mut terms);
}

/// The chunks in parts, each of which passes at once, in the order in which they travel: within a part, too, the last chunk goes first.
fn parts(layout: &Layout) -> Vec<Range<u32>> {
    // At most as many as fit; LOWERED_BYTES is some of them.
    let most = (LOWERED_BYTES / CHUNK_BYTES) as u32;
    let last = layout.chunks() - 1;
    let before = (0..last.div_ceil(most))
        .rev()
        .map(|part| part * most..last.min((part + 1) * most));
    before.chain(std::iter::once(last..last + 1)).collect()
}

fn bytes_of(layout: &Layout, chunks: &Range<u32>) -> Range<usize> {
    layout.chunk(chunks.start).start..layout.chunk(chunks.end - 1).end
}

/// Where a chunk lies in the bytes of its part.
fn within(layout: &Layout, index: u32, part: &Range<usize>) -> Range<usize> {
    let chunk = layout.chunk(index);
    chunk.start - part.start..chunk.end - part.start
}

#[cfg(test)]
mod tests {
    use sardana_protocol::state::TensorSpec;

    use super::*;

    #[test]
    fn parts_are_the_chunks_in_the_order_in_which_they_travel() {
        for elements in [0, 1, 40_000, 262_144, 262_145, 300_000, 1_000_000] {
            let layout = Layout::new(vec![TensorSpec::new("a", Dtype::F32, &[elements])], 3).unwrap();
            let parts = parts(&layout);
            let chunks: Vec<u32> = parts.iter().flat_map(|part| part.clone().rev()).collect();
            assert_eq!(chunks, layout.travel().collect::<Vec<_>>());
            assert!(parts.iter().all(|part| bytes_of(&layout, part).len() <= LOWERED_BYTES));
            assert!(parts.len() <= layout.bytes() / LOWERED_BYTES + 2, "few are not full");
        }
    }
}
