//! Where the bytes of a gradient lie in the host's memory: in memory of the process's own, or in pages that other processes of the host can read. Knows not
//! what is written there.

#![expect(
    unsafe_code,
    reason = "the memory is a vector's that is taken apart, since parts of it are written while others are read"
)]

use std::mem::ManuallyDrop;
use std::slice;
use std::sync::Arc;

use crate::limits::CHUNK_BYTES;
use crate::mapping::Mapping;
use crate::pages::Pages;

/// Bytes at one place.
#[derive(Debug)]
pub(super) enum Room {
    /// A vector's.
    Vector { start: *mut u8, bytes: usize, capacity: usize },
    /// Of this process alone, at a place of its own.
    Own(Mapping),
    /// Pages that others can see.
    Pages(Arc<Pages>),
}

impl Room {
    /// All zeros: at a place of its own from a chunk's length on, so that a device may be told of it.
    pub(super) fn zeros(bytes: usize) -> Self {
        let own = (bytes >= CHUNK_BYTES).then(|| Mapping::anonymous(bytes).ok()).flatten();
        own.map_or_else(|| Self::of(vec![0; bytes]), Self::Own)
    }

    /// All zeros, where other processes of this host can read them if there are such pages.
    pub(super) fn in_pages(bytes: usize) -> Self {
        match Pages::create(bytes) {
            Ok(pages) => Self::Pages(Arc::new(pages)),
            Err(_) => Self::zeros(bytes),
        }
    }

    /// Takes over these bytes.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        Self::Vector {
            start: bytes.as_mut_ptr(),
            bytes: bytes.len(),
            capacity: bytes.capacity(),
        }
    }

    /// Where it begins. It stays there until [`Self::reclaim`].
    pub(super) fn start(&self) -> *mut u8 {
        match self {
            Self::Vector { start, .. } => *start,
            Self::Own(mapping) => mapping.start(),
            Self::Pages(pages) => pages.start(),
        }
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Vector { bytes, .. } => *bytes,
            Self::Own(mapping) => mapping.bytes(),
            Self::Pages(pages) => pages.bytes(),
        }
    }

    /// The pages, if others can see them.
    pub(super) const fn pages(&self) -> Option<&Arc<Pages>> {
        match self {
            Self::Vector { .. } | Self::Own(_) => None,
            Self::Pages(pages) => Some(pages),
        }
    }

    /// As what they are mapped, if they have a place of their own.
    pub(super) fn mapping(&self) -> Option<&Mapping> {
        match self {
            Self::Vector { .. } => None,
            Self::Own(mapping) => Some(mapping),
            Self::Pages(pages) => Some(pages.mapping()),
        }
    }

    /// From now on nothing else reads it, so that all of it may be written anew: where another process or a transport may, what it was shown is left to it.
    pub(super) fn renew(&mut self) {
        if let Some(bytes) = self.read_elsewhere() {
            *self = Self::in_pages(bytes);
        }
    }

    /// How many bytes others may read, if they may.
    fn read_elsewhere(&mut self) -> Option<usize> {
        match self {
            Self::Vector { .. } | Self::Own(_) => None,
            Self::Pages(pages) => pages.are_read().then(|| pages.bytes()),
        }
    }

    /// As [`Self::renew`], and the bytes are what they were.
    pub(super) fn reclaim(&mut self) {
        let Some(bytes) = self.read_elsewhere() else { return };
        let start = self.start();
        // SAFETY: so many bytes are mapped there, and this process, which alone can write them, has this value for itself.
        let kept = unsafe { slice::from_raw_parts(start, bytes) };
        let other = Self::in_pages(bytes);
        // SAFETY: the room has just been made, is as long, and nothing else has it.
        let moved = unsafe { slice::from_raw_parts_mut(other.start(), bytes) };
        moved.copy_from_slice(kept);
        *self = other;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Self::Vector { start, bytes, capacity } = *self {
            // SAFETY: these are the parts of the vector that this value was made from, and it is given back once.
            drop(unsafe { Vec::from_raw_parts(start, bytes, capacity) });
        }
    }
}
