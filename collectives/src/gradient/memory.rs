//! The bytes of one gradient, and which of them are written: one thread writes, others bring what was left elsewhere, and any number read each chunk once it
//! is whole. Knows no tensors and no values.

#![expect(
    unsafe_code,
    reason = "which parts of the memory are written and which are read changes while both go on"
)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;

use super::on_their_way::{Counted, OnTheirWay};
use super::resident::{Elsewhere, Resident, ResidentError};
use crate::layout::{Layout, cut};
use crate::limits::CHUNK_BYTES;

/// Room for a part of a gradient that comes from elsewhere, at most [`LOWERED_BYTES`](crate::limits::LOWERED_BYTES). One that is dropped unwritten fails.
#[derive(Debug)]
pub struct Lowering {
    range: Range<usize>,
    written: bool,
    // Let go in this order: who has waited for all on their way has the memory alone.
    memory: Arc<Memory>,
    _counted: Counted,
}

/// Bytes in chunks of [`CHUNK_BYTES`].
pub(super) struct Memory {
    start: *mut u8,
    bytes: usize,
    capacity: usize,
    /// Bytes of each chunk that are not written yet. A chunk that lacks none is whole.
    unwritten: Box<[AtomicUsize]>,
    /// Told of each chunk that becomes whole, or can be asked for.
    grown: Notify,
    elsewhere: Mutex<Elsewhere>,
    on_their_way: Arc<OnTheirWay>,
    /// Why something did not come from there.
    failed: OnceLock<ResidentError>,
}

/// The one that may write the memory, or let it be written.
#[derive(Debug)]
pub(super) struct Owner(Arc<Memory>);

/// A buffer that is being written. As long as it lives, no other writes there.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    memory: &'a Memory,
}

// SAFETY: the memory belongs to this value alone, and the rest of this file sees to which thread touches which of its bytes.
unsafe impl Send for Memory {}
// SAFETY: a shared reference reads only chunks that are whole; a `Writing`, of which there is one at a time, and `Lowering`s write only others, each its own
// bytes.
unsafe impl Sync for Memory {}

impl Owner {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Memory::of(bytes)))
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// All bytes. None if some of them lie elsewhere alone.
    pub(super) fn all(&self) -> Option<&[u8]> {
        let is_here = self.elsewhere().is_empty() || (0..self.0.unwritten.len()).all(|chunk| self.0.is_whole(chunk));
        // SAFETY: the bytes are those of the vector that the memory was made from. They are written only through a `Writing`, or in `all_mut`, which need this
        // for themselves, or by a `Lowering`, of which there is none where nothing is to come.
        is_here.then(|| unsafe { slice::from_raw_parts(self.0.start, self.0.bytes) })
    }

    /// All bytes, for those that fill them. Nothing lies elsewhere any more.
    ///
    /// # Panics
    /// When the memory is shared.
    pub(super) fn all_mut(&mut self) -> &mut [u8] {
        let memory = self.own();
        memory.elsewhere().forget();
        // SAFETY: the bytes are those of the vector that the memory was made from, and nothing else has the memory.
        unsafe { slice::from_raw_parts_mut(memory.start, memory.bytes) }
    }

    /// From now on no chunk is whole: each lacks so many bytes, and nothing can be asked for.
    ///
    /// # Panics
    /// When the memory is shared.
    pub(super) fn unwrite(&mut self, bytes: impl Fn(u32) -> usize) {
        let memory = self.own();
        memory.failed = OnceLock::new();
        memory.elsewhere().rewrite();
        for (chunk, unwritten) in (0..).zip(&mut memory.unwritten) {
            *unwritten.get_mut() = bytes(chunk);
        }
    }

    /// All that will be written is written, and the number of samples is shown if that was not `counted`. What lies elsewhere is still to come.
    pub(super) fn show_rest(&mut self, uncounted: bool) {
        let memory = &self.0;
        if memory.elsewhere().is_empty() {
            for unwritten in &memory.unwritten {
                unwritten.store(0, Ordering::Release);
            }
        } else if let Some(last) = memory.unwritten.last().filter(|_| uncounted) {
            last.fetch_sub(size_of::<u64>(), Ordering::Release);
        }
        memory.grown.notify_waiters();
    }

    pub(super) fn writing(&mut self) -> Writing<'_> {
        Writing { memory: &self.0 }
    }

    /// For those that read it.
    pub(super) fn shared(&self) -> Arc<Memory> {
        Arc::clone(&self.0)
    }

    /// Whether it is not shared.
    pub(super) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// What lies elsewhere.
    pub(super) fn elsewhere(&self) -> MutexGuard<'_, Elsewhere> {
        self.0.elsewhere()
    }

    /// What holds all tensors elsewhere.
    pub(super) fn resident(&self, layout: &Layout) -> Option<Arc<dyn Resident>> {
        self.0.resident(layout)
    }

    /// Waits until nothing is on its way there that was asked for.
    pub(super) fn settle(&self) {
        self.0.on_their_way.wait();
    }

    /// The memory, once nothing is on its way there.
    fn own(&mut self) -> &mut Memory {
        self.settle();
        Arc::get_mut(&mut self.0).expect("a gradient is not changed while it is read")
    }
}

impl Lowering {
    /// Which bytes of the gradient come: some of one tensor, or of several.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Lets `write` write them, all of them, and shows the chunks that are whole by it.
    pub fn write(mut self, write: impl FnOnce(&mut [u8])) {
        // SAFETY: the range lies within the bytes of the vector that the memory was made from: it is a part of a tensor's.
        let start = unsafe { self.memory.start.add(self.range.start) };
        // SAFETY: the same; each byte that lies elsewhere is asked for once, so that no other has these, and the `Writing` has left them out. Their chunks
        // lack them, so that no view reads there; and as long as this lives, nothing is written anew.
        write(unsafe { slice::from_raw_parts_mut(start, self.range.len()) });
        self.written = true;
        self.memory.show(self.range.clone());
    }

    /// They do not come.
    pub fn fail(mut self, reason: ResidentError) {
        self.written = true;
        self.memory.fail(reason);
    }
}

impl Drop for Lowering {
    fn drop(&mut self) {
        if !self.written {
            self.memory.fail(ResidentError::new("what was to bring it is gone"));
        }
    }
}

impl Writing<'_> {
    /// Lets `write` write the bytes `range`, and shows the chunks that are whole by it.
    ///
    /// # Panics
    /// When more of a chunk is written than it lacks.
    pub(crate) fn write(&mut self, range: Range<usize>, write: impl FnOnce(&mut [u8])) {
        write(self.lend(range.clone()));
        self.memory.show(range);
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

    /// Leaves the bytes of `tensor` to `resident`, from which they can be asked for.
    pub(super) fn keep(&mut self, tensor: Range<usize>, resident: Arc<dyn Resident>) {
        self.elsewhere().keep(tensor, resident);
        self.memory.grown.notify_waiters();
    }

    /// What was to be written elsewhere was not.
    pub(super) fn fail(&mut self, reason: ResidentError) {
        self.memory.fail(reason);
    }

    /// Bytes of the whole gradient.
    pub(super) const fn bytes(&self) -> usize {
        self.memory.bytes
    }

    fn lend(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(
            range.start <= range.end && range.end <= self.memory.bytes,
            "the range {range:?} lies within the gradient"
        );
        for (chunk, bytes) in parts(range.clone()) {
            let unwritten = self.memory.unwritten[chunk].load(Ordering::Relaxed);
            assert!(bytes <= unwritten, "each byte of chunk {chunk} is written once");
        }
        // SAFETY: the range lies within the bytes of the vector that the memory was made from.
        let start = unsafe { self.memory.start.add(range.start) };
        // SAFETY: the same; none of the chunks is whole, so that no view reads there; they become whole only by this `Writing`, which is
        // the only one and lends one slice at a time, or by a `Lowering`, of a tensor that this one leaves elsewhere.
        unsafe { slice::from_raw_parts_mut(start, range.len()) }
    }
}

/// The chunks that `range` touches, and how many of its bytes lie in each.
fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    cut(range).map(|part| (part.start / CHUNK_BYTES, part.len()))
}

impl Memory {
    /// Takes over these bytes. All of them are written.
    fn of(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        let chunks = bytes.len().div_ceil(CHUNK_BYTES);
        Self {
            start: bytes.as_mut_ptr(),
            bytes: bytes.len(),
            capacity: bytes.capacity(),
            unwritten: (0..chunks).map(|_| AtomicUsize::new(0)).collect(),
            grown: Notify::new(),
            elsewhere: Mutex::default(),
            on_their_way: Arc::default(),
            failed: OnceLock::new(),
        }
    }

    /// The bytes `range` are written now.
    fn show(&self, range: Range<usize>) {
        for (chunk, bytes) in parts(range) {
            // Release, so that a reader that finds the chunk whole finds these bytes.
            if self.unwritten[chunk].fetch_sub(bytes, Ordering::Release) == bytes {
                self.grown.notify_waiters();
            }
        }
    }

    /// Asks for what of chunk `index` lies elsewhere, and was not asked for.
    fn ask(memory: &Arc<Self>, index: usize) -> Result<(), ResidentError> {
        if let Some(reason) = memory.failed.get() {
            return Err(reason.clone());
        }
        let asked = memory.elsewhere().ask(memory.place(index));
        for (resident, range) in asked {
            resident.lower(Lowering {
                range,
                written: false,
                memory: Arc::clone(memory),
                _counted: OnTheirWay::one_more(&memory.on_their_way),
            });
        }
        Ok(())
    }

    fn fail(&self, reason: ResidentError) {
        // What failed first is the reason of all that follows.
        let _ = self.failed.set(reason);
        self.grown.notify_waiters();
    }

    fn elsewhere(&self) -> MutexGuard<'_, Elsewhere> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn resident(&self, layout: &Layout) -> Option<Arc<dyn Resident>> {
        let elsewhere = self.elsewhere();
        let tensors = (0..layout.tensors().len()).filter_map(|tensor| layout.tensor(tensor));
        let all = tensors
            .filter(|section| !section.bytes.is_empty())
            .all(|section| elsewhere.has(&section.bytes));
        elsewhere.resident().filter(|_| all && !elsewhere.is_empty()).cloned()
    }

    /// How many bytes there are.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many chunks there are.
    pub(super) fn chunks(&self) -> u32 {
        u32::try_from(self.unwritten.len()).expect("MAX_GRADIENT_BYTES bounds the chunks")
    }

    /// The bytes of chunk `index`, as soon as it is whole.
    pub(super) async fn chunk(memory: &Arc<Self>, index: u32) -> Result<&[u8], ResidentError> {
        let index = index as usize;
        while !memory.is_whole(index) {
            let grown = memory.grown.notified();
            tokio::pin!(grown);
            // From here on no chunk is missed.
            grown.as_mut().enable();
            if !memory.is_whole(index) {
                Self::ask(memory, index)?;
                grown.await;
            }
        }
        let range = memory.place(index);
        // SAFETY: the chunk lies within the bytes of the vector that the memory was made from.
        let start = unsafe { memory.start.add(range.start) };
        // SAFETY: the same; and the chunk is whole, so that nothing writes there. That it is whole ends only where the memory is not shared.
        Ok(unsafe { slice::from_raw_parts(start, range.len()) })
    }

    /// Where chunk `index` lies.
    fn place(&self, index: usize) -> Range<usize> {
        index * CHUNK_BYTES..self.bytes.min((index + 1) * CHUNK_BYTES)
    }

    fn is_whole(&self, index: usize) -> bool {
        self.unwritten[index].load(Ordering::Acquire) == 0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: these are the parts of the vector that this value was made from, and it is given back once.
        drop(unsafe { Vec::from_raw_parts(self.start, self.bytes, self.capacity) });
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = (0..self.unwritten.len()).filter(|&chunk| self.is_whole(chunk)).count();
        f.debug_struct("Memory")
            .field("bytes", &self.bytes)
            .field("chunks", &self.unwritten.len())
            .field("whole", &whole)
            .finish_non_exhaustive()
    }
}
