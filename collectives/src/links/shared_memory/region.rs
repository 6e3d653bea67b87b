//! Memory that two processes of one host share: frames go through it in one direction, in places that are used in turn, and so do the slots of their payloads. Knows no
//! sockets and never waits.
//!
//! ```text
//! | counters | frame 0 | frame 1 | … | slot 0 | slot 1 | …
//! ```
//! One end writes a frame and counts it as written, the other reads it and counts it as read; neither touches a frame, or its slot, that is the other's. Each
//! believes its own count, and of the other's only what can be ([`Counters`]). A payload that lies where its sender has it has no slot, and there is room for many
//! more of those.

#![expect(
    unsafe_code,
    reason = "memory that another process writes cannot be checked by the compiler"
)]

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};

use super::counters::{Counters, Memory, Reader, Writer};
use super::in_place::Place;
use crate::borrowed::{Borrowed, COLUMNS};
use crate::limits::{ALIGNMENT, CHUNK_BYTES, SHARED_FRAMES, SHARED_LINK_BYTES, SHARED_SLOTS};
use crate::links::frame::HEADER_BYTES;
use crate::runs::Runs;

/// Bytes of a frame: its header, then [which pages](Place) its payload lies in, 0 if it lies in a slot, and where. Two lines, since a processor may fetch two at a time: one is
/// written while the one before is read.
const FRAME_BYTES: usize = (HEADER_BYTES + 2 * size_of::<u64>()).next_multiple_of(2 * ALIGNMENT);
/// Where the receiver says that it [asks for copies](Region::asks_for_copies).
const COPIES_PLACE: usize = size_of::<Counters<AtomicU64, AtomicU32>>();
/// Up to which frames it has [returned](Region::returned) what it borrowed, a number for each column.
const RETURNED_PLACE: usize = COPIES_PLACE + ALIGNMENT;
const FRAMES_PLACE: usize = (RETURNED_PLACE + COLUMNS * size_of::<u64>()).next_multiple_of(ALIGNMENT);
const SLOTS_PLACE: usize = FRAMES_PLACE + SHARED_FRAMES * FRAME_BYTES;
const REGION_BYTES: usize = SLOTS_PLACE + SHARED_SLOTS * CHUNK_BYTES;

/// What keeps another process from taking the memory away under this one.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The memory, mapped.
#[derive(Clone)]
pub(super) struct Region {
    map: Arc<MmapRaw>,
}

/// The payload of a frame that is being read, in one run. Dropped, it gives the frame back, with its slot.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    reader: &'a mut Reader<Region>,
    lies: Lies<'a>,
    read: usize,
}

/// Where the payload of a frame lies.
#[derive(Debug)]
pub(super) enum Lies<'a> {
    /// In its slot: so many bytes.
    Here(usize),
    /// Where the sender has it.
    There(&'a [u8]),
    /// The same, and it is returned by being dropped.
    Lent(Borrowed),
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

    /// The receiver cannot see pages of the sender's: said before the sender sends anything.
    pub(super) fn ask_for_copies(&self) {
        self.copies().store(1, Ordering::Release);
    }

    /// Whether the receiver cannot see pages.
    pub(super) fn asks_for_copies(&self) -> bool {
        self.copies().load(Ordering::Acquire) != 0
    }

    fn copies(&self) -> &AtomicU32 {
        // SAFETY: the place lies within the mapping.
        let place = unsafe { self.map.as_ptr().add(COPIES_PLACE) };
        // SAFETY: it is aligned, and nothing else is there: as for the counters.
        unsafe { &*place.cast() }
    }

    /// The receiver has returned all of this column that it borrowed with frames before this one, counted from 0 on. It reads no byte of that any more.
    pub(super) fn have_returned(&self, column: usize, before: u64) {
        self.returns()[column].store(before, Ordering::Release);
    }

    /// Up to which frame the receiver has returned all of this column that it borrowed.
    pub(super) fn returned(&self, column: usize) -> u64 {
        self.returns()[column].load(Ordering::Acquire)
    }

    fn returns(&self) -> &[AtomicU64; COLUMNS] {
        // SAFETY: the place lies within the mapping.
        let place = unsafe { self.map.as_ptr().add(RETURNED_PLACE) };
        // SAFETY: it is aligned, and nothing else is there: as for the counters.
        unsafe { &*place.cast() }
    }

    fn map(memory: &OwnedFd) -> io::Result<Self> {
        let map = MmapOptions::new().len(REGION_BYTES).map_raw(memory)?;
        Ok(Self { map: Arc::new(map) })
    }

    /// Where frame `number`, counted from the beginning of time, lies.
    fn frame(&self, number: u64) -> *mut u8 {
        let frame = usize::try_from(number % SHARED_FRAMES as u64).expect("there are few frames");
        // SAFETY: the place lies within the mapping, which has room for all frames.
        unsafe { self.map.as_mut_ptr().add(FRAMES_PLACE + frame * FRAME_BYTES) }
    }

    /// Where slot `number`, counted likewise, lies.
    fn slot(&self, number: u64) -> *mut u8 {
        let slot = usize::try_from(number % SHARED_SLOTS as u64).expect("there are few slots");
        // SAFETY: the place lies within the mapping, whose length is that of all slots.
        unsafe { self.map.as_mut_ptr().add(SLOTS_PLACE + slot * CHUNK_BYTES) }
    }
}

impl Memory for Region {
    type Long = AtomicU64;
    type Short = AtomicU32;
    const FRAMES: u64 = SHARED_FRAMES as u64;
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
    /// Writes the frame that is next, for which there must be room, with the slot that is next, which must be free: `fill` writes its payload of `bytes` bytes.
    ///
    /// # Panics
    /// When the payload is longer than a chunk.
    pub(super) fn write(&mut self, header: &[u8; HEADER_BYTES], bytes: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(bytes <= CHUNK_BYTES, "a payload is at most a chunk");
        let number = self.take_slot();
        let slot = self.memory().slot(number);
        // SAFETY: the slot lies within the mapping, and is this end's until its frame is counted as written: the other reads only what is.
        fill(unsafe { slice::from_raw_parts_mut(slot, bytes) });
        self.refer(header, HERE);
    }

    /// Writes the frame that is next, for which there must be room, and whose payload lies elsewhere.
    pub(super) fn refer(&mut self, header: &[u8; HEADER_BYTES], to: Place) {
        let frame = self.memory().frame(self.next());
        // SAFETY: as above.
        let frame = unsafe { slice::from_raw_parts_mut(frame, FRAME_BYTES) };
        let (head, rest) = frame.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(header);
        rest[..8].copy_from_slice(&to.pages.to_le_bytes());
        let lent = if to.lent { LENT } else { 0 };
        rest[8..16].copy_from_slice(&(to.at | lent).to_le_bytes());
    }
}

/// What a frame says whose payload lies in a slot.
const HERE: Place = Place {
    pages: 0,
    at: 0,
    lent: false,
};

/// What a place says besides where it is, as no memory is so long.
const LENT: u64 = 1 << 63;

impl Reader<Region> {
    /// The header of the frame that is there.
    pub(super) fn header(&self) -> [u8; HEADER_BYTES] {
        let frame = self.memory().frame(self.next());
        // SAFETY: the frame lies within the mapping; it is counted as written, so that the other end leaves it alone. If that breaks its
        // word these are any bytes, and they are compared with those that are expected.
        unsafe { frame.cast::<[u8; HEADER_BYTES]>().read() }
    }

    /// Where the payload of the frame that is there lies. None if in its slot.
    pub(super) fn place(&self) -> Option<Place> {
        let frame = self.memory().frame(self.next());
        // SAFETY: the place lies within the mapping, as above.
        let place = unsafe { frame.add(HEADER_BYTES) };
        // SAFETY: as above.
        let place = unsafe { place.cast::<[[u8; 8]; 2]>().read() };
        let [pages, at] = place.map(u64::from_le_bytes);
        let (at, lent) = (at & !LENT, at & LENT != 0);
        (pages != HERE.pages).then_some(Place { pages, at, lent })
    }

    /// The payload of the frame that is there.
    ///
    /// # Panics
    /// When it lies in the slot, and would be longer than a chunk.
    pub(super) fn payload<'a>(&'a mut self, lies: Lies<'a>) -> Slot<'a> {
        if let Lies::Here(bytes) = lies {
            assert!(bytes <= CHUNK_BYTES, "a payload is at most a chunk");
        }
        Slot {
            reader: self,
            lies,
            read: 0,
        }
    }
}

impl Slot<'_> {
    fn payload(&self) -> &[u8] {
        let bytes = match &self.lies {
            Lies::Here(bytes) => *bytes,
            Lies::There(payload) => return payload,
            Lies::Lent(borrowed) => return borrowed,
        };
        let slot = self.reader.memory().slot(self.reader.slot());
        // SAFETY: the slot lies within the mapping. Its frame is counted as written and not as read, so that the other end leaves it alone. That end is a worker of the
        // same job and user; if it breaks its word these are numbers of its own choice, which it could have sent as well.
        unsafe { slice::from_raw_parts(slot, bytes) }
    }
}

#[cfg(test)]
impl Slot<'_> {
    /// Whether it is read where the sender has it.
    pub(super) const fn is_in_place(&self) -> bool {
        matches!(self.lies, Lies::There(_) | Lies::Lent(_))
    }
}

impl Runs for Slot<'_> {
    fn left(&self) -> usize {
        self.payload().len() - self.read
    }

    fn run(&mut self, most: usize, _element: usize) -> &[u8] {
        let run = self.read..self.read + most;
        self.read = run.end;
        &self.payload()[run]
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        match self.lies {
            Lies::Here(_) => self.reader.count_with_slot(),
            Lies::There(_) | Lies::Lent(_) => self.reader.count(),
        }
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
const _: () = assert!(FRAMES_PLACE.is_multiple_of(ALIGNMENT) && SLOTS_PLACE.is_multiple_of(ALIGNMENT));

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use futures_util::FutureExt;

    use super::super::counters::{Doorbell, Gone, State};
    use super::*;

    /// More than there are places for, several times.
    const FRAMES: u64 = 3 * SHARED_FRAMES as u64 + 3;

    /// Of ends that never sleep.
    struct Awake;

    impl Doorbell for Awake {
        fn ring(&self) {}

        async fn heard(&self) -> Result<(), Gone> {
            unreachable!("it looks again until the other end is ready")
        }

        async fn lingers(&self, _: Instant) -> bool {
            thread::yield_now();
            true
        }
    }

    /// Memory that two threads have, without a descriptor: what an interpreter has as well.
    fn region() -> Region {
        let memory = MmapOptions::new().len(REGION_BYTES).map_anon().unwrap();
        Region {
            map: Arc::new(memory.into()),
        }
    }

    /// What frame `number` says: its header, and as many bytes as are in it, or where they are.
    fn frame(number: u64) -> ([u8; HEADER_BYTES], Vec<u8>, Option<Place>) {
        let bytes = [0, 1, CHUNK_BYTES, 300][number as usize % 4];
        let payload = (0..bytes).map(|at| (at as u64 * 7 + number) as u8).collect();
        let place = number.is_multiple_of(3).then_some(Place {
            pages: number + 1,
            at: 64,
            lent: number.is_multiple_of(2),
        });
        ([number as u8; HEADER_BYTES], payload, place)
    }

    #[test]
    fn each_frame_is_read_as_it_was_written_and_no_slot_before_it_is_or_after_it_was_given_back() {
        let written = region();
        let read = written.clone();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut writer = Writer::new(written);
                for number in 0..FRAMES {
                    writer.room(SHARED_FRAMES as u64, &Awake).now_or_never().unwrap().unwrap();
                    let (header, payload, place) = frame(number);
                    match place {
                        Some(place) => writer.refer(&header, place),
                        None => {
                            writer.free_slot(&Awake).now_or_never().unwrap().unwrap();
                            writer.write(&header, payload.len(), |out| out.copy_from_slice(&payload));
                        }
                    }
                    writer.count(&Awake);
                }
                writer.end(State::Finished, &Awake);
            });
            let mut reader = Reader::new(read);
            for number in 0..FRAMES {
                reader.frame(&Awake).now_or_never().unwrap().unwrap();
                let (header, payload, place) = frame(number);
                assert_eq!((reader.header(), reader.place()), (header, place), "frame {number}");
                let lies = place.map_or(Lies::Here(payload.len()), |_| Lies::There(&payload[..]));
                let slot = reader.payload(lies);
                assert_eq!(slot.payload(), payload, "frame {number}");
            }
            assert!(reader.frame(&Awake).now_or_never().unwrap().is_err());
        });
    }

    #[test]
    fn what_the_receiver_asks_for_is_seen_beside_the_counters() {
        let one = region();
        let other = one.clone();
        assert!(!one.asks_for_copies());
        other.ask_for_copies();
        assert!(one.asks_for_copies());
        assert_eq!(one.counters().read(), Some(0));
        other.have_returned(COLUMNS - 1, 7);
        let returned: Vec<u64> = (0..COLUMNS).map(|column| one.returned(column)).collect();
        assert!(returned[..COLUMNS - 1].iter().all(|&frame| frame == 0) && returned[COLUMNS - 1] == 7);
    }
}
