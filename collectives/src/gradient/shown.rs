//! What readers are shown of a gradient while it is written. Knows not where its bytes lie.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::ResidentError;
use crate::layout::cut;
use crate::limits::CHUNK_BYTES;

/// What readers are shown of one gradient. The next one in the same memory has its own, unless this has no readers any more.
pub(super) struct Shown {
    pub(super) unwritten: Box<[Unwritten]>,
    /// Told of each chunk that becomes whole and was wanted, or can be asked for.
    pub(super) grown: Notify,
    /// Why something did not come from elsewhere.
    pub(super) failed: OnceLock<ResidentError>,
}

/// How many bytes of a chunk are not written yet, and whether it is wanted: who waits for another is not woken. A chunk that lacks none is whole.
pub(super) struct Unwritten(AtomicUsize);

/// Beside the number of bytes.
const WANTED: usize = 1 << (usize::BITS - 1);

impl Unwritten {
    pub(super) fn bytes(&self) -> usize {
        // Acquire, so that a reader that finds none missing finds what was written.
        self.0.load(Ordering::Acquire) & !WANTED
    }

    /// A reader is about to wait for it. Says whether it has to: whether it is not whole.
    pub(super) fn want(&self) -> bool {
        self.0.fetch_or(WANTED, Ordering::AcqRel) & !WANTED != 0
    }

    /// So many more are written. Says whether a reader is to be told: the chunk is whole by it, and was wanted.
    pub(super) fn less(&self, bytes: usize) -> bool {
        self.0.fetch_sub(bytes, Ordering::AcqRel) == WANTED | bytes
    }

    /// All are written. Its readers are to be told.
    pub(super) fn none(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// So many are to be written, and nothing reads it.
    pub(super) fn set(&mut self, bytes: usize) {
        *self.0.get_mut() = bytes;
    }
}

impl Shown {
    pub(super) fn of(chunks: usize) -> Self {
        Self {
            unwritten: (0..chunks).map(|_| Unwritten(AtomicUsize::new(0))).collect(),
            grown: Notify::new(),
            failed: OnceLock::new(),
        }
    }

    pub(super) fn is_whole(&self, chunk: usize) -> bool {
        self.unwritten[chunk].bytes() == 0
    }

    pub(super) fn is_all_whole(&self) -> bool {
        (0..self.unwritten.len()).all(|chunk| self.is_whole(chunk))
    }

    /// The bytes `range` are written now.
    pub(super) fn show(&self, range: Range<usize>) {
        for (chunk, bytes) in parts(range) {
            if self.unwritten[chunk].less(bytes) {
                self.grown.notify_waiters();
            }
        }
    }

    /// What `look` finds, as soon as it finds something. It looks whenever something has become known.
    pub(super) async fn told<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            // From here on nothing is missed.
            grown.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            grown.await;
        }
    }

    pub(super) fn fail(&self, reason: ResidentError) {
        // What failed first is the reason of all that follows.
        let _ = self.failed.set(reason);
        self.grown.notify_waiters();
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = self.unwritten.len();
        f.debug_struct("Shown")
            .field("chunks", &chunks)
            .field("whole", &(0..chunks).filter(|&chunk| self.is_whole(chunk)).count())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// The chunks that `range` touches, and how many of its bytes lie in each.
pub(super) fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    cut(range).map(|part| (part.start / CHUNK_BYTES, part.len()))
}
