//! Results of all_reduce and reduce_scatter where f32 travel as halves, and how far they are from sums in f64.

use half::{bf16, f16};
use proptest::prelude::*;

use super::super::element::tests::{Known, bits, reductions_of};
use super::super::{Compression, Order, Reduction};
use super::reductions::{owner, values};
use super::{on_all, threads};
use crate::limits::CHUNK_BYTES;

/// A number as it travels, by the `half` crate.
fn rounded(compression: Compression, value: f32) -> f32 {
    let rounded = match compression {
        Compression::None => value,
        Compression::Bf16 => bf16::from_f32_const(value).to_f32_const(),
        Compression::F16 => f16::from_f32_const(value).to_f32_const(),
    };
    if rounded.is_nan() { f32::NAN } else { rounded }
}

/// What all ranks' values become where each hop rounds.
fn expected_compressed(values: &[Vec<f32>], reduction: Reduction, compression: Compression) -> Vec<f32> {
    let (world, length) = (values.len(), values[0].len());
    let combined = |running: f32, own: f32| match reduction {
        Reduction::Mean => f32::reduced(Reduction::Sum, &[running, own]),
        Reduction::Sum | Reduction::Min | Reduction::Max => f32::reduced(reduction, &[running, own]),
    };
    let result = |at: usize| {
        let first = owner(at, length, world) + 1;
        let mut own = (first..first + world).map(|rank| values[rank % world][at]);
        let mut running = own.next().unwrap();
        for own in own {
            running = combined(rounded(compression, running), own);
        }
        if reduction == Reduction::Mean {
            running /= world as f32;
        }
        rounded(compression, running)
    };
    (0..length).map(result).collect()
}

fn agree_compressed(compression: Compression, world: u32, length: usize, chunk_bytes: usize, seed: u64) {
    let values: Vec<Vec<f32>> = values(world, length, seed);
    for reduction in reductions_of::<f32>() {
        let expected = expected_compressed(&values, reduction, compression);
        on_all(threads(world, chunk_bytes), |mut group| {
            let what = format!("{} of {world}, {length}, {reduction}, {compression}", group.rank());
            group.compress(compression);
            let mut own = values[group.rank().index()].clone();
            group.all_reduce(&mut own, reduction, Order::Fast).unwrap();
            assert!(bits(&own) == bits(&expected), "rank {what}");
            let mut own = values[group.rank().index()].clone();
            let part = group.part(length);
            let result = group.reduce_scatter(&mut own, reduction, Order::Fast).unwrap();
            assert!(bits(result) == bits(&expected[part]), "scattered, {what}");
            group.all_gather(&mut own).unwrap();
            assert!(bits(&own) == bits(&expected), "scattered and gathered, {what}");
            group.close().unwrap();
        });
    }
}

/// As far from the sum as n roundings of halves and n - 1 of f32 can bring it.
fn bound(compression: Compression, world: u32, magnitude: f64) -> f64 {
    let (unit, least) = match compression {
        Compression::None => (0.0, 0.0),
        Compression::Bf16 => (2_f64.powi(-8), 2_f64.powi(-134)),
        Compression::F16 => (2_f64.powi(-11), 2_f64.powi(-25)),
    };
    let ranks = world as i32;
    let growth = (1.0 + unit).powi(ranks) * (1.0 + 2_f64.powi(-24)).powi(ranks - 1);
    // What f64 itself rounds is a part of 10¹² of that.
    ((growth - 1.0) * magnitude + f64::from(ranks) * least * growth) * (1.0 + 1e-12)
}

/// Values of all magnitudes between 2⁻²⁰ and 2³, of either sign or of one.
fn finite_values(world: u32, length: usize, seed: u64) -> Vec<Vec<f32>> {
    let value = |bits: u32| {
        let fraction = 1.0 + (bits >> 9) as f32 / (1 << 23) as f32;
        let sign = if seed.is_multiple_of(2) && bits & 1 == 1 { -1.0 } else { 1.0 };
        sign * fraction * 2_f32.powi((bits >> 1 & 31) as i32 % 23 - 20)
    };
    let ranks = values::<i32>(world, length, seed).into_iter();
    ranks
        .map(|own| own.into_iter().map(|bits| value(bits as u32)).collect())
        .collect()
}

/// The sum is compared with one in f64, and so is the share of the bound that is used: one that is never nearly reached would bound nothing.
fn stays_within_the_bound(compression: Compression, world: u32, length: usize, seed: u64) -> f64 {
    let values = finite_values(world, length, seed);
    let results = on_all(threads(world, 64), |mut group| {
        group.compress(compression);
        let mut own = values[group.rank().index()].clone();
        group.all_reduce(&mut own, Reduction::Sum, Order::Fast).unwrap();
        group.close().unwrap();
        own
    });
    let mut most = 0.0_f64;
    for at in 0..length {
        let column = values.iter().map(|own| f64::from(own[at]));
        let (sum, magnitude) = (column.clone().sum::<f64>(), column.map(f64::abs).sum::<f64>());
        let (error, bound) = ((f64::from(results[0][at]) - sum).abs(), bound(compression, world, magnitude));
        assert!(
            error <= bound,
            "{world} ranks, {compression}: {sum} is off by {error}, at most {bound}"
        );
        most = most.max(error / bound.max(f64::MIN_POSITIVE));
        assert!(results.iter().all(|own| own[at].to_bits() == results[0][at].to_bits()));
    }
    most
}

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Bf16, Compression::F16];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn compressed_results_are_those_of_a_plain_loop_that_rounds(
        compression in 0_usize..3,
        world in 2_u32..=9,
        length in prop_oneof![Just(0_usize), Just(1), 2_usize..300],
        chunk_bytes in prop_oneof![Just(1_usize), Just(24), Just(64), Just(512), Just(CHUNK_BYTES)],
        seed: u64,
    ) {
        agree_compressed(COMPRESSIONS[compression], world, length, chunk_bytes, seed);
    }

    #[test]
    fn compressed_sums_are_as_close_as_is_promised(
        compression in 0_usize..3,
        world in 1_u32..=9,
        length in (0_usize..150).prop_map(|half| 2 * half + 1),
        seed: u64,
    ) {
        stays_within_the_bound(COMPRESSIONS[compression], world, length, seed);
    }
}

#[test]
fn the_error_that_is_promised_is_nearly_made() {
    for (compression, seed) in [Compression::Bf16, Compression::F16].into_iter().zip([1, 3]) {
        let most = stays_within_the_bound(compression, 2, 20_001, seed);
        assert!(most > 0.5, "{compression}: {most} of the bound");
    }
}

#[test]
fn large_chunks_are_compressed_too() {
    for compression in COMPRESSIONS {
        agree_compressed(compression, 3, 400_001, CHUNK_BYTES, 9);
    }
}

#[test]
fn exact_order_and_other_types_are_never_compressed() {
    for compression in COMPRESSIONS {
        on_all(threads(3, 64), |mut group| {
            group.compress(compression);
            let own = |rank: u32| f64::from(rank) + 1.0 + 2_f64.powi(-20);
            let sum = own(0) + own(1) + own(2);
            let rank = group.rank().get();
            let mut exact = [own(rank) as f32; 7];
            group.all_reduce(&mut exact, Reduction::Sum, Order::Exact).unwrap();
            assert_eq!(exact, [sum as f32; 7]);
            let mut wide = [own(rank); 7];
            group.all_reduce(&mut wide, Reduction::Sum, Order::Fast).unwrap();
            assert_eq!(wide, [sum; 7]);
            let mut whole = [1_000_003 * (rank + 1) as i32; 7];
            group.all_reduce(&mut whole, Reduction::Sum, Order::Fast).unwrap();
            assert_eq!(whole, [6_000_018; 7]);
            let mut gathered = [own(rank) as f32; 3];
            group.all_gather(&mut gathered).unwrap();
            assert_eq!(gathered, [0, 1, 2].map(|rank| own(rank) as f32));
            group.close().unwrap();
        });
    }
}
