//! What becomes of elements, against plain arithmetic on one after the other.

use half::{bf16, f16};

use super::sealed::Kernels;
use super::{Element, Reduction};

pub(crate) const REDUCTIONS: [Reduction; 4] = [Reduction::Sum, Reduction::Min, Reduction::Max, Reduction::Mean];

/// A type whose reductions are known from elsewhere than the kernels.
pub(crate) trait Known: Element {
    /// What these become, combined from the first to the last.
    fn reduced(reduction: Reduction, values: &[Self]) -> Self;
}

macro_rules! known_float {
    ($type:ty) => {
        impl Known for $type {
            fn reduced(reduction: Reduction, values: &[Self]) -> Self {
                if values.iter().any(|value| value.is_nan()) {
                    return Self::NAN;
                }
                let each = values.iter().copied();
                let result = match reduction {
                    Reduction::Sum => each.reduce(|sum, value| sum + value).unwrap(),
                    Reduction::Mean => each.reduce(|sum, value| sum + value).unwrap() / values.len() as Self,
                    Reduction::Min => each.min_by(Self::total_cmp).unwrap(),
                    Reduction::Max => each.max_by(Self::total_cmp).unwrap(),
                };
                // Infinities of both signs.
                if result.is_nan() { Self::NAN } else { result }
            }
        }
    };
}

macro_rules! known_half {
    ($type:ty) => {
        impl Known for $type {
            fn reduced(reduction: Reduction, values: &[Self]) -> Self {
                let wide: Vec<f32> = values.iter().map(|value| value.to_f32_const()).collect();
                let result = f32::reduced(reduction, &wide);
                if result.is_nan() {
                    Self::NAN
                } else {
                    Self::from_f32_const(result)
                }
            }
        }
    };
}

macro_rules! known_integer {
    ($type:ty) => {
        impl Known for $type {
            fn reduced(reduction: Reduction, values: &[Self]) -> Self {
                let each = values.iter().map(|&value| value as i128);
                match reduction {
                    // A cast takes what is left modulo its range.
                    Reduction::Sum => each.sum::<i128>() as Self,
                    Reduction::Min => *values.iter().min().unwrap(),
                    Reduction::Max => *values.iter().max().unwrap(),
                    Reduction::Mean => unreachable!("integers have none"),
                }
            }
        }
    };
}

known_float!(f32);
known_float!(f64);
known_half!(bf16);
known_half!(f16);
known_integer!(i32);
known_integer!(i64);
known_integer!(u64);

/// Any bits: numbers of all magnitudes, infinities, NaNs; some are zeros of either sign.
pub(crate) fn any_values<E: Element>(length: usize, seed: u64) -> Vec<E> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state
    };
    let mut values = vec![E::zeroed(); length];
    for value in &mut values {
        let (bits, kind) = (next().to_be_bytes(), next() >> 60);
        let bytes = bytemuck::bytes_of_mut(value);
        bytes.iter_mut().zip(bits).for_each(|(byte, bits)| *byte = bits);
        let last = bytes.len() - 1;
        match kind {
            0 => bytes.fill(0),
            // -0.0, or the least integer.
            1 => {
                bytes.fill(0);
                bytes[last] = 0x80;
            }
            // NaNs of a float and of a half.
            2 => bytes[last] |= 0x7f,
            // Close to one another, so that their sums are rounded.
            3..=9 => bytes[last] = 0x3f,
            _ => {}
        }
    }
    values
}

/// The bits, which tell NaNs and zeros apart.
pub(crate) fn bits<E: Element>(values: &[E]) -> &[u8] {
    bytemuck::cast_slice(values)
}

pub(crate) fn reductions_of<E: Element>() -> impl Iterator<Item = Reduction> {
    REDUCTIONS
        .into_iter()
        .filter(|&reduction| reduction != Reduction::Mean || !E::TYPE.is_integer())
}

fn what_the_processor_chooses<E: Known>() {
    for length in [0, 1, 7, 8, 31, 1_000, 1_024, 4_097] {
        for (reduction, ranks) in reductions_of::<E>().flat_map(|reduction| [2, 3, 5].map(|ranks| (reduction, ranks))) {
            let values: Vec<Vec<E>> = (0..ranks).map(|rank| any_values(length, rank)).collect();
            let expected: Vec<E> = (0..length)
                .map(|at| {
                    let column: Vec<E> = values.iter().map(|values| values[at]).collect();
                    E::reduced(reduction, &column)
                })
                .collect();
            let mut running = vec![0xaa; length * E::RUNNING_BYTES];
            E::begin(&values[0], &mut running);
            for own in &values[1..values.len() - 1] {
                let mut next = vec![0xaa; running.len()];
                E::fold(reduction, &running, own, &mut next);
                running = next;
            }
            let mut last = values.last().unwrap().clone();
            E::close(reduction, ranks as u32, &running, &mut last);
            assert!(bits(&last) == bits(&expected), "{length} {}, {reduction} of {ranks}", E::TYPE);
        }
    }
}

#[test]
fn what_the_processor_chooses_gives_the_bits_of_one_element_after_the_other() {
    what_the_processor_chooses::<f32>();
    what_the_processor_chooses::<f64>();
    what_the_processor_chooses::<bf16>();
    what_the_processor_chooses::<f16>();
    what_the_processor_chooses::<i32>();
    what_the_processor_chooses::<i64>();
    what_the_processor_chooses::<u64>();
}

fn every_half<E: Known>(zero: E, every: impl Fn(u16) -> E) {
    let values: Vec<E> = (0..=u16::MAX).map(every).collect();
    let mut running = vec![0; values.len() * E::RUNNING_BYTES];
    E::begin(&values, &mut running);
    let mut sums = vec![zero; values.len()];
    E::close(Reduction::Max, 2, &running, &mut sums);
    let expected: Vec<E> = values
        .iter()
        .map(|&value| E::reduced(Reduction::Max, &[value, zero]))
        .collect();
    assert!(bits(&sums) == bits(&expected));
    let mut alone = values.clone();
    E::alone(&mut alone);
    let expected: Vec<E> = values.iter().map(|&value| E::reduced(Reduction::Sum, &[value])).collect();
    assert!(bits(&alone) == bits(&expected));
}

#[test]
fn every_number_of_16_bits_is_itself_and_every_nan_the_one() {
    every_half(bf16::NEG_INFINITY, bf16::from_bits);
    every_half(f16::NEG_INFINITY, f16::from_bits);
}

#[test]
fn a_sum_of_halves_is_rounded_once() {
    // 256 + 1 is not a bf16, and 256 + 1 + 1 is.
    let ones = [256.0, 1.0, 1.0].map(bf16::from_f32);
    assert_eq!(bf16::reduced(Reduction::Sum, &ones).to_f32(), 258.0);
    let mut running = [0; 4];
    bf16::begin(&ones[..1], &mut running);
    let mut next = [0; 4];
    bf16::fold(Reduction::Sum, &running, &ones[1..2], &mut next);
    let mut last = [ones[2]];
    bf16::close(Reduction::Sum, 3, &next, &mut last);
    assert_eq!(last[0].to_f32(), 258.0);
}

#[test]
fn zeros_and_nans_are_told_apart_in_either_order() {
    let combined = |reduction, first: f32, second: f32| {
        let mut last = [second];
        f32::close(reduction, 2, &first.to_le_bytes(), &mut last);
        last[0].to_bits()
    };
    let strange = f32::from_bits(0xffc0_1234);
    for (first, second) in [(0.0, -0.0), (-0.0, 0.0)] {
        assert_eq!(combined(Reduction::Min, first, second), (-0.0_f32).to_bits());
        assert_eq!(combined(Reduction::Max, first, second), 0.0_f32.to_bits());
    }
    for (first, second) in [(strange, 1.0), (1.0, strange), (strange, strange)] {
        for reduction in REDUCTIONS {
            assert_eq!(combined(reduction, first, second), f32::NAN.to_bits(), "{reduction}");
        }
    }
}
