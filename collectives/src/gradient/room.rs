//! Where the bytes of a gradient lie in the host's memory: in memory of the process's own, or in pages that other processes of the host can read. Knows not
//! what is written there.
//!
//! A system may take seconds for a gigabyte that it has not given before. So memory is taken by what first touches it, which is what writes there, and by nothing that hands rooms on.

#![expect(
    unsafe_code,
    reason = "the memory is a vector's that is taken apart, since parts of it are written while others are read"
)]

use std::mem::ManuallyDrop;
use std::slice;
use std::sync::{Arc, OnceLock};

use crate::limits::CHUNK_BYTES;
use crate::mapping::Mapping;
use crate::pages::Pages;

/// Bytes at one place, all zeros until they are written.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    /// Whether other processes of this host are to read them where they lie, if there are such pages.
    shown: bool,
    /// From the first touch on.
    place: OnceLock<Place>,
}

#[derive(Debug)]
enum Place {
    /// A vector's.
    Vector { start: *mut u8, bytes: usize, capacity: usize },
    /// Of this process alone, at a place of its own.
    Own(Mapping),
    /// Pages that others can see.
    Pages(Arc<Pages>),
}

impl Room {
    /// For memory of this process alone: at a place of its own from a chunk's length on, so that a device may be told of it.
    pub(super) const fn zeros(bytes: usize) -> Self {
        Self::new(bytes, false)
    }

    /// For memory that other processes of this host can read, if there are such pages when it is first touched.
    pub(super) const fn in_pages(bytes: usize) -> Self {
        Self::new(bytes, true)
    }

    const fn new(bytes: usize, shown: bool) -> Self {
        Self {
            bytes,
            shown,
            place: OnceLock::new(),
        }
    }

    /// Takes over these bytes.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self {
            bytes: bytes.len(),
            shown: false,
            place: OnceLock::from(Place::of(bytes)),
        }
    }

    /// Where it begins. It stays there until [`Self::reclaim`] or [`Self::renew`].
    pub(super) fn start(&self) -> *mut u8 {
        self.place().start()
    }

    /// How many bytes it has.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it was touched, so that there is memory for it.
    pub(super) fn is_touched(&self) -> bool {
        self.place.get().is_some()
    }

    /// Whether others can see it, or will if there are such pages when it is touched.
    pub(super) fn is_in_pages(&self) -> bool {
        self.place.get().map_or(self.shown, |place| matches!(place, Place::Pages(_)))
    }

    /// Whether it is to lie in pages, and was not touched yet.
    pub(super) fn awaits_pages(&self) -> bool {
        self.shown && !self.is_touched()
    }

    /// It lies in these pages, which are as long, unless it was touched in the meantime.
    pub(super) fn put(&self, pages: Pages) {
        assert_eq!(pages.bytes(), self.bytes, "pages are as long as the room");
        drop(self.place.set(Place::Pages(Arc::new(pages))));
    }

    /// Whether others may read what was shown of it.
    pub(super) fn is_read_elsewhere(&mut self) -> bool {
        match self.place.get_mut() {
            Some(Place::Pages(pages)) => pages.are_read(),
            Some(Place::Vector { .. } | Place::Own(_)) | None => false,
        }
    }

    /// Whether it was made for pages that others can see.
    pub(super) const fn is_made_for_pages(&self) -> bool {
        self.shown
    }

    /// The pages, if others can see them.
    pub(super) fn pages(&self) -> Option<&Arc<Pages>> {
        match self.place() {
            Place::Vector { .. } | Place::Own(_) => None,
            Place::Pages(pages) => Some(pages),
        }
    }

    /// As what they are mapped, if they have a place of their own.
    pub(super) fn mapping(&self) -> Option<&Mapping> {
        match self.place() {
            Place::Vector { .. } => None,
            Place::Own(mapping) => Some(mapping),
            Place::Pages(pages) => Some(pages.mapping()),
        }
    }

    fn place(&self) -> &Place {
        self.place.get_or_init(|| Place::make(self.bytes, self.shown))
    }

    /// From now on nothing else reads it, so that all of it may be written anew: where another process or a transport may, what it was shown is left to it.
    pub(super) fn renew(&mut self) {
        drop(self.leave_to_readers());
    }

    /// The place, if others may read there: then this room has none any more.
    fn leave_to_readers(&mut self) -> Option<Place> {
        if self.is_read_elsewhere() { self.place.take() } else { None }
    }

    /// As [`Self::renew`], and the bytes are what they were.
    pub(super) fn reclaim(&mut self) {
        let Some(left) = self.leave_to_readers() else { return };
        // SAFETY: so many bytes are mapped there, and this process, which alone can write them, has this value for itself.
        let kept = unsafe { slice::from_raw_parts(left.start(), self.bytes) };
        // SAFETY: the room has just been made, is as long, and nothing else has it.
        let moved = unsafe { slice::from_raw_parts_mut(self.start(), self.bytes) };
        moved.copy_from_slice(kept);
    }
}

impl Place {
    fn make(bytes: usize, shown: bool) -> Self {
        if shown && let Ok(pages) = Pages::create(bytes) {
            return Self::Pages(Arc::new(pages));
        }
        let own = (bytes >= CHUNK_BYTES).then(|| Mapping::anonymous(bytes).ok()).flatten();
        own.map_or_else(|| Self::of(vec![0; bytes]), Self::Own)
    }

    fn of(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        Self::Vector {
            start: bytes.as_mut_ptr(),
            bytes: bytes.len(),
            capacity: bytes.capacity(),
        }
    }

    fn start(&self) -> *mut u8 {
        match self {
            Self::Vector { start, .. } => *start,
            Self::Own(mapping) => mapping.start(),
            Self::Pages(pages) => pages.start(),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Vector { start, bytes, capacity } = *self {
            // SAFETY: these are the parts of the vector that this value was made from, and it is given back once.
            drop(unsafe { Vec::from_raw_parts(start, bytes, capacity) });
        }
    }
}
