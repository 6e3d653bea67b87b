//! Memory that a state was in, for the next one that comes, or for shares of this one: a worker has it from its probe, which copies state 0. While nothing
//! uses it the system may take its pages, and does when it lacks memory; so it keeps no one from anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use bytes::{Bytes, BytesMut};

use super::pages::{self, zeros};

/// Memory that lies spare, if there is any: one piece. All clones have the same.
#[derive(Debug, Clone, Default)]
pub struct Spare(Arc<Mutex<Option<BytesMut>>>);

/// Memory for so many bytes, and perhaps more behind them. It lies spare again when it is dropped, or when none of the bytes that it was made into is held.
#[derive(Debug)]
pub struct Room {
    memory: BytesMut,
    bytes: usize,
    spare: Spare,
}

impl Spare {
    /// Nothing uses this memory any more. The larger piece is kept of two.
    pub fn keep(&self, mut memory: BytesMut) {
        if !pages::may_be_taken(&mut memory) {
            return;
        }
        let mut kept = self.lock();
        let before = match &*kept {
            Some(kept) if kept.len() >= memory.len() => Some(memory),
            Some(_) | None => kept.replace(memory),
        };
        // To give memory back takes long.
        drop(kept);
        drop(before);
    }

    /// Memory for a whole state of so many bytes, with anything in it, to be filled from several sides and then [lent](Self::lent).
    #[must_use]
    pub fn whole(&self, bytes: usize) -> BytesMut {
        let spare = self.lock().take_if(|spare| spare.len() == bytes);
        spare.unwrap_or_else(|| zeros(bytes))
    }

    /// Room for so many bytes, with anything in it. All its pages are there: where they have to be found that takes longer than to copy as much.
    #[must_use]
    pub fn room(&self, bytes: usize) -> Room {
        let spare = self.lock().take_if(|spare| spare.len() >= bytes);
        let mut memory = spare.unwrap_or_else(|| zeros(bytes));
        pages::touch(&mut memory[..bytes]);
        let spare = self.clone();
        Room { memory, bytes, spare }
    }

    /// This memory, to be read. It lies spare once nothing of it is held.
    #[must_use]
    pub fn lent(&self, filled: BytesMut) -> Bytes {
        Bytes::from(Room {
            bytes: filled.len(),
            memory: filled,
            spare: self.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<BytesMut>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl AsMut<[u8]> for Room {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }
}

impl From<Room> for Bytes {
    fn from(room: Room) -> Self {
        Self::from_owner(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let (memory, spare) = (std::mem::take(&mut self.memory), std::mem::take(&mut self.spare));
        if memory.len() < pages::SMALL {
            return spare.keep(memory);
        }
        // It may take hundreds of milliseconds for a GiB, and others' steps may wait for this thread, or for a lock that it holds. Where no thread can be
        // had the memory is given back here: the closure is dropped with all it holds.
        let _ = thread::Builder::new()
            .name("give back".to_owned())
            .spawn(move || spare.keep(memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small: where the system can take no pages it is kept as well.
    const BYTES: usize = 3_000;

    /// Memory that is spare, and where it is.
    fn spare() -> (Spare, *const u8) {
        spare_of(BYTES)
    }

    fn spare_of(bytes: usize) -> (Spare, *const u8) {
        let (spare, memory) = (Spare::default(), zeros(bytes));
        let place = memory.as_ptr();
        spare.keep(memory);
        (spare, place)
    }

    fn place_of(spare: &Spare) -> Option<*const u8> {
        spare.lock().as_ref().map(|kept| kept.as_ptr())
    }

    #[test]
    fn a_state_is_put_where_the_last_one_was_if_it_is_as_long() {
        let (spare, place) = spare();
        for bytes in [0, BYTES - 1, BYTES + 1] {
            assert_eq!(spare.whole(bytes).len(), bytes);
        }
        let state = spare.whole(BYTES);
        assert_eq!((state.as_ptr(), state.len()), (place, BYTES));
        let another = spare.whole(BYTES);
        assert!(another.as_ptr() != place && another.len() == BYTES, "that is in use");
    }

    #[test]
    fn what_was_lent_is_spare_once_nothing_of_it_is_held() {
        let (spare, place) = spare();
        let lent = spare.lent(spare.whole(BYTES));
        assert_eq!((lent.as_ptr(), lent.len()), (place, BYTES));
        let part = lent.slice(1..3);
        drop(lent);
        assert_eq!(place_of(&spare), None, "a part of it is held");
        drop(part);
        assert_eq!(place_of(&spare), Some(place));
        assert_eq!(spare.whole(BYTES).len(), BYTES, "all of it");
    }

    #[test]
    fn room_for_less_is_found_there_and_comes_back_as_it_was() {
        let (spare, place) = spare();
        let mut room = spare.room(BYTES / 3);
        assert_eq!((room.as_ref().as_ptr(), room.as_ref().len()), (place, BYTES / 3));
        room.as_mut().fill(7);
        let bytes = Bytes::from(room);
        assert!(bytes.len() == BYTES / 3 && bytes.iter().all(|&byte| byte == 7));
        drop(bytes);
        assert_eq!(place_of(&spare), Some(place));
        let unused = spare.room(BYTES);
        drop(unused);
        assert_eq!(place_of(&spare), Some(place), "a copy that was not made");
        assert_eq!(spare.room(BYTES + 1).as_ref().len(), BYTES + 1, "there is less");
    }

    #[test]
    fn the_larger_piece_is_kept_of_two() {
        let (spare, place) = spare();
        spare.keep(zeros(BYTES - 1));
        assert_eq!(place_of(&spare), Some(place));
        let larger = zeros(BYTES + 1);
        let place = larger.as_ptr();
        spare.keep(larger);
        assert_eq!(place_of(&spare), Some(place));
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
    fn the_system_may_take_what_lies_spare_and_nothing_that_is_used() {
        const LARGE: usize = 64 << 20;
        let (spare, place) = spare_of(LARGE);
        // Pages that nothing was ever written to are not there.
        spare.room(LARGE).as_mut().fill(7);
        while place_of(&spare).is_none() {
            thread::yield_now();
        }
        // Its ends are mapped apart, since no large page fits there.
        let middle = place.addr() + LARGE / 2;
        assert!(may_be_taken(middle) > LARGE * 3 / 4, "all but the ends");
        let room = spare.room(LARGE / 2);
        assert_eq!(room.as_ref().as_ptr(), place);
        let left = may_be_taken(middle);
        assert!((LARGE / 4..=LARGE / 2).contains(&left), "{left}: the half that is not used");
    }
}
