//! The buffers of gradients that lie on a step driver. They are used again, since each may be as large as the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use sardana_collectives::gradient::{GradientBuffer, GradientView, Sum};
use sardana_collectives::layout::Layout;
use sardana_protocol::memory::SUMS;
use sardana_protocol::words::ShardRange;
use smallvec::SmallVec;

#[derive(Debug)]
pub(super) struct Buffers {
    layout: Arc<Layout>,
    /// Buffers of pieces that lack shards.
    partial: BTreeMap<ShardRange, GradientBuffer>,
    /// Buffers of complete pieces. A ring may read them.
    whole: BTreeMap<ShardRange, GradientBuffer>,
    /// For re-use, never more than a step needs. Nothing reads them.
    pub(super) free: Vec<GradientBuffer>,
    /// Pieces of the step under way.
    pieces: usize,
}

impl Buffers {
    pub(super) const fn new(layout: Arc<Layout>) -> Self {
        Self {
            layout,
            partial: BTreeMap::new(),
            whole: BTreeMap::new(),
            free: Vec::new(),
            pieces: 0,
        }
    }

    /// A buffer for a gradient, with anything in it: rather one that has memory on a device, for the next gradient to lie in.
    pub(super) fn for_gradient(&mut self) -> GradientBuffer {
        let place = self.free.iter().rposition(GradientBuffer::has_memory_elsewhere);
        let taken = place
            .or(self.free.len().checked_sub(1))
            .map(|place| self.free.swap_remove(place));
        taken.unwrap_or_else(|| GradientBuffer::zeros(&self.layout))
    }

    /// A buffer for a sum, with anything in it. What has memory on a device is left to gradients, unless there is more of it than they need: a sum may
    /// stay there, too.
    pub(super) fn for_sum(&mut self) -> GradientBuffer {
        let is_left = self.free.len() > self.pieces;
        let place = self.free.iter().rposition(|buffer| is_left || !buffer.has_memory_elsewhere());
        let taken = place.map(|place| self.free.swap_remove(place));
        taken.unwrap_or_else(|| GradientBuffer::zeros(&self.layout))
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
        if self.free.len() < self.pieces + SUMS as usize {
            self.free.extend(sum.map(Sum::into_buffer).filter(GradientBuffer::is_unread));
        }
    }

    /// A step of these pieces begins: of all others it lets go.
    pub(super) fn retain_for_step(&mut self, pieces: &[ShardRange]) {
        self.retain(pieces);
        self.pieces = pieces.len();
        self.free.truncate(self.pieces + SUMS as usize);
    }

    /// Lets go of all pieces but these. A buffer that a ring still reads is left to it; others are used again.
    pub(super) fn retain(&mut self, pieces: &[ShardRange]) {
        let dropped = |piece: &&ShardRange| !pieces.contains(piece);
        let mut from = ShardRange::new(0, 0);
        while let Some(piece) = self.partial.range(from..).map(|(piece, _)| piece).find(dropped).copied() {
            self.free.extend(self.partial.remove(&piece));
            from = piece;
        }
        from = ShardRange::new(0, 0);
        while let Some(piece) = self.whole.range(from..).map(|(piece, _)| piece).find(dropped).copied() {
            let buffer = self.whole.remove(&piece);
            self.free.extend(buffer.filter(GradientBuffer::is_unread));
            from = piece;
        }
    }
}
