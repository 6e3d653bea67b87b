//! Results of all_reduce and reduce_scatter.

use half::{bf16, f16};
use proptest::prelude::*;

use super::super::element::tests::{Known, any_values, bits, reductions_of};
use super::super::{Order, Reduction};
use super::{on_all, threads};
use crate::limits::CHUNK_BYTES;

/// The values of each rank, in rank order.
pub(super) fn values<E: Known>(world: u32, length: usize, seed: u64) -> Vec<Vec<E>> {
    (0..world)
        .map(|rank| any_values(length, seed ^ u64::from(rank) << 32))
        .collect()
}

/// Which rank's part an element is in, found by looking at all of them: parts are as even as can be, and the cuts are rounded down.
pub(super) fn owner(at: usize, length: usize, world: usize) -> usize {
    (0..world).find(|rank| at < length * (rank + 1) / world).unwrap()
}

/// What all ranks' values become.
fn expected<E: Known>(values: &[Vec<E>], reduction: Reduction, order: Order) -> Vec<E> {
    let (world, length) = (values.len(), values[0].len());
    let result = |at: usize| {
        let first = match order {
            Order::Exact => 0,
            Order::Fast => owner(at, length, world) + 1,
        };
        let column: Vec<E> = (first..first + world).map(|rank| values[rank % world][at]).collect();
        E::reduced(reduction, &column)
    };
    (0..length).map(result).collect()
}

fn all_reduced<E: Known>(values: &[Vec<E>], reduction: Reduction, order: Order, chunk_bytes: usize) -> Vec<Vec<E>> {
    on_all(threads(values.len() as u32, chunk_bytes), |mut group| {
        let mut own = values[group.rank().index()].clone();
        group.all_reduce(&mut own, reduction, order).unwrap();
        group.close().unwrap();
        own
    })
}

fn agree<E: Known>(world: u32, length: usize, chunk_bytes: usize, seed: u64) {
    let values: Vec<Vec<E>> = values(world, length, seed);
    for (reduction, order) in
        reductions_of::<E>().flat_map(|reduction| [Order::Exact, Order::Fast].map(|order| (reduction, order)))
    {
        let what = format!(
            "{world} ranks, {length} {}, {reduction}, {order}, chunks of {chunk_bytes}",
            E::TYPE
        );
        let expected = expected(&values, reduction, order);
        for (rank, result) in all_reduced(&values, reduction, order, chunk_bytes).iter().enumerate() {
            assert!(bits(result) == bits(&expected), "rank {rank} of {what}");
        }
        on_all(threads(world, chunk_bytes), |mut group| {
            let mut own = values[group.rank().index()].clone();
            let part = group.part(length);
            let result = group.reduce_scatter(&mut own, reduction, order).unwrap();
            assert!(bits(result) == bits(&expected[part]), "scattered, {} of {what}", group.rank());
            // Together with an all_gather it is an all_reduce.
            group.all_gather(&mut own).unwrap();
            assert!(
                bits(&own) == bits(&expected),
                "scattered and gathered, {} of {what}",
                group.rank()
            );
            group.close().unwrap();
        });
    }
}

fn agree_as(dtype: usize, world: u32, length: usize, chunk_bytes: usize, seed: u64) {
    let agree = [
        agree::<f32>,
        agree::<f64>,
        agree::<bf16>,
        agree::<f16>,
        agree::<i32>,
        agree::<i64>,
        agree::<u64>,
    ];
    agree[dtype](world, length, chunk_bytes, seed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn results_are_those_of_a_plain_loop(
        dtype in 0_usize..7,
        world in 1_u32..=9,
        length in prop_oneof![Just(0_usize), Just(1), 2_usize..300],
        chunk_bytes in prop_oneof![Just(1_usize), Just(24), Just(64), Just(512), Just(CHUNK_BYTES)],
        seed: u64,
    ) {
        agree_as(dtype, world, length, chunk_bytes, seed);
    }
}

#[test]
fn many_ranks_and_chunks_of_the_real_size() {
    for dtype in 0..7 {
        agree_as(dtype, 33, 101, 64, 7);
        agree_as(dtype, 17, 5, CHUNK_BYTES, 8);
        agree_as(dtype, 3, 300_001, CHUNK_BYTES, 9);
    }
}

#[test]
fn the_exact_result_does_not_depend_on_the_size_of_chunks() {
    let values: Vec<Vec<f32>> = values(5, 1_003, 11);
    let of = |chunk_bytes| all_reduced(&values, Reduction::Sum, Order::Exact, chunk_bytes).swap_remove(4);
    let whole = of(CHUNK_BYTES);
    // What is added in another order is another sum, so that this test sees one.
    let mut reversed = values.clone();
    reversed.reverse();
    assert!(bits(&expected(&reversed, Reduction::Sum, Order::Exact)) != bits(&whole));
    for chunk_bytes in [4, 8, 100, 4_096] {
        assert!(bits(&of(chunk_bytes)) == bits(&whole), "chunks of {chunk_bytes}");
    }
}

#[test]
fn many_operations_follow_one_another() {
    on_all(threads(4, 64), |mut group| {
        let rank = group.rank().get();
        for round in 0..200_u64 {
            let mut own = vec![u64::from(rank) + round; 1 + round as usize % 40];
            let order = if round % 2 == 0 { Order::Exact } else { Order::Fast };
            group.all_reduce(&mut own, Reduction::Sum, order).unwrap();
            assert!(own.iter().all(|&sum| sum == 6 + 4 * round), "round {round}");
            group.barrier().unwrap();
        }
        group.close().unwrap();
    });
}
