//! Memory for a whole state, which is filled once and then only read.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "advice about memory is given by its address")
)]

use bytes::BytesMut;

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

/// The same, with its pages there already: the system finds a page only when it is first written to, which takes longer than to copy into it.
pub(crate) fn touched(bytes: usize) -> Vec<u8> {
    /// No system has smaller ones.
    const PAGE: usize = 4_096;
    let mut room = empty(bytes);
    // One byte finds the page that it is in.
    for byte in room.spare_capacity_mut().iter_mut().step_by(PAGE) {
        byte.write(0);
    }
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
            for mut room in [empty(length), touched(length)] {
                assert!(room.is_empty());
                let (begin, capacity) = (room.as_ptr(), room.capacity());
                room.resize(length, 7);
                assert!(room.iter().all(|&byte| byte == 7));
                assert_eq!((room.as_ptr(), room.capacity()), (begin, capacity));
            }
        }
    }

    /// Pages that the system has found for this thread so far, without a disk (proc(5): the tenth field).
    #[cfg(target_os = "linux")]
    fn pages_found() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_pages_of_touched_room_are_there() {
        let mut room = touched((9 << 20) + 17);
        let before = pages_found();
        room.resize(room.capacity(), 7);
        assert!(pages_found() - before < 64, "its first two megabytes alone have 512");
    }
}
