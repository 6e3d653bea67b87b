//! The bytes of one gradient, and which of them are written: one thread writes, others bring what was left elsewhere, and any number read each chunk once it
//! is whole. Knows no tensors and no values.

#![expect(
    unsafe_code,
    reason = "which parts of the memory are written and which are read changes while both go on"
)]

use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::lowering::Lowering;
use super::on_their_way::OnTheirWay;
use super::resident::{Elsewhere, Resident, ResidentError};
use super::room::Room;
use super::shown::{Shown, parts};
use crate::layout::Layout;
use crate::limits::CHUNK_BYTES;
use crate::mapping::Mapping;
use crate::pages::{InPlace, Pages};

/// Bytes in chunks of [`CHUNK_BYTES`].
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) room: Room,
    pub(super) shown: Arc<Shown>,
    elsewhere: Mutex<Elsewhere>,
    /// Whether some of it lies there, which a reader of all bytes looks at each time.
    some_elsewhere: Arc<AtomicBool>,
    pub(super) on_their_way: Arc<OnTheirWay>,
    /// Whether the gradient counts: what lies behind its tensors is written.
    counts: AtomicBool,
}

/// The one that may write the memory, or let it be written.
#[derive(Debug)]
pub(super) struct Owner(Arc<Memory>);

/// A buffer that is being written. As long as it lives, no other writes there.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    memory: &'a Memory,
}

// SAFETY: the memory belongs to this value alone, and the rest of this file, with that of `Lowering`, sees to which thread touches which of its bytes.
unsafe impl Send for Memory {}
// SAFETY: a shared reference reads only chunks that are whole; a `Writing`, of which there is one at a time, and `Lowering`s write only others, each its own
// bytes.
unsafe impl Sync for Memory {}

impl Owner {
    pub(super) fn of(room: Room) -> Self {
        Self(Arc::new(Memory::of(room)))
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// All bytes. None if some of them lie elsewhere alone.
    pub(super) fn all(&self) -> Option<&[u8]> {
        let is_here = !self.0.some_elsewhere.load(Ordering::Acquire) || self.0.shown.is_all_whole();
        // SAFETY: the bytes are those of its room. They are written only through a `Writing`, or in `all_mut`, which need this
        // for themselves, or by a `Lowering`, of which there is none where nothing is to come.
        is_here.then(|| unsafe { slice::from_raw_parts(self.0.room.start(), self.0.bytes()) })
    }

    /// All bytes, for those that fill them. Nothing lies elsewhere any more.
    ///
    /// # Panics
    /// When the memory is shared.
    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        let memory = self.own();
        memory.elsewhere_mut().forget();
        memory.show_anew(|_| 0);
        // SAFETY: the bytes are those of its room, and nothing else has the memory.
        unsafe { slice::from_raw_parts_mut(memory.room.start(), memory.bytes()) }
    }

    /// From now on no chunk is whole: each lacks so many bytes, and nothing can be asked for. What is there stays until it is written, or added to.
    ///
    /// # Panics
    /// When the memory is shared.
    pub(super) fn unwrite(&mut self, bytes: impl Fn(u32) -> usize) {
        self.own().unwrite(bytes);
    }

    /// The same, and what was there is nothing.
    ///
    /// # Panics
    /// When the memory is shared.
    pub(super) fn renew(&mut self, bytes: impl Fn(u32) -> usize) {
        let memory = self.alone();
        memory.room.renew();
        memory.unwrite(bytes);
    }

    /// All that will be written is written, and the bytes `unseen` are shown. What lies elsewhere is still to come.
    pub(super) fn show_rest(&mut self, unseen: Range<usize>) {
        let memory = &self.0;
        let mut elsewhere = memory.elsewhere();
        if elsewhere.is_empty() {
            // Whatever it is, it is here.
            elsewhere.write_here();
            for unwritten in &memory.shown.unwritten {
                unwritten.none();
            }
        } else {
            memory.shown.show(unseen);
        }
        drop(elsewhere);
        memory.counts.store(true, Ordering::Release);
        memory.shown.grown.notify_waiters();
    }

    pub(super) fn writing(&mut self) -> Writing<'_> {
        Writing { memory: &self.0 }
    }

    /// What is added to was not written as it should be, if that was so before.
    pub(super) fn still_lost(&mut self) {
        let lost = self.elsewhere().lost().cloned();
        if let Some(reason) = lost {
            self.0.shown.fail(reason);
        }
    }

    /// For those that read it.
    pub(super) fn shared(&self) -> Arc<Memory> {
        Arc::clone(&self.0)
    }

    /// As what it is mapped, if it is.
    pub(super) fn mapping(&self) -> Option<&Mapping> {
        self.0.room.mapping()
    }

    /// Whether it was made for other processes of this host to read it.
    pub(super) fn is_made_for_pages(&self) -> bool {
        self.0.room.is_made_for_pages()
    }

    /// Whether they can, or will where there is no memory for it yet.
    pub(super) fn is_in_pages(&self) -> bool {
        self.0.room.is_in_pages()
    }

    /// Whether there is memory for it.
    pub(super) fn is_touched(&self) -> bool {
        self.0.room.is_touched()
    }

    /// Takes memory for it, if there is none and it is to lie where other processes can read it: some at a time, and the others of this thread go on in between.
    pub(super) async fn take_memory(&self) {
        if self.0.room.awaits_pages()
            && let Ok(pages) = Pages::create_beside_others(self.bytes()).await
        {
            self.0.room.put(pages);
        }
    }

    /// Whether another process may read what it was shown of it, and nothing here has it.
    pub(super) fn is_read_elsewhere(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some_and(|memory| memory.room.is_read_elsewhere())
    }

    /// Whether it is not shared.
    pub(super) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// What lies elsewhere.
    pub(super) fn elsewhere(&self) -> MutexGuard<'_, Elsewhere> {
        self.0.elsewhere()
    }

    /// Nothing lies elsewhere any more, nor is there memory for it, if all of it is here.
    pub(super) fn let_go_elsewhere(&self) {
        if self.0.shown.is_all_whole() {
            self.elsewhere().let_go();
        }
    }

    /// What holds all tensors elsewhere.
    pub(super) fn resident(&self, layout: &Layout) -> Option<Arc<dyn Resident>> {
        self.0.resident(layout)
    }

    /// Waits until nothing is on its way there that was asked for.
    pub(super) fn settle(&self) {
        self.0.on_their_way.wait();
    }

    /// The memory, once nothing is on its way there. No other process reads it any more.
    fn own(&mut self) -> &mut Memory {
        let memory = self.alone();
        memory.room.reclaim();
        memory
    }

    fn alone(&mut self) -> &mut Memory {
        // What is on its way has the memory.
        if Arc::get_mut(&mut self.0).is_none() {
            self.settle();
        }
        Arc::get_mut(&mut self.0).expect("a gradient is not changed while it is read")
    }
}

impl Writing<'_> {
    /// Lets `write` write the bytes `range`, and shows the chunks that are whole by it.
    ///
    /// # Panics
    /// When more of a chunk is written than it lacks.
    pub(crate) fn write(&mut self, range: Range<usize>, write: impl FnOnce(&mut [u8])) {
        write(self.lend(range.clone()));
        self.memory.shown.show(range);
    }

    /// The same; if `write` fails nothing is shown.
    ///
    /// # Errors
    /// What `write` says.
    ///
    /// # Panics
    /// As [`Self::write`].
    pub(crate) fn try_write<E>(
        &mut self,
        range: Range<usize>,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        write(self.lend(range.clone()))?;
        self.memory.shown.show(range);
        Ok(())
    }

    /// Lets `write` write the bytes `range`, and does not show their chunks.
    ///
    /// # Panics
    /// When more of a chunk is written than it lacks.
    pub(crate) fn write_unseen(&mut self, range: Range<usize>, write: impl FnOnce(&mut [u8])) {
        write(self.lend(range));
    }

    /// What lies elsewhere.
    pub(super) fn elsewhere(&self) -> MutexGuard<'_, Elsewhere> {
        self.memory.elsewhere()
    }

    /// A tensor is written here.
    pub(super) fn write_here(&self) {
        if self.elsewhere().write_here() {
            self.memory.shown.grown.notify_waiters();
        }
    }

    /// Leaves the bytes of `tensor` to `resident`, from which they can be asked for.
    pub(super) fn keep(&mut self, tensor: Range<usize>, resident: Arc<dyn Resident>) {
        self.elsewhere().keep(tensor, resident);
        self.memory.shown.grown.notify_waiters();
    }

    /// What was to be written elsewhere was not: that is so until all is stored anew.
    pub(super) fn lose(&mut self, reason: &ResidentError) {
        self.elsewhere().lose(reason.clone());
        self.memory.shown.fail(reason.clone());
    }

    /// Bytes of the whole gradient.
    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// As what its memory is mapped, if it is.
    pub(super) fn mapping(&self) -> Option<&Mapping> {
        self.memory.room.mapping()
    }

    fn lend(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(
            range.start <= range.end && range.end <= self.memory.bytes(),
            "the range {range:?} lies within the gradient"
        );
        for (chunk, bytes) in parts(range.clone()) {
            let unwritten = self.memory.shown.unwritten[chunk].bytes();
            assert!(bytes <= unwritten, "each byte of chunk {chunk} is written once");
        }
        // SAFETY: the range lies within its room's bytes.
        let start = unsafe { self.memory.room.start().add(range.start) };
        // SAFETY: the same; none of the chunks is whole, so that no view reads there; they become whole only by this `Writing`, which is
        // the only one and lends one slice at a time, or by a `Lowering`, of a tensor that this one leaves elsewhere.
        unsafe { slice::from_raw_parts_mut(start, range.len()) }
    }
}

impl Memory {
    fn unwrite(&mut self, bytes: impl Fn(u32) -> usize) {
        *self.counts.get_mut() = false;
        self.elsewhere_mut().rewrite();
        self.show_anew(bytes);
    }

    /// What was shown before is not shown any more: each chunk lacks so many bytes.
    fn show_anew(&mut self, bytes: impl Fn(u32) -> usize) {
        let chunks = self.shown.unwritten.len();
        let shown = match Arc::get_mut(&mut self.shown) {
            Some(shown) => shown,
            // What has just written its last part may still tell who waits.
            None => {
                self.shown = Arc::new(Shown::of(chunks));
                Arc::get_mut(&mut self.shown).expect("it was made just now")
            }
        };
        shown.failed = OnceLock::new();
        for (chunk, unwritten) in (0..).zip(&mut shown.unwritten) {
            unwritten.set(bytes(chunk));
        }
    }

    /// All that is in the room is written.
    fn of(room: Room) -> Self {
        let chunks = room.bytes().div_ceil(CHUNK_BYTES);
        let elsewhere = Elsewhere::default();
        Self {
            room,
            shown: Arc::new(Shown::of(chunks)),
            some_elsewhere: elsewhere.is_some(),
            elsewhere: Mutex::new(elsewhere),
            on_their_way: Arc::default(),
            counts: AtomicBool::new(true),
        }
    }

    /// Asks for what of chunk `index` lies elsewhere, and was not asked for.
    fn ask(memory: &Arc<Self>, index: usize) -> Result<(), ResidentError> {
        if let Some(reason) = memory.shown.failed.get() {
            return Err(reason.clone());
        }
        let asked = memory.elsewhere().ask(memory.place(index));
        for (resident, range) in asked {
            let counted = OnTheirWay::one_more(&memory.on_their_way);
            resident.lower(Lowering::new(range, Arc::clone(memory), counted));
        }
        Ok(())
    }

    pub(super) fn elsewhere(&self) -> MutexGuard<'_, Elsewhere> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elsewhere_mut(&mut self) -> &mut Elsewhere {
        self.elsewhere.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn resident(&self, layout: &Layout) -> Option<Arc<dyn Resident>> {
        self.elsewhere().resident_of_all(layout).cloned()
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> usize {
        self.room.bytes()
    }

    /// How many chunks there are.
    pub(super) fn chunks(&self) -> u32 {
        u32::try_from(self.shown.unwritten.len()).expect("MAX_GRADIENT_BYTES bounds the chunks")
    }

    /// The bytes of chunk `index`, as soon as it is whole.
    pub(super) async fn chunk(memory: &Arc<Self>, index: u32) -> Result<&[u8], ResidentError> {
        let index = index as usize;
        while !memory.shown.is_whole(index) {
            let grown = memory.shown.grown.notified();
            tokio::pin!(grown);
            // From here on no chunk is missed.
            grown.as_mut().enable();
            if memory.shown.unwritten[index].want() {
                Self::ask(memory, index)?;
                grown.await;
            }
        }
        let range = memory.place(index);
        // SAFETY: the chunk lies within its room's bytes.
        let start = unsafe { memory.room.start().add(range.start) };
        // SAFETY: the same; and the chunk is whole, so that nothing writes there. That it is whole ends only where the memory is not shared.
        Ok(unsafe { slice::from_raw_parts(start, range.len()) })
    }

    /// The same, with the pages in which they lie, if they do.
    pub(super) async fn chunk_in_place(memory: &Arc<Self>, index: u32) -> Result<InPlace<'_>, ResidentError> {
        let bytes = Self::chunk(memory, index).await?;
        Ok(InPlace::new(bytes, memory.room.pages()))
    }

    /// What holds all of so many tensors that have elements, as soon as it is known. None if one was written here, or something has failed: who asks for a
    /// chunk is told what.
    pub(super) async fn lies(&self, tensors: usize) -> Option<Arc<dyn Resident>> {
        let look = || match self.shown.failed.get() {
            Some(_) => Some(None),
            None => self.elsewhere().lies(tensors),
        };
        self.shown.told(look).await
    }

    /// The bytes `range`, which lie behind the tensors, as soon as the gradient counts.
    ///
    /// # Panics
    /// When some of them lie elsewhere, or beyond the gradient.
    pub(super) async fn tail(&self, range: Range<usize>) -> &[u8] {
        let counts = || self.counts.load(Ordering::Acquire).then_some(());
        self.shown.told(counts).await;
        assert!(
            range.start <= range.end && range.end <= self.bytes() && !self.elsewhere().has_some_of(&range),
            "what lies behind the tensors is here"
        );
        // SAFETY: the range lies within its room's bytes.
        let start = unsafe { self.room.start().add(range.start) };
        // SAFETY: the same; and from when the gradient counts until the memory is not shared, a `Lowering` alone writes, which has none of these.
        unsafe { slice::from_raw_parts(start, range.len()) }
    }

    /// Where chunk `index` lies.
    fn place(&self, index: usize) -> Range<usize> {
        index * CHUNK_BYTES..self.bytes().min((index + 1) * CHUNK_BYTES)
    }
}
