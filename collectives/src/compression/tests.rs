//! Conversions against the `half` crate, number after number, and parts of gradients against plain loops.

use half::{bf16, f16};
use sardana_protocol::state::{Dtype, TensorSpec};

use super::*;
use crate::layout::Layout;
use crate::reduce;

const HALVES: [Half; 2] = [Half::Bf16, Half::F16];

/// One number rounded, and its bits, by other code.
fn rounded(half: Half, value: f32) -> u16 {
    match half {
        _ if value.is_nan() => of_nan(half),
        Half::Bf16 => bf16::from_f32_const(value).to_bits(),
        Half::F16 => f16::from_f32_const(value).to_bits(),
    }
}

const fn of_nan(half: Half) -> u16 {
    match half {
        Half::Bf16 => bf16::NAN.to_bits(),
        Half::F16 => f16::NAN.to_bits(),
    }
}

fn wide(half: Half, bits: u16) -> f32 {
    let value = match half {
        Half::Bf16 => bf16::from_bits(bits).to_f32_const(),
        Half::F16 => f16::from_bits(bits).to_f32_const(),
    };
    if value.is_nan() { f32::NAN } else { value }
}

fn narrowed(half: Half, values: &[f32]) -> Vec<u16> {
    let mut out = vec![0xaa; values.len() * 2];
    half.narrow(bytemuck::cast_slice(values), &mut out);
    // Compiled for any processor, as this test is: the loop of one that has nothing to choose from.
    let mut portable = vec![0x55; out.len()];
    match half {
        Half::Bf16 => kernels::narrow_each_bf16(bytemuck::cast_slice(values), &mut portable),
        Half::F16 => kernels::narrow_each_f16(bytemuck::cast_slice(values), &mut portable),
    }
    assert!(out == portable, "{half:?}: {} numbers", values.len());
    out.as_chunks().0.iter().copied().map(u16::from_le_bytes).collect()
}

fn widened(half: Half, halves: &[u16]) -> Vec<f32> {
    let bytes: Vec<u8> = halves.iter().copied().flat_map(u16::to_le_bytes).collect();
    let mut out = vec![0xaa; halves.len() * 4];
    half.widen(&bytes, &mut out);
    let mut portable = vec![0x55; out.len()];
    match half {
        Half::Bf16 => kernels::widen_each_bf16(&bytes, &mut portable),
        Half::F16 => kernels::widen_each_f16(&bytes, &mut portable),
    }
    assert!(out == portable, "{half:?}: {} halves", halves.len());
    out.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Every length up to a few registers, so that loops and what is left of them are met.
fn lengths() -> impl Iterator<Item = usize> {
    (0..70).chain([1_000, 1_023, 4_097])
}

#[test]
fn every_half_is_widened_to_its_number_and_comes_back() {
    for half in HALVES {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let expected: Vec<f32> = all.iter().map(|&bits| wide(half, bits)).collect();
        let found = widened(half, &all);
        assert_eq!(bits(&found), bits(&expected), "{half:?}");
        let back: Vec<u16> = all
            .iter()
            .zip(&expected)
            .map(|(&bits, value)| if value.is_nan() { of_nan(half) } else { bits })
            .collect();
        assert_eq!(narrowed(half, &found), back, "{half:?}");
        let mut same = found.clone();
        half.round(bytemuck::cast_slice_mut(&mut same));
        assert_eq!(bits(&same), bits(&found), "what is a half is not rounded");
    }
}

#[test]
fn between_any_two_halves_the_nearest_is_taken_and_in_the_middle_the_even_one() {
    for half in HALVES {
        let infinity = rounded(half, f32::INFINITY);
        let mut cases: Vec<(f32, u16)> = Vec::new();
        for low in 0..infinity {
            let high = low + 1;
            // What would come after the largest number, were there one.
            let above = if high == infinity {
                2.0 * f64::from(wide(half, low)) - f64::from(wide(half, low - 1))
            } else {
                f64::from(wide(half, high))
            };
            let middle = (f64::from(wide(half, low)) + above) / 2.0;
            let tie = middle as f32;
            assert_eq!(f64::from(tie), middle, "f32 has all middles");
            cases.push((tie, if low.is_multiple_of(2) { low } else { high }));
            cases.push((tie.next_down(), low));
            cases.push((tie.next_up(), high));
        }
        let negative: Vec<(f32, u16)> = cases.iter().map(|&(value, bits)| (-value, bits | 0x8000)).collect();
        for cases in [cases, negative] {
            let (values, expected): (Vec<f32>, Vec<u16>) = cases.into_iter().unzip();
            assert!(narrowed(half, &values) == expected, "{half:?}");
        }
    }
}

#[test]
fn any_f32_is_rounded_as_by_other_code_whatever_lies_beside_it() {
    // A stride that is prime meets all exponents, and many fractions in each.
    let all: Vec<f32> = (0..u32::MAX / 4_093).map(|at| f32::from_bits(at * 4_093)).collect();
    for half in HALVES {
        let expected: Vec<u16> = all.iter().map(|&value| rounded(half, value)).collect();
        assert!(narrowed(half, &all) == expected, "{half:?}");
        for (start, length) in lengths().enumerate() {
            let (start, end) = (start * 4_001, start * 4_001 + length);
            assert_eq!(narrowed(half, &all[start..end]), expected[start..end], "{half:?}");
            let wide: Vec<f32> = expected[start..end].iter().map(|&bits| wide(half, bits)).collect();
            assert_eq!(bits(&widened(half, &expected[start..end])), bits(&wide), "{half:?}");
        }
    }
}

#[test]
fn what_is_beyond_halves_is_infinite_and_what_is_no_number_is_the_one_nan() {
    let special = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::from_bits(0xff80_0001),
        f32::MAX,
        65_520.0,
        65_519.996,
        -0.0,
        f32::from_bits(1),
        -2_f32.powi(-25),
    ];
    let of = |half| narrowed(half, &special);
    assert_eq!(
        of(Half::F16),
        [0x7c00, 0xfc00, 0x7e00, 0x7e00, 0x7c00, 0x7c00, 0x7bff, 0x8000, 0, 0x8000]
    );
    assert_eq!(
        of(Half::Bf16),
        [0x7f80, 0xff80, 0x7fc0, 0x7fc0, 0x7f80, 0x4780, 0x4780, 0x8000, 0, 0xb300]
    );
    for half in HALVES {
        assert_eq!(bits(&widened(half, &[of_nan(half) | 0x8001])), bits(&[f32::NAN]));
    }
}

fn layout() -> Layout {
    let tensors = vec![
        TensorSpec::new("a", Dtype::F32, &[2_001]),
        TensorSpec::new("b", Dtype::F64, &[33]),
        TensorSpec::new("c", Dtype::F32, &[]),
    ];
    Layout::new(tensors, 3).unwrap()
}

/// Zeros between tensors, and numbers that halves do not have.
fn term(layout: &Layout, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; layout.bytes()];
    for (number, section) in layout.sections(0..layout.bytes()).enumerate() {
        let value = |at: usize| (at as f64 * 0.37 + seed as f64).sin() * 1.5_f64.powi((at % 40) as i32 - 20);
        for (at, place) in section.bytes.step_by(section.dtype.bytes()).enumerate() {
            match section.dtype {
                Dtype::F32 => bytes[place..place + 4].copy_from_slice(&(value(at) as f32).to_le_bytes()),
                Dtype::F64 => bytes[place..place + 8].copy_from_slice(&value(at + number).to_le_bytes()),
                Dtype::U64 => bytes[place..place + 8].copy_from_slice(&seed.to_le_bytes()),
            }
        }
    }
    bytes
}

#[test]
fn a_part_of_a_gradient_travels_in_half_the_bytes_and_other_numbers_as_they_are() {
    let layout = layout();
    let terms: Vec<Vec<u8>> = (1..5).map(|seed| term(&layout, seed)).collect();
    for (half, range) in HALVES
        .into_iter()
        .flat_map(|half| [0..layout.bytes(), 64..8_000, 64..8_256].map(|range| (half, range)))
    {
        let cut: Vec<&[u8]> = terms.iter().map(|term| &term[range.clone()]).collect();
        let mut sum = vec![0; range.len()];
        reduce::sum_into(&layout, range.clone(), &mut sum, &mut cut[..3].to_vec());
        let mut packed = vec![0xaa; half.packed_bytes(&layout, range.clone())];
        half.pack_sum(&layout, range.clone(), &mut packed, &cut[..3]);
        let mut expected = Vec::new();
        for section in layout.sections(range.clone()) {
            let bytes = &sum[section.bytes.start - range.start..section.bytes.end - range.start];
            match section.dtype {
                Dtype::F32 => {
                    let values = bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes);
                    expected.extend(values.flat_map(|value| rounded(half, value).to_le_bytes()));
                }
                Dtype::F64 | Dtype::U64 => expected.extend_from_slice(bytes),
            }
        }
        assert_eq!(packed, expected, "{half:?} of {range:?}");

        half.round_part(&layout, range.clone(), &mut sum);
        let mut unpacked = vec![0xaa; range.len()];
        half.sum_unpacked(&layout, range.clone(), &mut unpacked, &mut &packed[..], &[]);
        assert_eq!(unpacked, sum, "what is kept is what others get");
        half.sum_unpacked(&layout, range.clone(), &mut unpacked, &mut &packed[..], &cut[3..]);
        reduce::add(&layout, range.clone(), &mut sum, cut[3]);
        assert_eq!(unpacked, sum, "{half:?} of {range:?}");

        half.pack_sum(&layout, range, &mut packed, &[]);
        assert!(packed.iter().all(|&byte| byte == 0), "a spare brings zeros");
    }
}
