//! The additions themselves. Knows where elements lie, not which tensor they belong to, nor in which order buffers
//! come.
//!
//! An addition is `running + shard`, once per element, rounded once; nothing is fused or reordered. A sum that is not a number
//! becomes the one canonical NaN, because which operand's NaN survives an addition is the processor's and compiler's choice,
//! and would otherwise tell one membership from another (BITS-1).

#[cfg(test)]
mod tests;

use std::ops::Range;

use sardana_protocol::state::Dtype;

use crate::layout::Layout;
use crate::limits::TILE_BYTES;
use crate::runs::Runs;
use crate::stores::{Destination, Next, PastCaches};

/// Adds `shard` to `running`: both hold the bytes `range` of a gradient laid out by `layout`, and `range` splits no element.
///
/// # Panics
/// When one of them is not as long as `range`, or `range` goes beyond the layout.
pub fn add(layout: &Layout, range: Range<usize>, running: &mut [u8], shard: impl Runs) {
    add_all(layout, range, running, &mut [shard]);
}

/// Adds `shards` to `running`, one after the other, and goes through the memory once.
///
/// # Panics
/// As [`add`].
pub fn add_all(layout: &Layout, range: Range<usize>, running: &mut [u8], shards: &mut [impl Runs]) {
    check(layout, &range, running.len(), shards);
    let mut read = 0;
    for (dtype, tile) in tiles(layout, range) {
        for shard in &mut *shards {
            shard.skip(tile.start - read);
            add_next(dtype, &mut running[tile.clone()], shard);
        }
        read = tile.end;
    }
}

/// Writes `terms[0] + terms[1] + …` to `out`, added in this order, and goes through the memory once. Where no elements lie, the first is
/// copied. So it is where there is no other: 0.0 + -0.0 would not be its own bits.
///
/// # Panics
/// As [`add`]; and when there are no terms.
pub fn sum_into(layout: &Layout, range: Range<usize>, out: &mut [u8], terms: &mut [impl Runs]) {
    sum_to(layout, range, &mut Destination::cached(out), terms);
}

/// The same, to where `out` goes.
///
/// # Panics
/// As [`sum_into`].
pub(crate) fn sum_to(layout: &Layout, range: Range<usize>, out: &mut Destination<'_>, terms: &mut [impl Runs]) {
    check(layout, &range, out.left(), terms);
    let (first, terms) = terms.split_first_mut().expect("a sum has a first term");
    let Some((second, rest)) = terms.split_first_mut() else {
        return out.put_next(out.left(), first);
    };
    let mut written = 0;
    for (dtype, tile) in tiles(layout, range) {
        let between = tile.start - written;
        written = tile.end;
        second.skip(between);
        out.put_next(between, first);
        for term in &mut *rest {
            term.skip(between);
        }
        sum_next(dtype, out.next(tile.len()), first, second, rest);
    }
    out.put_next(out.left(), first);
}

/// The next tile of a sum. Each term but the last is added within the nearest cache; past the caches goes what the last addition makes, by the loop that adds: so memory is read
/// while it is written.
fn sum_next(dtype: Dtype, out: Next<'_>, first: &mut impl Runs, second: &mut impl Runs, rest: &mut [impl Runs]) {
    match (out, rest.split_last_mut()) {
        (Next::Cached(out), _) => {
            add_next_two(dtype, out, first, second);
            for term in rest {
                add_next(dtype, out, term);
            }
        }
        (Next::PastCaches { to, .. }, None) => add_next_two_past_caches(dtype, to, first, second),
        (Next::PastCaches { to, tile }, Some((last, rest))) => {
            add_next_two(dtype, tile, first, second);
            for term in rest {
                add_next(dtype, tile, term);
            }
            add_next_two_past_caches(dtype, to, &mut &*tile, last);
        }
    }
}

/// The instructions that these loops use on this processor.
#[multiversion::multiversion(targets("x86_64+avx2"))]
#[must_use]
pub fn instructions() -> &'static str {
    multiversion::target::match_target! {
        "x86_64+avx2" => "AVX2",
        _ => "those that every processor of its kind has",
    }
}

/// Adds zeros to `running`, which is not the same as leaving it: -0.0 + 0.0 is 0.0, and a NaN becomes the one.
pub(crate) fn add_zeros(dtype: Dtype, running: &mut [u8]) {
    let zeros = [0; TILE_BYTES];
    for tile in running.chunks_mut(TILE_BYTES) {
        add_to(dtype, tile, &zeros[..tile.len()]);
    }
}

fn check(layout: &Layout, range: &Range<usize>, running: usize, shards: &[impl Runs]) {
    assert!(range.end <= layout.bytes(), "the range {range:?} lies within the gradient");
    assert_eq!(running, range.len(), "the running sum has the range's bytes");
    for shard in shards {
        assert_eq!(shard.left(), range.len(), "a shard has the range's bytes");
    }
}

/// The elements of `range` in tiles of one type, as places within `range`.
pub(crate) fn tiles(layout: &Layout, range: Range<usize>) -> impl Iterator<Item = (Dtype, Range<usize>)> {
    let start = range.start;
    layout.sections(range).flat_map(move |section| {
        let (from, to) = (section.bytes.start - start, section.bytes.end - start);
        (from..to)
            .step_by(TILE_BYTES)
            .map(move |tile| (section.dtype, tile..to.min(tile + TILE_BYTES)))
    })
}

/// `running + shard` in place, element by element, with what `shard` has next.
pub(crate) fn add_next(dtype: Dtype, running: &mut [u8], shard: &mut impl Runs) {
    let bytes = dtype.bytes();
    shard.each(running.len() / bytes, bytes, |at, run| {
        add_to(dtype, &mut running[at.start * bytes..at.end * bytes], run);
    });
}

/// `first + second`, element by element, with what they have next.
fn add_next_two(dtype: Dtype, out: &mut [u8], first: &mut impl Runs, second: &mut impl Runs) {
    each_two(dtype, out.len(), first, second, |at, first, second| {
        add_two(dtype, &mut out[at], first, second);
    });
}

/// The same, past the caches.
fn add_next_two_past_caches(dtype: Dtype, mut to: PastCaches<'_>, first: &mut impl Runs, second: &mut impl Runs) {
    each_two(dtype, to.bytes(), first, second, |at, first, second| {
        add_two_past_caches(dtype, to.part(at), first, second);
    });
}

/// Shows the next `length` bytes of both, run by run of as many, each with its place among them.
fn each_two(
    dtype: Dtype,
    length: usize,
    first: &mut impl Runs,
    second: &mut impl Runs,
    mut see: impl FnMut(Range<usize>, &[u8], &[u8]),
) {
    let bytes = dtype.bytes();
    first.each(length / bytes, bytes, |of_first, first| {
        second.each(of_first.len(), bytes, |at, second| {
            let in_first = at.start * bytes..at.end * bytes;
            let place = (of_first.start + at.start) * bytes..(of_first.start + at.end) * bytes;
            see(place, &first[in_first], second);
        });
    });
}

/// `running + shard` in place, element by element.
pub(crate) fn add_to(dtype: Dtype, running: &mut [u8], shard: &[u8]) {
    match dtype {
        Dtype::F32 => f32_kernels::add_to(running, shard),
        Dtype::F64 => f64_kernels::add_to(running, shard),
        Dtype::U64 => u64_kernels::add_to(running, shard),
    }
}

/// `first + second`, element by element.
fn add_two(dtype: Dtype, out: &mut [u8], first: &[u8], second: &[u8]) {
    match dtype {
        Dtype::F32 => f32_kernels::add_two(out, first, second),
        Dtype::F64 => f64_kernels::add_two(out, first, second),
        Dtype::U64 => u64_kernels::add_two(out, first, second),
    }
}

/// The same, past the caches.
fn add_two_past_caches(dtype: Dtype, to: PastCaches<'_>, first: &[u8], second: &[u8]) {
    match dtype {
        Dtype::F32 => f32_kernels::add_two_past_caches(to, first, second),
        Dtype::F64 => f64_kernels::add_two_past_caches(to, first, second),
        Dtype::U64 => u64_kernels::add_two_past_caches(to, first, second),
    }
}

/// The loops over elements of one type. Each is compiled several times, and the processor decides which one runs: they differ in how many elements
/// an instruction takes, and not in what becomes of an element.
macro_rules! kernels {
    ($name:ident, $bytes:literal, $add:expr) => {
        mod $name {
            use multiversion::multiversion;

            use crate::stores::{LINE_BYTES, Line, PastCaches};

            #[multiversion(targets("x86_64+avx2"))]
            pub(super) fn add_to(running: &mut [u8], shard: &[u8]) {
                add_each_to(running, shard);
            }

            #[multiversion(targets("x86_64+avx2"))]
            pub(super) fn add_two(out: &mut [u8], first: &[u8], second: &[u8]) {
                add_each(out, first, second);
            }

            #[multiversion(targets("x86_64+avx2"))]
            pub(super) fn add_two_past_caches(to: PastCaches<'_>, first: &[u8], second: &[u8]) {
                add_each_past_caches(to, first, second);
            }

            #[inline(always)]
            pub(super) fn add_each_to(running: &mut [u8], shard: &[u8]) {
                let (running, _) = running.as_chunks_mut::<$bytes>();
                let (shard, _) = shard.as_chunks::<$bytes>();
                for (running, shard) in running.iter_mut().zip(shard) {
                    *running = $add(*running, *shard);
                }
            }

            #[inline(always)]
            pub(super) fn add_each_past_caches(to: PastCaches<'_>, first: &[u8], second: &[u8]) {
                let (before, lines, behind) = to.lines::<$bytes>();
                let (first_before, first) = first.split_at(before.len());
                let (second_before, second) = second.split_at(before.len());
                add_each(before, first_before, second_before);
                let (first_lines, first_behind) = first.as_chunks::<LINE_BYTES>();
                let (second_lines, second_behind) = second.as_chunks::<LINE_BYTES>();
                for ((line, first), second) in lines.zip(first_lines).zip(second_lines) {
                    let mut sum = Line([0; LINE_BYTES]);
                    add_each(&mut sum.0, first, second);
                    line.store(&sum);
                }
                add_each(behind, first_behind, second_behind);
            }

            #[inline(always)]
            pub(super) fn add_each(out: &mut [u8], first: &[u8], second: &[u8]) {
                let (out, _) = out.as_chunks_mut::<$bytes>();
                let (first, _) = first.as_chunks::<$bytes>();
                let (second, _) = second.as_chunks::<$bytes>();
                for ((out, first), second) in out.iter_mut().zip(first).zip(second) {
                    *out = $add(*first, *second);
                }
            }
        }
    };
}

kernels!(f32_kernels, 4, super::f32_bytes);
kernels!(f64_kernels, 8, super::f64_bytes);
kernels!(u64_kernels, 8, super::u64_bytes);

#[inline(always)]
fn f32_bytes(running: [u8; 4], shard: [u8; 4]) -> [u8; 4] {
    add_f32(f32::from_le_bytes(running), f32::from_le_bytes(shard)).to_le_bytes()
}

#[inline(always)]
fn f64_bytes(running: [u8; 8], shard: [u8; 8]) -> [u8; 8] {
    add_f64(f64::from_le_bytes(running), f64::from_le_bytes(shard)).to_le_bytes()
}

#[inline(always)]
fn u64_bytes(running: [u8; 8], shard: [u8; 8]) -> [u8; 8] {
    u64::from_le_bytes(running)
        .wrapping_add(u64::from_le_bytes(shard))
        .to_le_bytes()
}

/// `running + shard`, with one NaN.
#[inline(always)]
pub(crate) fn add_f32(running: f32, shard: f32) -> f32 {
    let sum = running + shard;
    if sum.is_nan() { f32::NAN } else { sum }
}

/// `running + shard`, with one NaN.
#[inline(always)]
pub(crate) fn add_f64(running: f64, shard: f64) -> f64 {
    let sum = running + shard;
    if sum.is_nan() { f64::NAN } else { sum }
}
