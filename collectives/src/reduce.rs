//! The additions themselves. Knows where elements lie, not which tensor they belong to, nor in which order buffers
//! come.
//!
//! An addition is `running + shard`, once per element, rounded once; nothing is fused or reordered. A sum that is not a number
//! becomes the one canonical NaN, because which operand's NaN survives an addition is the processor's and compiler's choice,
//! and would otherwise tell one membership from another (BITS-1).

use std::ops::Range;

use sardana_protocol::state::Dtype;

use crate::layout::Layout;

/// Adds `shard` to `running`: both hold the bytes `range` of a gradient laid out by `layout`, and `range` splits no element.
///
/// # Panics
/// When a slice is not as long as `range`, or `range` goes beyond the layout.
pub fn add(layout: &Layout, range: Range<usize>, running: &mut [u8], shard: &[u8]) {
    assert!(range.end <= layout.bytes(), "the range {range:?} lies within the gradient");
    assert_eq!(running.len(), range.len(), "the running sum has the range's bytes");
    assert_eq!(shard.len(), range.len(), "the shard has the range's bytes");
    let start = range.start;
    for section in layout.sections(range) {
        let at = section.bytes.start - start..section.bytes.end - start;
        let (running, shard) = (&mut running[at.clone()], &shard[at]);
        match section.dtype {
            Dtype::F32 => each(running, shard, |a, b| {
                add_f32(f32::from_le_bytes(a), f32::from_le_bytes(b)).to_le_bytes()
            }),
            Dtype::F64 => each(running, shard, |a, b| {
                add_f64(f64::from_le_bytes(a), f64::from_le_bytes(b)).to_le_bytes()
            }),
            Dtype::U64 => each(running, shard, |a, b| {
                u64::from_le_bytes(a).wrapping_add(u64::from_le_bytes(b)).to_le_bytes()
            }),
        }
    }
}

#[inline]
fn each<const BYTES: usize>(running: &mut [u8], shard: &[u8], sum: impl Fn([u8; BYTES], [u8; BYTES]) -> [u8; BYTES]) {
    let (running, _) = running.as_chunks_mut::<BYTES>();
    let (shard, _) = shard.as_chunks::<BYTES>();
    for (running, shard) in running.iter_mut().zip(shard) {
        *running = sum(*running, *shard);
    }
}

/// `running + shard`, with one NaN.
#[inline]
pub(crate) fn add_f32(running: f32, shard: f32) -> f32 {
    let sum = running + shard;
    if sum.is_nan() { f32::NAN } else { sum }
}

/// `running + shard`, with one NaN.
#[inline]
pub(crate) fn add_f64(running: f64, shard: f64) -> f64 {
    let sum = running + shard;
    if sum.is_nan() { f64::NAN } else { sum }
}

#[cfg(test)]
mod tests {
    use sardana_protocol::state::TensorSpec;

    use super::*;

    fn layout() -> Layout {
        let tensors = vec![TensorSpec::new("a", Dtype::F32, &[2]), TensorSpec::new("b", Dtype::F64, &[1])];
        Layout::new(tensors, 1).unwrap()
    }

    fn bytes(a: [f32; 2], b: f64, auxiliary: f64, samples: u64, between: u8) -> Vec<u8> {
        let mut bytes: Vec<u8> = a.iter().flat_map(|value| value.to_le_bytes()).collect();
        bytes.resize(64, between);
        bytes.extend(b.to_le_bytes());
        bytes.resize(128, between);
        bytes.extend(auxiliary.to_le_bytes());
        bytes.extend(samples.to_le_bytes());
        bytes
    }

    #[test]
    fn each_dtype_is_added_as_itself_and_the_zeros_between_stay() {
        let layout = layout();
        let mut running = bytes([1.5, -0.0], 1e300, 0.25, u64::MAX, 0);
        let shard = bytes([2.0, 0.0], 1e284, 0.5, 3, 9);
        add(&layout, 0..layout.bytes(), &mut running, &shard);
        assert_eq!(running, bytes([3.5, 0.0], 1e300 + 1e284, 0.75, 2, 0));
    }

    #[test]
    fn a_range_adds_only_what_lies_in_it() {
        let layout = layout();
        let mut running = bytes([1.0, 1.0], 1.0, 1.0, 1, 0);
        let shard = bytes([1.0, 1.0], 1.0, 1.0, 1, 0);
        add(&layout, 4..72, &mut running[4..72], &shard[4..72]);
        assert_eq!(running, bytes([1.0, 2.0], 2.0, 1.0, 1, 0));
    }

    #[test]
    fn every_nan_becomes_the_same() {
        let strange = f32::from_bits(0xffc0_1234);
        assert!(strange.is_nan());
        for sum in [
            add_f32(strange, 1.0),
            add_f32(f32::NAN, strange),
            add_f32(f32::INFINITY, f32::NEG_INFINITY),
        ] {
            assert_eq!(sum.to_bits(), f32::NAN.to_bits());
        }
        assert_eq!(add_f64(-f64::NAN, 1.0).to_bits(), f64::NAN.to_bits());
    }
}
