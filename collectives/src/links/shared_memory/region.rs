//! Memory that two processes of one host share: frames go through it in one direction, in slots that are used in turn. Knows no sockets and
//! never waits.
//!
//! ```text
//! | counters | slot 0: header, payload | slot 1 | …
//! ```
//! One end writes a slot and counts it as written, the other reads it and counts it as read; neither touches a slot that is the other's. Each
//! believes its own count, and of the other's only what can be ([`Counters`]).

#![expect(
    unsafe_code,
    reason = "memory that another process writes cannot be checked by the compiler"
)]

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};

use super::counters::{Counters, Memory, Reader, Writer};
use crate::limits::{ALIGNMENT, CHUNK_BYTES, SHARED_LINK_BYTES, SHARED_SLOTS};
use crate::links::frame::HEADER_BYTES;
use crate::runs::Runs;

/// Bytes of a header's place, so that payloads are aligned.
const HEADER_PLACE: usize = HEADER_BYTES.next_multiple_of(ALIGNMENT);
const SLOT_BYTES: usize = HEADER_PLACE + CHUNK_BYTES;
const COUNTERS_PLACE: usize = size_of::<Counters<AtomicU64, AtomicU32>>();
const REGION_BYTES: usize = COUNTERS_PLACE + SHARED_SLOTS * SLOT_BYTES;

/// What keeps another process from taking the memory away under this one.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The memory, mapped.
pub(super) struct Region {
    map: MmapRaw,
}

/// The payload of a slot that is being read, in one run. Dropped, it gives the slot back.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    reader: &'a mut Reader<Region>,
    bytes: usize,
    read: usize,
}

impl Region {
    /// New memory, and a descriptor of it for the other end.
    pub(super) fn create() -> io::Result<(Self, OwnedFd)> {
        let memory = memfd_create("sardana-link", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Reserved now: where there is no more memory it is an error here, and not a signal at the first touch.
        fallocate(&memory, FallocateFlags::empty(), 0, REGION_BYTES as u64)?;
        fcntl_add_seals(&memory, SEALS)?;
        Ok((Self::map(&memory)?, memory))
    }

    /// The memory that another process has made.
    pub(super) fn open(memory: &OwnedFd) -> io::Result<Self> {
        if !fcntl_get_seals(memory)?.contains(SEALS) {
            return Err(io::Error::other("the other end could take the memory away: it is not sealed"));
        }
        let found = fstat(memory)?.st_size;
        if u64::try_from(found) != Ok(REGION_BYTES as u64) {
            let expected = format!("a link's memory has {REGION_BYTES} bytes, found {found}");
            return Err(io::Error::other(expected));
        }
        Self::map(memory)
    }

    fn map(memory: &OwnedFd) -> io::Result<Self> {
        let map = MmapOptions::new().len(REGION_BYTES).map_raw(memory)?;
        Ok(Self { map })
    }

    /// Where slot `number`, counted from the beginning of time, lies.
    fn slot(&self, number: u64) -> *mut u8 {
        let slot = usize::try_from(number % SHARED_SLOTS as u64).expect("there are few slots");
        // SAFETY: the place lies within the mapping, whose length is that of all slots.
        unsafe { self.map.as_mut_ptr().add(COUNTERS_PLACE + slot * SLOT_BYTES) }
    }
}

impl Memory for Region {
    type Long = AtomicU64;
    type Short = AtomicU32;
    const SLOTS: u64 = SHARED_SLOTS as u64;

    fn counters(&self) -> &Counters<AtomicU64, AtomicU32> {
        // SAFETY: the mapping is a page at least, begins at a page, and stays as long as this value: it is sealed against shrinking. What
        // lies there are atomic integers alone, for which any bytes are good, whichever process writes them.
        unsafe { &*self.map.as_ptr().cast() }
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Writer<Region> {
    /// Writes a frame into the slot that is next, which must be free: `fill` writes its payload of `bytes` bytes.
    ///
    /// # Panics
    /// When the payload is longer than a chunk.
    pub(super) fn write(&mut self, header: &[u8; HEADER_BYTES], bytes: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(bytes <= CHUNK_BYTES, "a payload is at most a chunk");
        let slot = self.memory().slot(self.next());
        // SAFETY: the slot lies within the mapping, and is this end's until it is counted as written: the other reads only what is.
        let place = unsafe { slice::from_raw_parts_mut(slot, HEADER_PLACE + bytes) };
        place[..HEADER_BYTES].copy_from_slice(header);
        fill(&mut place[HEADER_PLACE..]);
    }
}

impl Reader<Region> {
    /// The header of the frame that is there.
    pub(super) fn header(&self) -> [u8; HEADER_BYTES] {
        let slot = self.memory().slot(self.next());
        // SAFETY: the slot lies within the mapping; it is counted as written, so that the other end leaves it alone. If that breaks its
        // word these are any bytes, and they are compared with those that are expected.
        unsafe { slot.cast::<[u8; HEADER_BYTES]>().read() }
    }

    /// The payload of the frame that is there.
    ///
    /// # Panics
    /// When it would be longer than a chunk.
    pub(super) fn payload(&mut self, bytes: usize) -> Slot<'_> {
        assert!(bytes <= CHUNK_BYTES, "a payload is at most a chunk");
        let read = 0;
        Slot {
            reader: self,
            bytes,
            read,
        }
    }
}

impl Slot<'_> {
    fn payload(&self) -> &[u8] {
        let slot = self.reader.memory().slot(self.reader.next());
        // SAFETY: the payload lies within its slot.
        let payload = unsafe { slot.add(HEADER_PLACE) };
        // SAFETY: the slot is counted as written and not as read, so that the other end leaves it alone. That end is a worker of the same
        // job and user; if it breaks its word these are numbers of its own choice, which it could have sent as well.
        unsafe { slice::from_raw_parts(payload, self.bytes) }
    }
}

impl Runs for Slot<'_> {
    fn left(&self) -> usize {
        self.bytes - self.read
    }

    fn run(&mut self, most: usize, _element: usize) -> &[u8] {
        let run = self.read..self.read + most;
        self.read = run.end;
        &self.payload()[run]
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.reader.count();
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("counters", self.counters())
            .finish_non_exhaustive()
    }
}

// A worker says of its links that they hold no more.
const _: () = assert!(REGION_BYTES as u64 <= SHARED_LINK_BYTES);
// Both ends map the same bytes: their layout is part of what they say to each other.
const _: () = assert!(COUNTERS_PLACE.is_multiple_of(ALIGNMENT) && SLOT_BYTES.is_multiple_of(ALIGNMENT));
