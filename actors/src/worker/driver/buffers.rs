//! The buffers of gradients that lie on a step driver. They are used again, since each may be as large as the model. Nothing here touches their memory, which may take
//! seconds, and those that are not used again are handed out to be dropped. (One that a ring still reads is the ring's to drop.)

use std::collections::BTreeMap;
use std::sync::Arc;

use sardana_collectives::gradient::{GradientBuffer, GradientView, Sum};
use sardana_collectives::layout::Layout;
use sardana_collectives::limits::CHUNK_BYTES;
use sardana_protocol::limits::SHOWN_PIECES;
use sardana_protocol::memory::SUMS;
use sardana_protocol::words::ShardRange;
use smallvec::SmallVec;

/// What a buffer was last. It is rather that again: other processes may have borrowed a sum, and return it before the next but one is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Gradient,
    Sum,
}

#[derive(Debug)]
pub(super) struct Buffers {
    layout: Arc<Layout>,
    /// Buffers of pieces that lack shards.
    partial: BTreeMap<ShardRange, GradientBuffer>,
    /// Buffers of complete pieces. A ring may read them.
    whole: BTreeMap<ShardRange, GradientBuffer>,
    /// For re-use, never more than a step needs. Nothing here reads them.
    pub(super) free: Vec<(Use, GradientBuffer)>,
    /// Pieces of the step under way.
    pieces: usize,
    /// Whether gradients are so large that other processes of the host read them where they lie.
    is_large: bool,
    /// Of no use any more: to be dropped by what holds no lock.
    gone: Vec<GradientBuffer>,
}

impl Buffers {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self {
            is_large: layout.bytes() >= CHUNK_BYTES,
            layout,
            partial: BTreeMap::new(),
            whole: BTreeMap::new(),
            free: Vec::new(),
            pieces: 0,
            gone: Vec::new(),
        }
    }

    /// A buffer for the gradient of a piece, with anything in it: rather one that has memory on a device, for the next gradient to lie in. The running sum
    /// that begins with shard 0 is passed on as it is, and where there are few pieces each may be, to its owners: other processes of this host may read
    /// those where they lie.
    pub(super) fn for_gradient(&mut self, piece: ShardRange) -> GradientBuffer {
        let shown = self.is_large && (piece.start() == 0 || self.pieces as u64 <= SHOWN_PIECES);
        let fit = |was, buffer: &GradientBuffer| {
            Some((
                buffer.has_memory_elsewhere(),
                was == Use::Gradient,
                buffer.is_in_pages() == shown,
            ))
        };
        let mut buffer = self.take(fit).unwrap_or_else(|| self.made(shown));
        if buffer.is_read_elsewhere() {
            // What another process was shown is left to it, and not copied for a gradient that is stored anew.
            let made = self.made(shown);
            self.gone.push(std::mem::replace(&mut buffer, made));
        }
        buffer
    }

    /// A buffer for a sum, with anything in it, which is passed on as well. What has memory on a device is left to gradients, unless there is more of it than
    /// they need: a sum may stay there, too. One that is `kept` beyond the next one is to lie here alone.
    pub(super) fn for_sum(&mut self, kept: bool) -> GradientBuffer {
        let is_left = self.free.len() > self.pieces;
        let fit = |was, buffer: &GradientBuffer| {
            let may = is_left || !buffer.has_memory_elsewhere();
            may.then(|| (was == Use::Sum, buffer.is_in_pages()))
        };
        let mut buffer = self.take(fit).unwrap_or_else(|| self.made(self.is_large));
        buffer.let_borrow(!kept);
        buffer
    }

    /// The free buffer that fits best, of those that fit at all.
    fn take<Fit: Ord>(&mut self, fit: impl Fn(Use, &GradientBuffer) -> Option<Fit>) -> Option<GradientBuffer> {
        let fit_of = |(was, buffer): &(Use, GradientBuffer)| fit(*was, buffer);
        let fits = (0..self.free.len()).filter_map(|place| Some((fit_of(&self.free[place])?, place)));
        let (_, best) = fits.max()?;
        Some(self.free.swap_remove(best).1)
    }

    fn made(&self, shown: bool) -> GradientBuffer {
        if shown {
            GradientBuffer::in_pages(&self.layout)
        } else {
            GradientBuffer::zeros(&self.layout)
        }
    }

    /// Those that are of no use any more, to be dropped: the system takes its time for that, too.
    pub(super) fn gone(&mut self) -> Vec<GradientBuffer> {
        std::mem::take(&mut self.gone)
    }

    /// A sum that nothing was written to.
    pub(super) fn give_back(&mut self, buffer: GradientBuffer) {
        self.free.push((Use::Sum, buffer));
    }

    /// The buffer of a piece that lacks shards, for the next of them.
    pub(super) fn begun(&mut self, piece: ShardRange) -> Option<GradientBuffer> {
        self.partial.remove(&piece)
    }

    /// What will be written to `buffer`, to be read as it comes.
    pub(super) fn awaited(&self, buffer: &mut GradientBuffer) -> GradientView {
        buffer.awaited(&self.layout)
    }

    /// The gradients of `piece` up to `shard` are in `buffer`.
    pub(super) fn computed(&mut self, piece: ShardRange, shard: u32, buffer: GradientBuffer) {
        if shard + 1 == piece.end() {
            self.whole.insert(piece, buffer);
        } else {
            self.partial.insert(piece, buffer);
        }
    }

    /// What is in `buffer` is not wanted any more. It is used again, so that there is memory for no more gradients than before.
    pub(super) fn reuse(&mut self, buffer: GradientBuffer) {
        if buffer.is_unread() {
            self.free.push((Use::Gradient, buffer));
        }
    }

    /// All of a complete piece, to be read. What reads it already sees all of it from now on.
    pub(super) fn whole(&mut self, piece: ShardRange) -> Option<GradientView> {
        self.whole.get_mut(&piece).map(GradientBuffer::complete)
    }

    /// These pieces, which are all, to be added up.
    pub(super) fn take_whole(&mut self, pieces: &[ShardRange]) -> SmallVec<[GradientBuffer; 1]> {
        pieces.iter().filter_map(|piece| self.whole.remove(piece)).collect()
    }

    /// Uses the buffer of a sum again, if there is one that no task reads any more.
    pub(super) fn recycle(&mut self, sum: Option<Sum>) {
        let Some(buffer) = sum.map(Sum::into_buffer) else { return };
        let is_wanted = self.free.len() < self.pieces + SUMS as usize;
        if is_wanted && buffer.is_unread() && !self.is_stray(&buffer) {
            self.free.push((Use::Sum, buffer));
        } else {
            self.gone.push(buffer);
        }
    }

    /// Whether it came with a sum from elsewhere, and others could not read what is written there.
    fn is_stray(&self, buffer: &GradientBuffer) -> bool {
        self.is_large && !buffer.is_made_for_pages() && !buffer.has_memory_elsewhere()
    }

    /// A step of these pieces begins, if there are any: of all others it lets go.
    pub(super) fn retain_for_step(&mut self, pieces: &[ShardRange]) {
        self.retain(pieces);
        self.pieces = pieces.len();
        let wanted = self.free.len().min(self.pieces + SUMS as usize);
        self.gone.extend(self.free.drain(wanted..).map(|(_, buffer)| buffer));
    }

    /// Lets go of all pieces but these. A buffer that a ring still reads is left to it; others are used again.
    pub(super) fn retain(&mut self, pieces: &[ShardRange]) {
        let dropped = |piece: &&ShardRange| !pieces.contains(piece);
        let mut from = ShardRange::new(0, 0);
        while let Some(piece) = self.partial.range(from..).map(|(piece, _)| piece).find(dropped).copied() {
            let buffer = self.partial.remove(&piece);
            self.free.extend(buffer.map(|buffer| (Use::Gradient, buffer)));
            from = piece;
        }
        from = ShardRange::new(0, 0);
        while let Some(piece) = self.whole.range(from..).map(|(piece, _)| piece).find(dropped).copied() {
            let buffer = self.whole.remove(&piece);
            let buffer = buffer.filter(GradientBuffer::is_unread);
            self.free.extend(buffer.map(|buffer| (Use::Gradient, buffer)));
            from = piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::state::{Dtype, TensorSpec};
    use sardana_protocol::words::Step;

    use super::*;

    fn buffers(elements: usize, pieces: &[ShardRange]) -> Buffers {
        let tensors = vec![TensorSpec::new("all", Dtype::F32, &[elements])];
        let mut buffers = Buffers::new(Arc::new(Layout::new(tensors, 0).unwrap()));
        buffers.retain_for_step(pieces);
        buffers
    }

    #[test]
    fn what_is_passed_on_as_it_is_can_be_read_by_others_of_the_host() {
        let pieces: Vec<_> = [(0, 4), (4, 5), (5, 6)]
            .map(|(start, end)| ShardRange::new(start, end))
            .to_vec();
        let mut large = buffers(CHUNK_BYTES / 4, &pieces);
        assert!(large.for_sum(false).is_in_pages());
        let gradients: Vec<_> = pieces.iter().map(|&piece| large.for_gradient(piece)).collect();
        let seen: Vec<_> = gradients.iter().map(GradientBuffer::is_in_pages).collect();
        assert_eq!(seen, [true, false, false], "of several the running sum alone");
        // Each kind is used again as what it is.
        large.free.extend(gradients.into_iter().map(|buffer| (Use::Gradient, buffer)));
        assert!(!large.for_gradient(pieces[1]).is_in_pages() && large.for_sum(false).is_in_pages());
        assert!(
            buffers(CHUNK_BYTES / 4, &pieces[1..]).for_gradient(pieces[2]).is_in_pages(),
            "one of two"
        );
        assert!(!buffers(9, &pieces).for_sum(false).is_in_pages(), "it is small");
    }

    #[test]
    fn memory_is_neither_touched_nor_given_back_here() {
        let pieces = [(0, 1), (1, 2)].map(|(start, end)| ShardRange::new(start, end));
        let mut buffers = buffers(CHUNK_BYTES / 4, &pieces);
        let sum = buffers.for_sum(false);
        let mut gradients = pieces.map(|piece| buffers.for_gradient(piece));
        let views = gradients.each_mut().map(|gradient| buffers.awaited(gradient));
        assert!(!sum.is_touched() && gradients.iter().all(|gradient| !gradient.is_touched()));
        drop(views);
        let [first, second] = gradients;
        assert!(first.bytes().iter().all(|byte| *byte == 0));
        buffers.reuse(first);
        buffers.reuse(second);
        let sums: Vec<_> = (0..4).map(|_| buffers.for_sum(true)).collect();
        for sum in sums {
            buffers.recycle(Some(Sum::from_buffer(Step::ZERO, sum)));
        }
        // Nothing is a piece any more: as many are kept as a step has sums, and the others are handed out to be dropped.
        buffers.retain_for_step(&[]);
        let (free, gone) = (buffers.free.len(), buffers.gone().len());
        assert_eq!((free, free + gone), (SUMS as usize, 4));
        assert!(buffers.gone().is_empty());
    }

    #[test]
    fn what_was_a_sum_is_one_again() {
        let piece = ShardRange::new(0, 1);
        let mut buffers = buffers(CHUNK_BYTES / 4, &[piece]);
        let (gradient, sum) = (buffers.for_gradient(piece), buffers.for_sum(false));
        let places = [&gradient, &sum].map(|buffer| buffer.bytes().as_ptr());
        buffers.computed(piece, 0, gradient);
        buffers.recycle(Some(Sum::from_buffer(Step::ZERO, sum)));
        // Nothing is a piece any more: both are free.
        buffers.retain(&[]);
        for sum_is_first in [true, false] {
            let first = sum_is_first.then(|| buffers.for_sum(false));
            let gradient = buffers.for_gradient(piece);
            let sum = first.unwrap_or_else(|| buffers.for_sum(false));
            assert_eq!([&gradient, &sum].map(|buffer| buffer.bytes().as_ptr()), places);
            buffers.free.extend([(Use::Sum, sum), (Use::Gradient, gradient)]);
        }
    }
}
