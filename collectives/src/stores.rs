//! How bytes are stored that are written once, front to back: in this processor's caches, or past them in memory. Knows not what they mean.
//!
//! A plain store reads the line that it writes into a cache first, and pushes another line out. Where so much is written that nothing of it is still there when it
//! is read, a copy by stores past the caches moves a third fewer bytes ("non-temporal": Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, 10.4.6.2).
//! The bytes are the same.

#![expect(
    unsafe_code,
    reason = "stores past the caches go by address, and are not ordered before what other threads are told"
)]

use std::fs;
use std::ops::Range;
use std::sync::LazyLock;

use crate::limits::{CACHE_PART, TILE_BYTES, TYPICAL_CACHE_BYTES};
use crate::runs::Runs;

/// Which way bytes go into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// By way of the caches.
    Cached,
    /// Past them.
    PastCaches,
}

/// Memory that is written front to back.
pub(crate) struct Destination<'a> {
    left: &'a mut [u8],
    stores: Stores,
    /// Where what goes past the caches is made, if it takes several passes.
    tile: Tile,
}

#[repr(align(64))]
struct Tile([u8; TILE_BYTES]);

/// Where the next bytes go that are made of others.
pub(crate) enum Next<'a> {
    /// Here, where they may be made in any number of passes.
    Cached(&'a mut [u8]),
    /// There, in one pass. What that needs is made in `tile`, which is as long.
    PastCaches { to: PastCaches<'a>, tile: &'a mut [u8] },
}

/// Memory that is written front to back past the caches, once. It is read after the [`Stores::write`] that it is of.
pub(crate) struct PastCaches<'a>(&'a mut [u8]);

/// A line of it.
pub(crate) struct LinePastCaches<'a>(&'a mut [u8; LINE_BYTES]);

/// What goes into a line.
#[repr(align(64))]
pub(crate) struct Line(pub(crate) [u8; LINE_BYTES]);

/// As many bytes as a cache has in a line, from a multiple of that on: so many leave the processor together.
pub(crate) const LINE_BYTES: usize = 64;

/// At its end all that was stored past the caches can be seen by whatever is told of it.
struct Fence(Stores);

impl Stores {
    /// For so many bytes, most of which are not read soon after they are written, such as a gradient's, a sum's, or a state's.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        static LEAST: LazyLock<usize> = LazyLock::new(|| last_cache_bytes().unwrap_or(TYPICAL_CACHE_BYTES) / CACHE_PART);
        if CAN_PASS && bytes >= *LEAST {
            Self::PastCaches
        } else {
            Self::Cached
        }
    }

    /// Copies `from` to `to`, which is as long.
    ///
    /// # Panics
    /// When it is not.
    pub fn copy(self, to: &mut [u8], from: &[u8]) {
        assert_eq!(to.len(), from.len(), "what is copied has its place");
        if self == Self::Cached {
            return to.copy_from_slice(from);
        }
        self.write(to, |to| to.put(from));
    }

    /// Copies to `to` what `from` has next: as many bytes.
    ///
    /// # Panics
    /// When it has fewer.
    pub fn copy_next(self, to: &mut [u8], from: &mut impl Runs) {
        self.write(to, |to| to.put_next(to.left(), from));
    }

    /// Lets `write` write `memory`.
    pub(crate) fn write(self, memory: &mut [u8], write: impl FnOnce(&mut Destination<'_>)) {
        // Dropped after the destination, also by a panic: nothing reads the memory before what was written can be seen.
        let _fence = Fence(self);
        write(&mut Destination {
            stores: self,
            ..Destination::cached(memory)
        });
    }
}

impl<'a> Destination<'a> {
    pub(crate) const fn cached(memory: &'a mut [u8]) -> Self {
        Self {
            left: memory,
            stores: Stores::Cached,
            tile: Tile([0; TILE_BYTES]),
        }
    }

    /// Bytes that are not written yet.
    pub(crate) const fn left(&self) -> usize {
        self.left.len()
    }

    /// Where the next `bytes` bytes go: all of them are to be made. What is found there is anything.
    ///
    /// # Panics
    /// When fewer are left, or they are more than a tile.
    pub(crate) fn next(&mut self, bytes: usize) -> Next<'_> {
        assert!(bytes <= TILE_BYTES, "{bytes} bytes are made at once");
        let place = take(&mut self.left, bytes);
        match self.stores {
            Stores::Cached => Next::Cached(place),
            Stores::PastCaches => Next::PastCaches {
                to: PastCaches(place),
                tile: &mut self.tile.0[..bytes],
            },
        }
    }

    /// Writes what `from` has next: so many bytes.
    ///
    /// # Panics
    /// When fewer are left, or it has fewer.
    pub(crate) fn put_next(&mut self, bytes: usize, from: &mut impl Runs) {
        from.each(bytes, 1, |_, run| self.put(run));
    }

    /// Writes the next ones.
    ///
    /// # Panics
    /// When fewer are left.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let place = take(&mut self.left, bytes.len());
        match self.stores {
            Stores::Cached => place.copy_from_slice(bytes),
            Stores::PastCaches => store(place, bytes),
        }
    }
}

impl<'a> PastCaches<'a> {
    pub(crate) const fn bytes(&self) -> usize {
        self.0.len()
    }

    /// A part of it.
    ///
    /// # Panics
    /// When it has fewer bytes.
    pub(crate) fn part(&mut self, range: Range<usize>) -> PastCaches<'_> {
        PastCaches(&mut self.0[range])
    }

    /// Its lines, and what lies before the first and behind the last of them, which is written as any memory. No element of `BYTES` bytes is divided: where one lies in two lines,
    /// all lies before the first.
    #[inline(always)]
    pub(crate) fn lines<const BYTES: usize>(self) -> (&'a mut [u8], impl Iterator<Item = LinePastCaches<'a>>, &'a mut [u8]) {
        let before = self.0.as_ptr().align_offset(LINE_BYTES).min(self.0.len());
        let before = if before.is_multiple_of(BYTES) { before } else { self.0.len() };
        let (before, from_line) = self.0.split_at_mut(before);
        let (lines, behind) = from_line.as_chunks_mut();
        (before, lines.iter_mut().map(LinePastCaches), behind)
    }
}

impl LinePastCaches<'_> {
    #[inline(always)]
    pub(crate) fn store(self, line: &Line) {
        // SAFETY: it is this reference's alone, and a line, as `lines` has made it; and it lies in what a `Stores::write` has for itself until its `Fence` is dropped.
        unsafe { store_line_past_caches(self.0, &line.0) };
    }
}

fn take<'a>(left: &mut &'a mut [u8], bytes: usize) -> &'a mut [u8] {
    let (taken, rest) = std::mem::take(left).split_at_mut(bytes);
    *left = rest;
    taken
}

impl Drop for Fence {
    fn drop(&mut self) {
        if self.0 == Stores::PastCaches {
            fence();
        }
    }
}

/// Bytes of the largest cache that the first processor has or shares, if the system tells.
fn last_cache_bytes() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = caches.filter_map(|cache| fs::read_to_string(cache.ok()?.path().join("size")).ok());
    sizes.filter_map(|size| bytes_of(&size)).max()
}

/// Such as `32768K`.
fn bytes_of(size: &str) -> Option<usize> {
    let size = size.trim();
    let (number, unit) = match size.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => match size.strip_suffix('M') {
            Some(number) => (number, 1 << 20),
            None => (size, 1),
        },
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

/// Whether there are stores past the caches here. Elsewhere `PastCaches` stores as `Cached` does.
const CAN_PASS: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Copies `from` to `to`, which is as long, and lies in what [`Stores::write`] has for itself until its [`Fence`] is dropped.
fn store(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "what is stored has its place");
    // SAFETY: it is this reference's alone, and as long.
    unsafe { store_past_caches(to.as_mut_ptr(), from) };
}

/// # Safety
/// As many bytes as `from` has must lie at `to`, and belong to the caller, until [`fence`] was called.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn store_past_caches(to: *mut u8, from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_stream_si128};
    const WORD: usize = size_of::<__m128i>();
    let (head, from) = from.split_at(to.align_offset(WORD).min(from.len()));
    let (words, tail) = from.as_chunks::<WORD>();
    // SAFETY: the head lies within those bytes.
    unsafe { to.copy_from_nonoverlapping(head.as_ptr(), head.len()) };
    // SAFETY: the same.
    let at = unsafe { to.add(head.len()) };
    for (number, word) in words.iter().enumerate() {
        let word = bytemuck::cast::<[u8; WORD], __m128i>(*word);
        // SAFETY: the place lies within those bytes.
        let place = unsafe { at.cast::<__m128i>().add(number) };
        // SAFETY: every x86-64 processor has the instruction. If there are words the place is aligned.
        unsafe { _mm_stream_si128(place, word) };
    }
    // SAFETY: what is behind the words lies within those bytes.
    let behind = unsafe { at.add(size_of_val(words)) };
    // SAFETY: the same.
    unsafe { behind.copy_from_nonoverlapping(tail.as_ptr(), tail.len()) };
}

/// # Safety
/// `to` must begin at a line, and belong to the caller until [`fence`] was called.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn store_line_past_caches(to: &mut [u8; LINE_BYTES], line: &[u8; LINE_BYTES]) {
    use std::arch::x86_64::{__m128i, _mm_stream_si128};
    const WORD: usize = size_of::<__m128i>();
    let (words, _) = line.as_chunks::<WORD>();
    let (places, _) = to.as_chunks_mut::<WORD>();
    for (place, word) in places.iter_mut().zip(words) {
        let word = bytemuck::cast::<[u8; WORD], __m128i>(*word);
        // SAFETY: every x86-64 processor has the instruction. The place is aligned, as it lies in a line.
        unsafe { _mm_stream_si128(place.as_mut_ptr().cast(), word) };
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
unsafe fn store_line_past_caches(to: &mut [u8; LINE_BYTES], line: &[u8; LINE_BYTES]) {
    *to = *line;
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn fence() {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// # Safety
/// As many bytes as `from` has must lie at `to`, and belong to the caller.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn store_past_caches(to: *mut u8, from: &[u8]) {
    // SAFETY: the same.
    unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
const fn fence() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_either_way_at_any_place() {
        let from: Vec<u8> = (0..10_000).map(|at: u32| (at % 251) as u8).collect();
        for stores in [Stores::Cached, Stores::PastCaches] {
            for start in [0, 1, 15, 16, 17, 63, 64] {
                for bytes in [0, 1, 15, 16, 31, 64, 4_097, 9_000] {
                    let mut memory = vec![0xaa; 10_000];
                    stores.copy(&mut memory[start..start + bytes], &from[start..start + bytes]);
                    let is_whole = memory.iter().enumerate().all(|(at, &byte)| {
                        let expected = if (start..start + bytes).contains(&at) {
                            from[at]
                        } else {
                            0xaa
                        };
                        byte == expected
                    });
                    assert!(is_whole, "{bytes} bytes at {start}, {stores:?}");
                    let mut next = vec![0; bytes];
                    stores.copy_next(&mut next, &mut &from[start..]);
                    assert!(next == from[start..start + bytes], "{stores:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_made_and_what_is_put_come_one_after_the_other() {
        fn make(next: Next<'_>, byte: u8) {
            match next {
                Next::Cached(place) => place.fill(byte),
                Next::PastCaches { to, tile } => {
                    assert_eq!(to.bytes(), tile.len());
                    let (before, lines, behind) = to.lines::<1>();
                    before.fill(byte);
                    lines.for_each(|line| line.store(&Line([byte; LINE_BYTES])));
                    behind.fill(byte);
                }
            }
        }
        for stores in [Stores::Cached, Stores::PastCaches] {
            let mut memory = vec![0; 3 * TILE_BYTES];
            stores.write(&mut memory, |to| {
                make(to.next(TILE_BYTES), 1);
                to.put(&[2; 100]);
                make(to.next(7), 3);
                assert_eq!(to.left(), 2 * TILE_BYTES - 107);
            });
            let expected = [vec![1; TILE_BYTES], vec![2; 100], vec![3; 7], vec![0; 2 * TILE_BYTES - 107]].concat();
            assert!(memory == expected, "{stores:?}");
        }
    }

    #[test]
    fn only_what_outgrows_the_caches_goes_past_them() {
        assert_eq!(Stores::of(1 << 10), Stores::Cached);
        let expected = if CAN_PASS { Stores::PastCaches } else { Stores::Cached };
        assert_eq!(Stores::of(1 << 40), expected);
    }

    #[test]
    fn sizes_of_caches_are_read_as_the_system_writes_them() {
        assert_eq!(bytes_of("32768K\n"), Some(32 << 20));
        assert_eq!(bytes_of("16M"), Some(16 << 20));
        assert_eq!(bytes_of("512"), Some(512));
        for strange in ["", "K", "a lot", "99999999999999999999K", "18446744073709551615M"] {
            assert_eq!(bytes_of(strange), None, "{strange}");
        }
    }
}
