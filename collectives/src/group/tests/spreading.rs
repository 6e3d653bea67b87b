//! Values that come to all ranks as they are, barriers, and Horovod's names.

use std::sync::atomic::{AtomicU32, Ordering};

use half::bf16;
use proptest::prelude::*;
use sardana_protocol::words::Rank;

use super::super::element::tests::{any_values, bits};
use super::super::{Element, Group};
use super::{on_all, threads};

fn gathered<E: Element>(world: u32, length: usize, chunk_bytes: usize) {
    let all: Vec<E> = any_values(length, 3);
    on_all(threads(world, chunk_bytes), |mut group| {
        let mut own: Vec<E> = any_values(length, 4 + u64::from(group.rank().get()));
        let part = group.part(length);
        own[part.clone()].copy_from_slice(&all[part]);
        group.all_gather(&mut own).unwrap();
        assert!(bits(&own) == bits(&all), "{world} ranks, {length} values");
        group.close().unwrap();
    });
}

fn broadcast<E: Element>(world: u32, root: u32, length: usize, chunk_bytes: usize) {
    on_all(threads(world, chunk_bytes), |mut group| {
        let mut own: Vec<E> = any_values(length, u64::from(group.rank().get()));
        group.broadcast(&mut own, Rank::new(root)).unwrap();
        assert!(
            bits(&own) == bits::<E>(&any_values(length, u64::from(root))),
            "{world} ranks, {length} values from {root}"
        );
        group.close().unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn values_come_to_all(world in 1_u32..=9, root: u32, length in 0_usize..300, chunk_bytes in prop_oneof![Just(1_usize), Just(64), Just(512)]) {
        gathered::<f32>(world, length, chunk_bytes);
        gathered::<bf16>(world, length, chunk_bytes);
        broadcast::<i64>(world, root % world, length, chunk_bytes);
        broadcast::<bf16>(world, root % world, length, chunk_bytes);
    }

    #[test]
    fn unequally_many_values_follow_one_another(lengths in proptest::collection::vec(prop_oneof![Just(0_usize), 0_usize..50], 1..9)) {
        let of = |rank: usize| any_values::<f32>(lengths[rank], rank as u64);
        let all: Vec<f32> = (0..lengths.len()).flat_map(of).collect();
        on_all(threads(lengths.len() as u32, 64), |mut group| {
            let gathered = group.allgather(&of(group.rank().index())).unwrap();
            assert_eq!(bits(&gathered), bits(&all));
            group.close().unwrap();
        });
    }
}

#[test]
fn no_rank_passes_a_barrier_before_all_have_come() {
    for world in [1, 2, 3, 8] {
        let came = AtomicU32::new(0);
        on_all(threads(world, 64), |mut group| {
            for round in 1..=50 {
                came.fetch_add(1, Ordering::SeqCst);
                group.barrier().unwrap();
                let all = came.load(Ordering::SeqCst);
                assert!(all >= round * world, "{all} of {world} had come to round {round}");
            }
            group.close().unwrap();
        });
    }
}

#[test]
fn horovods_allreduce_is_the_mean() {
    let means = on_all(Group::in_process(4), |mut group| {
        let mut values = [group.rank().get() as f32, 2.0];
        group.allreduce(&mut values).unwrap();
        assert_eq!(group.size(), 4);
        group.close().unwrap();
        values
    });
    assert_eq!(means, [[1.5, 2.0]; 4]);
}

#[test]
fn a_group_of_no_ranks_is_none_and_one_rank_needs_no_other() {
    assert!(Group::in_process(0).is_empty());
    let mut group = Group::in_process(1).swap_remove(0);
    let mut values = [1.0_f64, -0.0];
    group.allreduce(&mut values).unwrap();
    group.broadcast(&mut values, Rank::new(0)).unwrap();
    assert_eq!(bits(&group.allgather(&values).unwrap()), bits(&[1.0_f64, -0.0]));
    group.barrier().unwrap();
    group.close().unwrap();
}
