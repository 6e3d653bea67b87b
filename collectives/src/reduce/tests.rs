//! Sums by every loop and to every place, against one element after the other.

use sardana_protocol::state::TensorSpec;

use super::*;
use crate::stores::{LINE_BYTES, Stores};

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
    add(&layout, 0..layout.bytes(), &mut running, &shard[..]);
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

/// Any bits: numbers of all magnitudes, infinities, NaNs.
fn any_bits(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// The loops of one kind of instructions.
struct Loops {
    name: &'static str,
    add_to: fn(&mut [u8], &[u8]),
    add_two: fn(&mut [u8], &[u8], &[u8]),
    add_two_past_caches: fn(PastCaches<'_>, &[u8], &[u8]),
}

/// Those that this processor chooses, and those of one that has nothing to choose from.
fn loops(dtype: Dtype) -> [Loops; 2] {
    macro_rules! of {
        ($kernels:ident) => {{
            use $kernels::{add_each, add_each_past_caches, add_each_to, add_to, add_two, add_two_past_caches};
            let chosen = Loops {
                name: "chosen",
                add_to,
                add_two,
                add_two_past_caches,
            };
            // Compiled for any processor, as this test is.
            let portable = Loops {
                name: "portable",
                add_to: add_each_to,
                add_two: add_each,
                add_two_past_caches: add_each_past_caches,
            };
            [chosen, portable]
        }};
    }
    match dtype {
        Dtype::F32 => of!(f32_kernels),
        Dtype::F64 => of!(f64_kernels),
        Dtype::U64 => of!(u64_kernels),
    }
}

#[test]
fn whatever_the_processor_chooses_gives_the_bits_of_one_element_after_the_other() {
    fn one_by_one<const BYTES: usize>(
        first: &[u8],
        second: &[u8],
        add: fn([u8; BYTES], [u8; BYTES]) -> [u8; BYTES],
    ) -> Vec<u8> {
        let elements = first.as_chunks().0.iter().zip(second.as_chunks().0);
        elements
            .flat_map(|(first, second)| add(*std::hint::black_box(first), *second))
            .collect()
    }
    for elements in [0, 1, 7, 8, 31, 1_000, 4_097] {
        let all = [Dtype::F32, Dtype::F64, Dtype::U64].into_iter();
        for (dtype, loops) in all.flat_map(|dtype| loops(dtype).map(|loops| (dtype, loops))) {
            let bytes = elements * dtype.bytes();
            let what = format!("{elements} of {dtype}, {}", loops.name);
            let (mut first, second) = (any_bits(bytes, 3), any_bits(bytes, 4));
            // NaNs are rare among them.
            first.iter_mut().skip(3).step_by(41).for_each(|byte| *byte = 0x7f);
            let expected = match dtype {
                Dtype::F32 => one_by_one(&first, &second, f32_bytes),
                Dtype::F64 => one_by_one(&first, &second, f64_bytes),
                Dtype::U64 => one_by_one(&first, &second, u64_bytes),
            };
            let mut out = vec![0; bytes];
            (loops.add_two)(&mut out, &first, &second);
            assert!(out == expected, "{what}");
            for start in [0, 4, 8, 36, 60, 64] {
                let mut memory = vec![0xaa; bytes + 4 * LINE_BYTES];
                let place = memory.as_ptr().align_offset(LINE_BYTES) + LINE_BYTES + start;
                Stores::PastCaches.write(&mut memory[place..place + bytes], |out| {
                    for tile in (0..bytes).step_by(TILE_BYTES) {
                        let tile = tile..bytes.min(tile + TILE_BYTES);
                        let Next::PastCaches { to, .. } = out.next(tile.len()) else {
                            panic!("past the caches was asked for");
                        };
                        (loops.add_two_past_caches)(to, &first[tile.clone()], &second[tile]);
                    }
                });
                assert!(memory[place..place + bytes] == expected, "{what} at {start}");
                assert_eq!((memory[place - 1], memory[place + bytes]), (0xaa, 0xaa));
            }
            (loops.add_to)(&mut first, &second);
            assert!(first == expected, "{what}");
        }
    }
}

#[test]
fn many_terms_in_one_pass_are_one_after_the_other() {
    let tensors = vec![
        TensorSpec::new("a", Dtype::F32, &[9_001]),
        TensorSpec::new("b", Dtype::F64, &[3_001]),
    ];
    let layout = Layout::new(tensors, 2).unwrap();
    let term = |number: usize| -> Vec<u8> {
        let values = (0..layout.bytes() / 4).map(|at| ((at * 7 + number * 13) % 101) as f32 * 1.1_f32.powi(number as i32));
        values.flat_map(f32::to_le_bytes).collect()
    };
    let terms: Vec<Vec<u8>> = (0..5).map(term).collect();
    for range in [0..layout.bytes(), 64..layout.bytes() - 8, 36_000..36_064] {
        for count in 1..=terms.len() {
            let cut: Vec<&[u8]> = terms[..count].iter().map(|term| &term[range.clone()]).collect();
            let mut expected = cut[0].to_vec();
            cut[1..]
                .iter()
                .for_each(|term| add(&layout, range.clone(), &mut expected, *term));
            let mut together = vec![0xaa; range.len()];
            sum_into(&layout, range.clone(), &mut together, &mut cut.clone());
            assert_eq!(together, expected, "{count} terms of {range:?}");
            let mut past_caches = vec![0xaa; range.len()];
            Stores::PastCaches.write(&mut past_caches, |out| {
                sum_to(&layout, range.clone(), out, &mut cut.clone());
            });
            assert_eq!(past_caches, expected, "{count} terms of {range:?}");
            let mut added = cut[0].to_vec();
            add_all(&layout, range.clone(), &mut added, &mut cut[1..].to_vec());
            assert_eq!(added, expected);
        }
    }
    // A sum of one term has its own bits.
    let negative = (-0.0_f32).to_le_bytes();
    let mut alone = [9; 4];
    sum_into(&layout, 0..4, &mut alone, &mut [&negative[..]]);
    assert_eq!(alone, negative);
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
