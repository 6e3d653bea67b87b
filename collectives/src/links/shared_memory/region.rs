//! Memory that two processes of one host share: frames go through it in one direction, in slots that are used in turn. Knows no sockets and
//! never waits.
//!
//! ```text
//! | counters | slot 0: header, payload | slot 1 | …
//! ```
//! One end writes a slot and counts it as written, the other reads it and counts it as read; neither touches a slot that is the other's. Each
//! believes its own count, and of the other's only what can be.

#![expect(
    unsafe_code,
    reason = "memory that another process writes cannot be checked by the compiler"
)]

use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};

use crate::limits::{ALIGNMENT, CHUNK_BYTES, SHARED_SLOTS};
use crate::links::frame::HEADER_BYTES;

/// Bytes of a header's place, so that payloads are aligned.
const HEADER_PLACE: usize = HEADER_BYTES.next_multiple_of(ALIGNMENT);
const SLOT_BYTES: usize = HEADER_PLACE + CHUNK_BYTES;
const COUNTERS_PLACE: usize = size_of::<Counters>();
const REGION_BYTES: usize = COUNTERS_PLACE + SHARED_SLOTS * SLOT_BYTES;

/// What keeps another process from taking the memory away under this one.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// At the beginning of the region. Each end writes lines of its own, so that they do not wait for each other's.
#[repr(C)]
struct Counters {
    sender: Side,
    receiver: Side,
}

/// What one end says.
#[repr(C, align(64))]
struct Side {
    /// Slots that it has written, or read, since the beginning.
    slots: AtomicU64,
    /// A [`State`].
    state: AtomicU32,
    /// 1 while it sleeps and wants to be woken.
    sleeps: AtomicU32,
}

/// What becomes of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open = 0,
    /// It ended well.
    Finished = 1,
    /// It was given up.
    Reset = 2,
}

/// The other end's count cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Senseless;

/// The memory, mapped.
pub(super) struct Region {
    map: MmapRaw,
}

/// The end that writes.
#[derive(Debug)]
pub(super) struct Writer {
    region: Region,
    written: u64,
}

/// The end that reads.
#[derive(Debug)]
pub(super) struct Reader {
    region: Region,
    read: u64,
}

/// The payload of a slot that is being read. Dropped, it gives the slot back.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    reader: &'a mut Reader,
    bytes: usize,
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

    fn counters(&self) -> &Counters {
        // SAFETY: the mapping is a page at least, begins at a page, and stays as long as this value: it is sealed against shrinking. What
        // lies there are atomic integers alone, for which any bytes are good, whichever process writes them.
        unsafe { &*self.map.as_ptr().cast::<Counters>() }
    }

    /// Where slot `number`, counted from the beginning of time, lies.
    fn slot(&self, number: u64) -> *mut u8 {
        let slot = usize::try_from(number % SHARED_SLOTS as u64).expect("there are few slots");
        // SAFETY: the place lies within the mapping, whose length is that of all slots.
        unsafe { self.map.as_mut_ptr().add(COUNTERS_PLACE + slot * SLOT_BYTES) }
    }
}

/// Of the slots that `ahead` has beyond `behind` there are at most all.
fn between(behind: u64, ahead: u64) -> Result<u64, Senseless> {
    ahead
        .checked_sub(behind)
        .filter(|&slots| slots <= SHARED_SLOTS as u64)
        .ok_or(Senseless)
}

impl Writer {
    pub(super) const fn new(region: Region) -> Self {
        Self { region, written: 0 }
    }

    /// Whether a slot is free.
    pub(super) fn has_room(&self) -> Result<bool, Senseless> {
        let read = self.region.counters().receiver.slots.load(Ordering::SeqCst);
        Ok(between(read, self.written)? < SHARED_SLOTS as u64)
    }

    /// Writes a frame into a slot that is free: `fill` writes its payload of `bytes` bytes. Says whether the other end wants to be woken.
    ///
    /// # Panics
    /// When the payload is longer than a chunk.
    pub(super) fn write(&mut self, header: &[u8; HEADER_BYTES], bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        assert!(bytes <= CHUNK_BYTES, "a payload is at most a chunk");
        let slot = self.region.slot(self.written);
        // SAFETY: the slot lies within the mapping, and is this end's until it is counted as written: the other reads only what is.
        let place = unsafe { slice::from_raw_parts_mut(slot, HEADER_PLACE + bytes) };
        place[..HEADER_BYTES].copy_from_slice(header);
        fill(&mut place[HEADER_PLACE..]);
        self.written += 1;
        let Counters { sender, receiver } = self.region.counters();
        sender.slots.store(self.written, Ordering::SeqCst);
        wants_waking(receiver)
    }

    /// Says that this end is at its end, and whether the other wants to be woken.
    pub(super) fn end(&self, state: State) -> bool {
        let Counters { sender, receiver } = self.region.counters();
        sender.state.store(state as u32, Ordering::SeqCst);
        wants_waking(receiver)
    }

    /// Whether the other end reads no more.
    pub(super) fn is_refused(&self) -> bool {
        self.region.counters().receiver.state.load(Ordering::SeqCst) != State::Open as u32
    }

    /// From now on this end is woken, or no longer.
    pub(super) fn sleeps(&self, sleeps: bool) {
        self.region
            .counters()
            .sender
            .sleeps
            .store(u32::from(sleeps), Ordering::SeqCst);
    }
}

impl Reader {
    pub(super) const fn new(region: Region) -> Self {
        Self { region, read: 0 }
    }

    /// Whether a frame is there.
    pub(super) fn has_frame(&self) -> Result<bool, Senseless> {
        let written = self.region.counters().sender.slots.load(Ordering::SeqCst);
        Ok(between(self.read, written)? > 0)
    }

    /// The header of the frame that is there.
    pub(super) fn header(&self) -> [u8; HEADER_BYTES] {
        let slot = self.region.slot(self.read);
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
        Slot { reader: self, bytes }
    }

    /// What has become of the other end.
    pub(super) fn state(&self) -> State {
        match self.region.counters().sender.state.load(Ordering::SeqCst) {
            0 => State::Open,
            1 => State::Finished,
            _ => State::Reset,
        }
    }

    /// Says that this end reads no more, and whether the other wants to be woken.
    pub(super) fn end(&self) -> bool {
        let Counters { sender, receiver } = self.region.counters();
        receiver.state.store(State::Reset as u32, Ordering::SeqCst);
        wants_waking(sender)
    }

    /// From now on this end is woken, or no longer.
    pub(super) fn sleeps(&self, sleeps: bool) {
        self.region
            .counters()
            .receiver
            .sleeps
            .store(u32::from(sleeps), Ordering::SeqCst);
    }

    /// Whether the other end wants to be woken, now that slots were given back.
    pub(super) fn wakes(&self) -> bool {
        wants_waking(&self.region.counters().sender)
    }
}

/// Whether an end sleeps. It is woken once.
fn wants_waking(side: &Side) -> bool {
    side.sleeps.load(Ordering::SeqCst) != 0 && side.sleeps.swap(0, Ordering::SeqCst) != 0
}

impl Deref for Slot<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let slot = self.reader.region.slot(self.reader.read);
        // SAFETY: the payload lies within its slot.
        let payload = unsafe { slot.add(HEADER_PLACE) };
        // SAFETY: the slot is counted as written and not as read, so that the other end leaves it alone. That end is a worker of the same
        // job and user; if it breaks its word these are numbers of its own choice, which it could have sent as well.
        unsafe { slice::from_raw_parts(payload, self.bytes) }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.reader.read += 1;
        let receiver = &self.reader.region.counters().receiver;
        receiver.slots.store(self.reader.read, Ordering::SeqCst);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { sender, receiver } = self.counters();
        f.debug_struct("Region")
            .field("written", &sender.slots)
            .field("read", &receiver.slots)
            .finish_non_exhaustive()
    }
}

// Both ends map the same bytes: their layout is part of what they say to each other.
const _: () = assert!(COUNTERS_PLACE.is_multiple_of(ALIGNMENT) && SLOT_BYTES.is_multiple_of(ALIGNMENT));

#[cfg(test)]
impl Writer {
    pub(super) fn other_sleeps(&self) -> bool {
        self.region.counters().receiver.sleeps.load(Ordering::SeqCst) != 0
    }

    /// Says that so many slots were written.
    pub(super) fn claim(&self, slots: u64) {
        self.region.counters().sender.slots.store(slots, Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Reader {
    /// Says that so many slots were read.
    pub(super) fn claim(&self, slots: u64) {
        self.region.counters().receiver.slots.store(slots, Ordering::SeqCst);
    }
}
