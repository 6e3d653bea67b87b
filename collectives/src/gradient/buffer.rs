//! One gradient: a buffer that one thread writes, and views that read each chunk once it is whole. Knows no tensors and no values.
//!
//! A chunk is either being written, by one writer, or read, by any number of readers: the number of its unwritten bytes says which. It
//! becomes whole once, and is written again only when there are no readers at all. Bytes that the writer leaves [elsewhere](Resident) are written when they
//! come, which is when a reader asks for their chunk; each has its own [`Lowering`](super::Lowering).

use std::iter;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use super::memory::{Memory, Owner, Writing};
use super::resident::{Resident, ResidentError};
use super::room::Room;
use super::writer::Written;
use super::{GradientWriter, Places, WriteMode};
use crate::block_on::block_on;
use crate::borrowed::Borrowed;
use crate::layout::Layout;
use crate::limits::CHUNK_BYTES;
use crate::mapping::Mapping;
use crate::pages::InPlace;

/// The bytes of one gradient: of a shard, or a running sum over a prefix of the shards, or room for a finished sum.
#[derive(Debug)]
pub struct GradientBuffer {
    memory: Owner,
    /// There is a view of what will be written, and nothing is written yet.
    awaited: bool,
    /// What a gradient counts with, its auxiliary sums and its number of samples: written, and not shown. Empty once it counts.
    unseen: Range<usize>,
    /// How many shards' auxiliary sums are to be added that are still to be found.
    owed: usize,
    /// What its writer notes, kept for the next one.
    written: Vec<Written>,
    /// Chunks of a finished sum that lie where the rank has them that has added them; empty if there are none. Not [here](Self::bytes).
    borrowed: Vec<Option<Borrowed>>,
    may_borrow: bool,
}

/// A gradient to be read, perhaps while it is being written: of each chunk what it holds once it is whole.
#[derive(Clone, Debug)]
pub struct GradientView {
    memory: Arc<Memory>,
}

impl GradientBuffer {
    /// Room for one gradient, all zeros: what an empty shard contributes. Memory is taken at the first touch, by what writes or reads there.
    #[must_use]
    pub fn zeros(layout: &Layout) -> Self {
        Self::in_room(Room::zeros(layout.bytes()))
    }

    /// The same, in [pages](crate::pages) that other processes of this host can read where they lie, if there are such: for what is passed on as it is.
    #[must_use]
    pub fn in_pages(layout: &Layout) -> Self {
        Self::in_room(Room::in_pages(layout.bytes()))
    }

    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self::in_room(Room::of(bytes))
    }

    fn in_room(room: Room) -> Self {
        Self {
            memory: Owner::of(room),
            awaited: false,
            unseen: 0..0,
            owed: 0,
            written: Vec::new(),
            borrowed: Vec::new(),
            may_borrow: true,
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn length(&self) -> usize {
        self.memory.bytes()
    }

    /// Its bytes, laid out by its layout.
    ///
    /// # Panics
    /// When some of them lie elsewhere: see [`Self::lower`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        assert!(self.borrowed.is_empty(), "a sum of which parts are borrowed is read in parts");
        self.memory.all().expect("a gradient is brought here before it is read")
    }

    /// Whether other processes have some of its chunks.
    pub(super) const fn borrows(&self) -> bool {
        !self.borrowed.is_empty()
    }

    /// The bytes `range`, in the runs in which they lie, each with what it is mapped as. No element is split.
    ///
    /// # Panics
    /// When there are not so many, or some of them lie [elsewhere](Self::lower).
    pub(super) fn runs(&self, range: Range<usize>) -> impl Iterator<Item = (&[u8], Option<&Mapping>)> {
        let mut left = range;
        iter::from_fn(move || {
            let first = self.borrowed_chunk(left.start);
            let mut end = left.end;
            if self.borrows() {
                let breaks =
                    |&at: &usize| !Borrowed::lie_together(self.borrowed_chunk(at - CHUNK_BYTES), self.borrowed_chunk(at));
                let mut borders = (left.start / CHUNK_BYTES + 1..)
                    .map(|chunk| chunk * CHUNK_BYTES)
                    .take_while(|at| *at < left.end);
                end = borders.find(breaks).unwrap_or(left.end);
            }
            let run = left.start..end;
            left.start = end;
            (!run.is_empty()).then(|| match first {
                Some(chunk) => {
                    let bytes = chunk.and_what_follows(run.start % CHUNK_BYTES, run.len());
                    (bytes, Some(chunk.mapping()))
                }
                None => {
                    let here = self.memory.all().expect("a gradient is brought here before it is read");
                    (&here[run], self.memory.mapping())
                }
            })
        })
    }

    /// The chunk in which byte `at` lies, if another process has it.
    fn borrowed_chunk(&self, at: usize) -> Option<&Borrowed> {
        self.borrowed.get(at / CHUNK_BYTES)?.as_ref()
    }

    /// Whether chunks of a sum that it is room for may stay where other processes of this host have them, which is so at first. They cannot write there as long
    /// as the sum is kept here, and take other memory: so not for one that is kept beyond the next one.
    pub const fn let_borrow(&mut self, may: bool) {
        self.may_borrow = may;
    }

    /// Whether they may.
    #[must_use]
    pub const fn may_borrow(&self) -> bool {
        self.may_borrow
    }

    /// Chunk `index` is this one.
    pub(super) fn borrow(&mut self, layout: &Layout, index: u32, chunk: Borrowed) {
        self.borrowed.resize_with(layout.chunks() as usize, || None);
        self.borrowed[index as usize] = Some(chunk);
    }

    /// Returns what other processes have. What is here besides is a part of nothing then.
    pub(super) fn give_back(&mut self) {
        self.borrowed.clear();
    }

    /// Its bytes, for those that fill it.
    ///
    /// # Panics
    /// When there is a view of it.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.give_back();
        self.memory.all_mut()
    }

    /// Waits until all that was written is computed, where some of it was only enqueued elsewhere. It stays there.
    ///
    /// # Errors
    /// When it could not be computed.
    pub fn wait_computed(&self) -> Result<(), ResidentError> {
        let computing = self.memory.elsewhere().computing();
        computing.map_or(Ok(()), |computing| computing.wait())
    }

    /// Waits until all of it is in the host's memory, where some of it may lie elsewhere. It stays there as well.
    ///
    /// # Errors
    /// When it does not come.
    pub fn lower(&mut self) -> Result<(), ResidentError> {
        if self.memory.elsewhere().is_empty() {
            return Ok(());
        }
        let view = self.complete();
        // From the end on, as a sum travels: what comes next is on its way.
        let mut chunks = (0..view.memory.chunks()).rev();
        let found = chunks.try_for_each(|chunk| block_on(view.chunk(chunk)).map(drop));
        drop(view);
        self.memory.settle();
        found
    }

    /// Whether it has memory elsewhere, in which gradients may lie that are written to it.
    #[must_use]
    pub fn has_memory_elsewhere(&self) -> bool {
        self.memory.elsewhere().resident().is_some()
    }

    /// Lets go of its memory elsewhere, if nothing lies there alone.
    pub(super) fn let_go_elsewhere(&self) {
        self.memory.let_go_elsewhere();
    }

    /// What holds all tensors of `layout`, where none is in the host's memory alone.
    #[must_use]
    pub fn resident(&self, layout: &Layout) -> Option<Arc<dyn Resident>> {
        self.memory.resident(layout)
    }

    /// Whether it was made to lie in [pages](Self::in_pages), whatever became of that.
    #[must_use]
    pub fn is_made_for_pages(&self) -> bool {
        self.memory.is_made_for_pages()
    }

    /// Whether it lies in pages that other processes of this host can read, or will, unless there are no such pages when it is first touched.
    #[must_use]
    pub fn is_in_pages(&self) -> bool {
        self.memory.is_in_pages()
    }

    /// Whether it was touched, so that there is memory for it in the host.
    #[must_use]
    pub fn is_touched(&self) -> bool {
        self.memory.is_touched()
    }

    /// Takes memory for it, if it was not touched yet and is to lie in pages: before a task writes there, as it lets the others of its thread go on while the system takes its time.
    pub(crate) async fn take_memory(&self) {
        self.memory.take_memory().await;
    }

    /// Whether another process may still read what it was shown of it: what is written then goes to other memory. Not of a buffer of which there is a view.
    pub fn is_read_elsewhere(&mut self) -> bool {
        self.memory.is_read_elsewhere()
    }

    /// Whether there is no view of it, so that it may be written.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.memory.is_alone()
    }

    /// A view of what is written next. Each chunk can be read as soon as it is whole, but for the last one, with which a gradient counts:
    /// it can be read once the writer has finished and [`Self::complete`] says so.
    ///
    /// # Panics
    /// When there is a view of what was written before.
    #[must_use]
    pub fn awaited(&mut self, layout: &Layout) -> GradientView {
        self.unwrite(|chunk| layout.bytes_in_chunk(chunk));
        self.awaited = true;
        self.view()
    }

    /// Says that all that will be written is written. From now on it can be read.
    ///
    /// # Panics
    /// When a shard in it is not [settled](super::Enqueued::settle).
    #[must_use]
    pub fn complete(&mut self) -> GradientView {
        assert_eq!(self.owed, 0, "a gradient is complete once its shards are settled");
        self.awaited = false;
        self.memory.show_rest(take(&mut self.unseen));
        self.view()
    }

    /// Adds auxiliary sums of one shard, which are found now.
    pub(super) fn settle(&mut self, layout: &Layout, mode: WriteMode, sums: &[f64]) {
        self.memory.writing().write_sums(layout, mode, 0, sums);
        self.owed -= 1;
    }

    /// Starts to write one shard's gradient. Nothing of what was there survives [`WriteMode::Store`].
    ///
    /// # Panics
    /// When `layout` is not as long as the one that the buffer was made for, or there is a view of what was written before.
    pub fn writer<'a>(&'a mut self, layout: &'a Layout, mode: WriteMode) -> GradientWriter<'a> {
        assert_eq!(
            self.memory.bytes(),
            layout.bytes(),
            "a buffer is used with the layout it was made for"
        );
        if !take(&mut self.awaited) {
            self.unwrite(|chunk| layout.bytes_in_chunk(chunk));
        }
        self.unseen = layout.tensors_end()..layout.bytes();
        match mode {
            WriteMode::Store => {
                self.memory.elsewhere().forget();
                self.owed = 0;
            }
            WriteMode::Add => self.memory.still_lost(),
        }
        let writing = self.memory.writing();
        GradientWriter::new(writing, (&mut self.written, &mut self.owed), layout, mode)
    }

    /// Makes it all zeros.
    ///
    /// # Panics
    /// When there is a view of it.
    pub fn clear(&mut self) {
        self.bytes_mut().fill(0);
    }

    /// From now on no chunk is whole: each lacks so many bytes.
    fn unwrite(&mut self, bytes: impl Fn(u32) -> usize) {
        self.give_back();
        self.memory.unwrite(bytes);
    }

    /// What it held is nothing, wherever that lies. It is not written yet: others may still read it.
    pub(super) fn forget(&mut self) {
        self.give_back();
        self.memory.elsewhere().forget();
    }

    /// From now on no chunk is whole, and all are written anew.
    pub(super) fn renew(&mut self, layout: &Layout) {
        self.memory.renew(|chunk| layout.chunk(chunk).len());
    }

    /// Memory elsewhere in which a sum may stay as well, like that in which these gradients lie: the buffer's own, or another. None if there is no room.
    pub(crate) fn room_beside(&self, gradients: &Arc<dyn Resident>) -> Option<Arc<dyn Resident>> {
        let own = self.memory.elsewhere().resident().cloned();
        own.filter(|own| gradients.adds_with(&**own)).or_else(|| gradients.another())
    }

    /// All tensors, which are written here, lie in `resident` as well.
    pub(crate) fn keep_as_well(&self, layout: &Layout, resident: &Arc<dyn Resident>) {
        let mut elsewhere = self.memory.elsewhere();
        let tensors = (0..layout.tensors().len()).filter_map(|tensor| layout.tensor_bytes(tensor));
        tensors.for_each(|tensor| elsewhere.keep_as_well(tensor, resident));
    }

    /// Has no memory elsewhere any more: what lies there is not needed.
    pub(crate) fn part_from_elsewhere(&mut self) {
        self.memory.elsewhere().let_go();
    }

    pub(super) fn writing(&mut self) -> Writing<'_> {
        self.memory.writing()
    }

    /// For what comes there from elsewhere.
    pub(super) fn places(&self) -> Places {
        Places(self.memory.shared())
    }

    pub(super) fn view(&self) -> GradientView {
        GradientView {
            memory: self.memory.shared(),
        }
    }
}

impl Clone for GradientBuffer {
    fn clone(&self) -> Self {
        Self::of(self.bytes().to_vec())
    }
}

impl PartialEq for GradientBuffer {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for GradientBuffer {}

impl GradientView {
    /// What holds all tensors of `layout`, as soon as it is known. None if one of them is written to the host's memory.
    pub(crate) async fn lies(&self, layout: &Layout) -> Option<Arc<dyn Resident>> {
        if self.memory.elsewhere().has_written_here() {
            return None;
        }
        let tensors = layout.tensors().iter().filter(|spec| spec.bytes() != Some(0));
        self.memory.lies(tensors.count()).await
    }

    /// The bytes `range`, which lie behind the tensors, as soon as the gradient counts.
    pub(crate) async fn tail(&self, range: Range<usize>) -> &[u8] {
        self.memory.tail(range).await
    }

    /// Bytes of the whole gradient.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// What holds all tensors of `layout`, where none is in the host's memory alone. None before all are written.
    #[must_use]
    pub fn resident(&self, layout: &Layout) -> Option<Arc<dyn Resident>> {
        self.memory.resident(layout)
    }

    /// The bytes of chunk `index`. Waits until it is whole. What of it lies elsewhere comes, and with it what is next to it.
    ///
    /// # Errors
    /// When it does not come.
    ///
    /// # Panics
    /// When there is no such chunk.
    pub async fn chunk(&self, index: u32) -> Result<&[u8], ResidentError> {
        Memory::chunk(&self.memory, index).await
    }

    /// The same, to be shown to other processes of this host where it lies, if they can read it there.
    pub(crate) async fn chunk_in_place(&self, index: u32) -> Result<InPlace<'_>, ResidentError> {
        Memory::chunk_in_place(&self.memory, index).await
    }
}
