//! The system's pages of some memory: what it is advised of them. Knows no states.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "advice about memory is given by its address")
)]

use bytes::BytesMut;

/// What the system calls a large page, nearly everywhere.
#[cfg(target_os = "linux")]
const LARGE: usize = 2 << 20;

/// Memory of fewer bytes need not have a whole large page in it. It costs little, whatever becomes of it.
pub(super) const LARGE_BYTES: usize = 4 << 20;

/// So many zeros, to be filled from several sides, in large pages where the system has them.
#[must_use]
pub fn zeros(bytes: usize) -> BytesMut {
    let mut zeros = BytesMut::zeroed(bytes);
    large(&mut zeros);
    zeros
}

/// Asks for large pages. It concerns no page that has been touched.
#[cfg(target_os = "linux")]
fn large(memory: &mut [u8]) {
    if let Some(Err(error)) = advise(memory, rustix::mm::Advice::LinuxHugepage) {
        tracing::debug!(%error, "no large pages");
    }
}

/// Nothing, on this system.
#[cfg(not(target_os = "linux"))]
fn large(_: &mut [u8]) {}

/// Leaves this memory's pages to the system, which takes them when it lacks memory. What is in it is anything from then on, until it is written to: each page
/// that is stays. False if the system cannot do that. (`MADV_FREE`, in madvise(2).)
#[cfg(target_os = "linux")]
pub(super) fn leave(memory: &mut [u8]) -> bool {
    let advised = advise(memory, rustix::mm::Advice::LinuxFree).unwrap_or(Ok(()));
    advised
        .inspect_err(|error| tracing::debug!(%error, "no pages can be left to the system"))
        .is_ok()
}

/// False: this system cannot.
#[cfg(not(target_os = "linux"))]
pub(super) fn leave(_: &mut [u8]) -> bool {
    false
}

/// Each page of it is there from now on.
pub(super) fn touch(memory: &mut [u8]) {
    /// No system has smaller ones.
    const PAGE: usize = 4_096;
    // One byte finds the page that it is in.
    for byte in memory.iter_mut().step_by(PAGE) {
        *byte = 0;
    }
}

/// Gives advice about the large pages that lie in this memory, if there are any.
#[cfg(target_os = "linux")]
fn advise(memory: &mut [u8], advice: rustix::mm::Advice) -> Option<rustix::io::Result<()>> {
    let begin = memory.as_ptr().align_offset(LARGE);
    let whole = memory.len().checked_sub(begin).map(|rest| rest - rest % LARGE)?;
    let memory = memory.get_mut(begin..begin + whole).filter(|memory| !memory.is_empty())?;
    // SAFETY: the memory is this process's own and borrowed for writing. Either advice leaves it readable and writable. What it reads as may change after
    // `LinuxFree` until it is written to, which is why that is said of `leave`; any byte is one that this type may have.
    Some(unsafe { rustix::mm::madvise(memory.as_mut_ptr().cast(), memory.len(), advice) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that the system has found for this thread so far, without a disk (proc(5): the tenth field).
    #[cfg(target_os = "linux")]
    fn found() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn zeros_are_zeros_whatever_their_number() {
        for length in [0, 1, 4_095, (2 << 20) - 1, 5 << 20, (9 << 20) + 17] {
            let zeros = zeros(length);
            assert!(zeros.len() == length && zeros.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_pages_of_what_was_touched_are_there() {
        let mut memory = zeros((9 << 20) + 17);
        touch(&mut memory);
        let before = found();
        memory.fill(7);
        assert!(found() - before < 64, "its first two megabytes alone have 512");
    }

    #[test]
    fn what_was_left_can_be_written_to_again() {
        for length in [0, 1, LARGE_BYTES - 1, LARGE_BYTES, (9 << 20) + 17] {
            let mut memory = zeros(length);
            memory.fill(7);
            leave(&mut memory);
            memory.fill(9);
            assert!(memory.iter().all(|&byte| byte == 9));
        }
    }
}
