//! The memory of one gradient: one thread writes it, and others read each chunk once it is whole. Knows no tensors and no values.
//!
//! A chunk is either being written, by one writer, or read, by any number of readers: the number of its unwritten bytes says which. It
//! becomes whole once, and is written again only when there are no readers at all.

#![expect(
    unsafe_code,
    reason = "which parts of the memory are written and which are read changes while both go on"
)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::{GradientWriter, WriteMode};
use crate::layout::{Layout, cut};
use crate::limits::CHUNK_BYTES;

/// The bytes of one gradient: of a shard, or a running sum over a prefix of the shards, or room for a finished sum.
#[derive(Debug)]
pub struct GradientBuffer {
    memory: Arc<Memory>,
    /// There is a view of what will be written, and nothing is written yet.
    awaited: bool,
    /// What its writer notes, kept for the next one.
    written: Vec<bool>,
}

/// A gradient to be read, perhaps while it is being written: of each chunk what it holds once it is whole.
#[derive(Clone, Debug)]
pub struct GradientView {
    memory: Arc<Memory>,
}

/// A buffer that is being written. As long as it lives, no other writes there.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    memory: &'a Memory,
}

/// Bytes in chunks of [`CHUNK_BYTES`].
struct Memory {
    start: *mut u8,
    bytes: usize,
    capacity: usize,
    /// Bytes of each chunk that are not written yet. A chunk that lacks none is whole.
    unwritten: Box<[AtomicUsize]>,
    /// Told of each chunk that becomes whole.
    grown: Notify,
}

// SAFETY: the memory belongs to this value alone, and the rest of this file sees to which thread touches which of its bytes.
unsafe impl Send for Memory {}
// SAFETY: a shared reference reads only chunks that are whole, and a `Writing`, of which there is one at a time, writes only others.
unsafe impl Sync for Memory {}

impl GradientBuffer {
    /// Room for one gradient, all zeros: what an empty shard contributes.
    #[must_use]
    pub fn zeros(layout: &Layout) -> Self {
        Self::of(vec![0; layout.bytes()])
    }

    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self {
            memory: Arc::new(Memory::of(bytes)),
            awaited: false,
            written: Vec::new(),
        }
    }

    /// Its bytes, laid out by its layout.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes are those of the vector that the memory was made from, and are written only through a `Writing`, or in
        // `bytes_mut`, which need this buffer for themselves.
        unsafe { slice::from_raw_parts(self.memory.start, self.memory.bytes) }
    }

    /// Its bytes, for those that fill it.
    ///
    /// # Panics
    /// When there is a view of it.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let memory = self.own();
        // SAFETY: the bytes are those of the vector that the memory was made from, and nothing else has the memory.
        unsafe { slice::from_raw_parts_mut(memory.start, memory.bytes) }
    }

    /// Whether there is no view of it, so that it may be written.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
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
    #[must_use]
    pub fn complete(&mut self) -> GradientView {
        self.awaited = false;
        for unwritten in &self.memory.unwritten {
            unwritten.store(0, Ordering::Release);
        }
        self.memory.grown.notify_waiters();
        self.view()
    }

    /// Starts to write one shard's gradient. Nothing of what was there survives [`WriteMode::Store`].
    ///
    /// # Panics
    /// When `layout` is not as long as the one that the buffer was made for, or there is a view of what was written before.
    pub fn writer<'a>(&'a mut self, layout: &'a Layout, mode: WriteMode) -> GradientWriter<'a> {
        assert_eq!(
            self.memory.bytes,
            layout.bytes(),
            "a buffer is used with the layout it was made for"
        );
        if !std::mem::take(&mut self.awaited) {
            self.unwrite(|chunk| layout.bytes_in_chunk(chunk));
        }
        let writing = Writing { memory: &self.memory };
        GradientWriter::new(writing, &mut self.written, layout, mode)
    }

    /// Makes it all zeros.
    ///
    /// # Panics
    /// When there is a view of it.
    pub fn clear(&mut self) {
        self.bytes_mut().fill(0);
    }

    /// From now on no chunk is whole: each lacks so many bytes.
    pub(super) fn unwrite(&mut self, bytes: impl Fn(u32) -> usize) {
        for (chunk, unwritten) in (0..).zip(&mut self.own().unwritten) {
            *unwritten.get_mut() = bytes(chunk);
        }
    }

    pub(super) fn writing(&mut self) -> Writing<'_> {
        Writing { memory: &self.memory }
    }

    pub(super) fn view(&self) -> GradientView {
        GradientView {
            memory: Arc::clone(&self.memory),
        }
    }

    fn own(&mut self) -> &mut Memory {
        Arc::get_mut(&mut self.memory).expect("a gradient is not changed while it is read")
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
    /// Bytes of the whole gradient.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// The bytes of chunk `index`. Waits until it is whole.
    ///
    /// # Panics
    /// When there is no such chunk.
    pub async fn chunk(&self, index: u32) -> &[u8] {
        let (memory, index) = (&*self.memory, index as usize);
        while !memory.is_whole(index) {
            let grown = memory.grown.notified();
            tokio::pin!(grown);
            // From here on no chunk is missed.
            grown.as_mut().enable();
            if !memory.is_whole(index) {
                grown.await;
            }
        }
        let range = memory.chunk(index);
        // SAFETY: the chunk lies within the bytes of the vector that the memory was made from.
        let start = unsafe { memory.start.add(range.start) };
        // SAFETY: the same; and the chunk is whole, so that no `Writing` touches it. That it is whole ends only where there is no view.
        unsafe { slice::from_raw_parts(start, range.len()) }
    }
}

impl Writing<'_> {
    /// Lets `write` write the bytes `range`, and shows the chunks that are whole by it.
    ///
    /// # Panics
    /// When more of a chunk is written than it lacks.
    pub(crate) fn write(&mut self, range: Range<usize>, write: impl FnOnce(&mut [u8])) {
        write(self.lend(range.clone()));
        for (chunk, bytes) in parts(range) {
            // Release, so that a reader that finds the chunk whole finds these bytes.
            if self.memory.unwritten[chunk].fetch_sub(bytes, Ordering::Release) == bytes {
                self.memory.grown.notify_waiters();
            }
        }
    }

    /// Lets `write` write the bytes `range`, and does not show their chunks.
    ///
    /// # Panics
    /// When more of a chunk is written than it lacks.
    pub(crate) fn write_unseen(&mut self, range: Range<usize>, write: impl FnOnce(&mut [u8])) {
        write(self.lend(range));
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
        // the only one and lends one slice at a time.
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
        }
    }

    /// The bytes of chunk `index`.
    fn chunk(&self, index: usize) -> Range<usize> {
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
