//! Memory for a whole state, which is filled once and then only read.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "advice about memory is given by its address")
)]

use std::io;

use bytes::{Bytes, BytesMut};
use memmap2::MmapMut;

/// So much memory, cleared. In large pages where the system has them: to get it takes a third of the time then.
#[derive(Debug)]
pub(crate) struct Room(Option<MmapMut>);

impl Room {
    /// # Errors
    /// When there is not so much.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        if bytes == 0 {
            return Ok(Self(None));
        }
        let room = MmapMut::map_anon(bytes)?;
        #[cfg(target_os = "linux")]
        if let Err(error) = room.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "no large pages");
        }
        Ok(Self(Some(room)))
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }

    /// What was filled in.
    pub(crate) fn filled(self) -> Bytes {
        self.0.map_or_else(Bytes::new, Bytes::from_owner)
    }
}

/// So many zeros, to be filled from several sides, in large pages where the system has them.
#[must_use]
pub fn zeros(bytes: usize) -> BytesMut {
    let mut zeros = BytesMut::zeroed(bytes);
    #[cfg(target_os = "linux")]
    large_pages(&mut zeros);
    zeros
}

/// Room for so many bytes, to be filled from its beginning, in large pages where the system has them.
#[must_use]
pub fn empty(bytes: usize) -> Vec<u8> {
    let mut room = Vec::with_capacity(bytes);
    #[cfg(target_os = "linux")]
    large_pages(room.spare_capacity_mut());
    room
}

/// Asks for large pages. It concerns no page that has been touched.
#[cfg(target_os = "linux")]
fn large_pages<T>(memory: &mut [T]) {
    use rustix::mm::{Advice, madvise};

    /// What the system calls large, nearly everywhere.
    const LARGE: usize = 2 << 20;
    const { assert!(size_of::<T>() == 1, "what is counted below are bytes") };
    let begin = memory.as_ptr().align_offset(LARGE);
    let Some(whole) = memory.len().checked_sub(begin).map(|rest| rest - rest % LARGE) else {
        return;
    };
    let Some(memory) = memory.get_mut(begin..begin + whole).filter(|memory| !memory.is_empty()) else {
        return;
    };
    // SAFETY: the memory is this process's own, and the advice changes nothing that can be read in it.
    if let Err(error) = unsafe { madvise(memory.as_mut_ptr().cast(), memory.len(), Advice::LinuxHugepage) } {
        tracing::debug!(%error, "no large pages");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_zeros_whatever_their_number() {
        for length in [0, 1, 4_095, (2 << 20) - 1, 5 << 20, (9 << 20) + 17] {
            let zeros = zeros(length);
            assert!(zeros.len() == length && zeros.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn empty_room_is_filled_without_more() {
        for length in [0, 1, (2 << 20) - 1, (9 << 20) + 17] {
            let mut room = empty(length);
            let (begin, capacity) = (room.as_ptr(), room.capacity());
            room.resize(length, 7);
            assert!(room.iter().all(|&byte| byte == 7));
            assert_eq!((room.as_ptr(), room.capacity()), (begin, capacity));
        }
    }

    #[test]
    fn what_was_filled_in_is_there() {
        for length in [0, 1, 5 << 20] {
            let mut room = Room::new(length).unwrap();
            assert!(room.bytes().iter().all(|&byte| byte == 0) && room.bytes().len() == length);
            room.bytes().fill(7);
            let filled = room.filled();
            assert!(filled.iter().all(|&byte| byte == 7) && filled.len() == length);
        }
    }
}
