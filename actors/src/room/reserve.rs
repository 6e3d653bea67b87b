//! Memory that a state was in, for the next one that comes, or for shares of this one: a worker has it from its probe, which copies state 0. While nothing
//! uses it the system may take its pages, and does when it lacks memory, so that other processes lack nothing for it. Where a system cannot do that (all but
//! Linux) large memory is given back.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::{Bytes, BytesMut};

use super::pages::{self, LARGE_BYTES, zeros};

/// Memory that lies in reserve, if there is any: one piece. All clones have the same.
#[derive(Clone, Default)]
pub struct Reserve(Arc<Mutex<Option<Memory>>>);

/// Memory for so many bytes, and perhaps more behind them. It lies in reserve again when it is dropped, or when none of the bytes that it was made into is held.
pub struct Room {
    memory: Memory,
    bytes: usize,
    reserve: Reserve,
}

#[derive(Default)]
struct Memory {
    bytes: BytesMut,
    /// So many at its beginning may have been written to. The pages of the others were never found, or are left to the system.
    used: usize,
}

impl Memory {
    fn has_pages_to_leave(&self) -> bool {
        self.bytes.len() >= LARGE_BYTES && self.used > 0
    }
}

/// Bytes whose pages are left to the system while others wait for the memory: a tenth of a second, where pages are small.
const LEFT_AT_ONCE: usize = 1 << 30;

impl Reserve {
    /// Nothing uses this memory any more. The larger piece is kept of two.
    pub fn keep(&self, memory: BytesMut) {
        self.put(Memory {
            used: memory.len(),
            bytes: memory,
        });
    }

    fn put(&self, memory: Memory) {
        let bytes = memory.bytes.len();
        let mut kept = self.lock();
        let surplus = match &*kept {
            Some(kept) if kept.bytes.len() >= bytes => Some(memory),
            Some(_) | None => kept.replace(memory),
        };
        drop(kept);
        let reserve = self.clone();
        // A task that wants the memory meanwhile has it.
        aside(bytes, move || {
            drop(surplus);
            reserve.leave_pages();
        });
    }

    /// Leaves the pages of what lies in reserve to the system, some after the others, or else gives all of it back.
    fn leave_pages(&self) {
        loop {
            let mut kept = self.lock();
            let Some(memory) = kept.as_mut().filter(|memory| memory.has_pages_to_leave()) else {
                return;
            };
            let start = memory.used.saturating_sub(LEFT_AT_ONCE);
            if !pages::leave(&mut memory.bytes[start..memory.used]) {
                let given_back = kept.take();
                // To give it back takes long.
                drop(kept);
                return drop(given_back);
            }
            memory.used = start;
        }
    }

    /// Memory for a whole state of so many bytes, with anything in it, to be filled from several sides and then [read](Self::read_only).
    #[must_use]
    pub fn whole(&self, bytes: usize) -> BytesMut {
        let kept = self.lock().take_if(|kept| kept.bytes.len() == bytes);
        kept.map_or_else(|| zeros(bytes), |kept| kept.bytes)
    }

    /// Room for so many bytes, with anything in it.
    #[must_use]
    pub fn room(&self, bytes: usize) -> Room {
        let kept = self.lock().take_if(|kept| kept.bytes.len() >= bytes);
        let memory = kept.unwrap_or_else(|| Memory {
            bytes: zeros(bytes),
            used: 0,
        });
        let reserve = self.clone();
        Room { memory, bytes, reserve }
    }

    /// This memory, to be read. It lies in reserve once nothing of it is held.
    #[must_use]
    pub fn read_only(&self, filled: BytesMut) -> Bytes {
        let bytes = filled.len();
        let memory = Memory {
            bytes: filled,
            used: bytes,
        };
        let reserve = self.clone();
        Bytes::from(Room { memory, bytes, reserve })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// Finds all pages of the room that are not there, which takes longer than to copy as much.
    pub fn find_pages(&mut self) {
        pages::touch(self.as_mut());
    }

    /// The same memory as room for so many bytes, if there are as many.
    #[must_use]
    pub fn of(mut self, bytes: usize) -> Option<Self> {
        self.bytes = bytes;
        (bytes <= self.memory.bytes.len()).then_some(self)
    }
}

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        &self.memory.bytes[..self.bytes]
    }
}

impl AsMut<[u8]> for Room {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.used = self.memory.used.max(self.bytes);
        &mut self.memory.bytes[..self.bytes]
    }
}

impl From<Room> for Bytes {
    fn from(room: Room) -> Self {
        Self::from_owner(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.reserve.put(std::mem::take(&mut self.memory));
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.lock().as_ref().map(|memory| memory.bytes.len());
        f.debug_tuple("Reserve").field(&bytes).finish()
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Does what may take hundreds of milliseconds for each GiB of memory, of which there are so many bytes: if they are many on another thread, since others' steps may
/// wait for this one, or for a lock that it holds. (Simulated states are small: no thread comes into a simulation.)
fn aside(bytes: usize, work: impl FnOnce() + Send + 'static) {
    if bytes < LARGE_BYTES {
        return work();
    }
    // Where no thread can be had, what the work holds is given back here.
    let _ = thread::Builder::new().name("give back".to_owned()).spawn(work);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    #[cfg(target_os = "linux")]
    use std::time::{Duration, Instant};

    use super::*;

    /// Small: where the system can take no pages it is kept as well.
    const BYTES: usize = 3_000;

    /// Memory that is in reserve, and where it is.
    fn reserve() -> (Reserve, *const u8) {
        reserve_of(BYTES)
    }

    fn reserve_of(bytes: usize) -> (Reserve, *const u8) {
        let (reserve, memory) = (Reserve::default(), zeros(bytes));
        let place = memory.as_ptr();
        reserve.keep(memory);
        (reserve, place)
    }

    fn place_of(reserve: &Reserve) -> Option<*const u8> {
        reserve.lock().as_ref().map(|kept| kept.bytes.as_ptr())
    }

    #[test]
    fn a_state_is_put_where_the_last_one_was_if_it_is_as_long() {
        let (reserve, place) = reserve();
        for bytes in [0, BYTES - 1, BYTES + 1] {
            assert_eq!(reserve.whole(bytes).len(), bytes);
        }
        let state = reserve.whole(BYTES);
        assert_eq!((state.as_ptr(), state.len()), (place, BYTES));
        let another = reserve.whole(BYTES);
        assert!(another.as_ptr() != place && another.len() == BYTES, "that is in use");
    }

    #[test]
    fn what_was_read_is_in_reserve_once_nothing_of_it_is_held() {
        let (reserve, place) = reserve();
        let state = reserve.read_only(reserve.whole(BYTES));
        assert_eq!((state.as_ptr(), state.len()), (place, BYTES));
        let part = state.slice(1..3);
        drop(state);
        assert_eq!(place_of(&reserve), None, "a part of it is held");
        drop(part);
        assert_eq!(place_of(&reserve), Some(place));
        assert_eq!(reserve.whole(BYTES).len(), BYTES, "all of it");
    }

    #[test]
    fn room_for_less_is_found_there_and_comes_back_as_it_was() {
        let (reserve, place) = reserve();
        let mut room = reserve.room(BYTES / 3);
        assert_eq!((room.as_ref().as_ptr(), room.as_ref().len()), (place, BYTES / 3));
        room.as_mut().fill(7);
        let bytes = Bytes::from(room);
        assert!(bytes.len() == BYTES / 3 && bytes.iter().all(|&byte| byte == 7));
        drop(bytes);
        assert_eq!(place_of(&reserve), Some(place));
        let unused = reserve.room(BYTES);
        drop(unused);
        assert_eq!(place_of(&reserve), Some(place), "a copy that was not made");
        assert_eq!(reserve.room(BYTES + 1).as_ref().len(), BYTES + 1, "there is less");
    }

    #[test]
    fn the_larger_piece_is_kept_of_two() {
        let (reserve, place) = reserve();
        reserve.keep(zeros(BYTES - 1));
        assert_eq!(place_of(&reserve), Some(place));
        let larger = zeros(BYTES + 1);
        let place = larger.as_ptr();
        reserve.keep(larger);
        assert_eq!(place_of(&reserve), Some(place));
    }

    /// Bytes of the mapping around this address that the system may take: `LazyFree` in proc_pid_smaps(5).
    #[cfg(target_os = "linux")]
    fn may_be_taken(address: usize) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = smaps.lines().skip_while(|line| {
            let number = |text| usize::from_str_radix(text, 16).ok();
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = range.and_then(|(start, end)| Some(number(start)?..number(end)?));
            bounds.is_none_or(|bounds| !bounds.contains(&address))
        });
        let told = lines.find_map(|line| line.strip_prefix("LazyFree:")).unwrap();
        told.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_may_take_what_lies_in_reserve_and_nothing_that_is_used() {
        const LARGE: usize = 64 << 20;
        if !pages::leave(&mut zeros(LARGE)) {
            println!("skipped: this system takes no pages that are left to it");
            return;
        }
        let (reserve, place) = reserve_of(LARGE);
        // Its ends are mapped apart, since no large page fits there.
        let middle = place.addr() + LARGE / 2;
        // Pages that nothing was ever written to are not there.
        reserve.room(LARGE).as_mut().fill(7);
        assert_eq!(place_of(&reserve), Some(place), "it is there at once");
        let until = Instant::now() + Duration::from_secs(60);
        while may_be_taken(middle) < LARGE * 3 / 4 && Instant::now() < until {
            thread::yield_now();
        }
        assert!(may_be_taken(middle) >= LARGE * 3 / 4, "all but the ends");
        let mut room = reserve.room(LARGE / 2);
        room.find_pages();
        assert_eq!(room.as_ref().as_ptr(), place);
        let left = may_be_taken(middle);
        assert!((LARGE / 4..=LARGE / 2).contains(&left), "{left}: the half that is not used");
    }

    #[test]
    fn what_takes_long_is_done_by_another_thread() {
        let (sender, done) = mpsc::channel();
        let is_here = |bytes| {
            let sender = sender.clone();
            aside(bytes, move || sender.send(thread::current().id()).unwrap());
            done.recv().unwrap() == thread::current().id()
        };
        assert!(is_here(LARGE_BYTES - 1) && !is_here(LARGE_BYTES));
    }

    #[test]
    fn room_serves_for_as_much_as_its_memory_has() {
        let (reserve, place) = reserve();
        let room = reserve.room(BYTES / 3).of(BYTES).unwrap();
        assert_eq!((room.as_ref().as_ptr(), room.as_ref().len()), (place, BYTES));
        assert!(room.of(BYTES + 1).is_none());
        assert_eq!(place_of(&reserve), Some(place), "it lies in reserve again");
    }

    #[test]
    fn memory_is_told_by_its_length_alone() {
        let reserve = reserve().0;
        assert_eq!(format!("{reserve:?}"), "Reserve(Some(3000))");
        assert_eq!(format!("{:?}", reserve.room(7)), "Room { bytes: 7, .. }");
    }
}
