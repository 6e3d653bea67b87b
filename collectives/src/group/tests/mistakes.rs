//! Calls that differ, ranks that are gone: an error on all ranks, and none waits for ever.

use std::sync::Arc;

use sardana_protocol::words::Rank;

use super::super::lane::Frame;
use super::super::{Alarm, Call, Compression, Element, ElementType, Group, GroupError, Order, Reduced, Reduction};
use super::{apart, first_of, on_all, threads};
use crate::links::LinkError;
use crate::links::frame::FrameKind;

type Calls = fn(&mut Group) -> Result<(), GroupError>;

fn sum<E: Element>(group: &mut Group, length: usize, order: Order) -> Result<(), GroupError> {
    group.all_reduce(&mut vec![E::zeroed(); length], Reduction::Sum, order)
}

/// As in a group that was told so, and is not any more afterwards.
fn compressed(group: &mut Group, compression: Compression) -> Result<(), GroupError> {
    group.compress(compression);
    let outcome = sum::<f32>(group, 5_000, Order::Fast);
    group.compress(Compression::None);
    outcome
}

/// Calls that all differ from one another, and are long enough to fill all links.
const CALLS: [Calls; 14] = [
    |group| sum::<f32>(group, 5_000, Order::Exact),
    |group| sum::<f32>(group, 5_001, Order::Exact),
    |group| sum::<f32>(group, 0, Order::Exact),
    |group| sum::<f32>(group, 5_000, Order::Fast),
    |group| compressed(group, Compression::Bf16),
    |group| compressed(group, Compression::F16),
    |group| sum::<i32>(group, 5_000, Order::Exact),
    |group| group.all_reduce(&mut [0.0_f32; 5_000], Reduction::Max, Order::Exact),
    |group| {
        group
            .reduce_scatter(&mut [0.0_f32; 5_000], Reduction::Sum, Order::Exact)
            .map(|_| ())
    },
    |group| group.all_gather(&mut [0.0_f32; 5_000]),
    |group| group.broadcast(&mut [0.0_f32; 5_000], Rank::new(0)),
    |group| group.broadcast(&mut [0.0_f32; 5_000], Rank::new(1)),
    |group| group.allgather(&[0.0_f32; 5_000]).map(|_| ()),
    Group::barrier,
];

#[test]
fn calls_that_differ_are_an_error_on_all_ranks() {
    for (usual, odd) in (0..CALLS.len()).flat_map(|usual| (0..CALLS.len()).map(move |odd| (usual, odd))) {
        if usual == odd {
            continue;
        }
        for (world, mistaken) in [(2, 0), (2, 1), (3, 1), (5, 0), (5, 2), (5, 4)] {
            let call = |group: &mut Group| {
                let number = if group.rank().get() == mistaken { odd } else { usual };
                // A rank that is still in the barrier may be woken by what others have called next.
                let outcome = group.barrier().and_then(|()| CALLS[number](group));
                let error = outcome.expect_err(&format!("call {odd} instead of {usual} at rank {mistaken} of {world}"));
                let after = group.barrier().unwrap_err();
                assert!(matches!(after, GroupError::Broken { .. }), "{after}");
                error
            };
            let what = format!("call {odd} instead of {usual} at rank {mistaken} of {world}");
            for error in on_all(threads(world, 256), |mut group| call(&mut group)) {
                assert!(
                    matches!(first_of(&error), GroupError::Mismatch { number: 1, .. }),
                    "{what}: {error}"
                );
            }
            let errors = on_all(apart(world, 256), |mut group| call(&mut group));
            let seen = errors
                .iter()
                .filter(|error| matches!(error, GroupError::Mismatch { .. }))
                .count();
            assert!((1..=2).contains(&seen), "{what}: {errors:?}");
            let broke = |error: &GroupError| matches!(error, GroupError::Mismatch { .. } | GroupError::Link { .. });
            assert!(errors.iter().all(broke), "{what}: {errors:?}");
        }
    }
}

#[test]
fn a_mismatch_says_who_calls_what() {
    let errors = on_all(threads(2, 256), |mut group| {
        let length = 3 + group.rank().index();
        sum::<f32>(&mut group, length, Order::Exact).unwrap_err()
    });
    assert_eq!(
        errors[1].to_string(),
        "operation 0 of g1.1: this rank calls all_reduce of 4 f32, sum, exact, r0 calls all_reduce of 3 f32, sum, exact: make the same calls \
         on all ranks"
    );
    assert!(matches!(&errors[0], GroupError::Ended { .. }), "{}", errors[0]);
}

#[test]
fn a_rank_that_is_gone_is_an_error_on_all_others() {
    for (world, gone) in [(2, 0), (2, 1), (4, 0), (4, 2), (4, 3)] {
        for call in CALLS {
            let errors = on_all(apart(world, 256), |mut group| {
                group.barrier().unwrap();
                if group.rank().get() == gone {
                    return None;
                }
                Some(call(&mut group).unwrap_err())
            });
            for error in errors.iter().flatten() {
                assert!(
                    matches!(error, GroupError::Link { number: 1, .. }),
                    "{gone} of {world} is gone: {error}"
                );
            }
            assert_eq!(errors.iter().flatten().count(), world as usize - 1);
        }
    }
}

/// Takes part in an all_reduce until it has sent a first chunk, and dies.
fn dies_within(group: &mut Group, length: usize) -> GroupError {
    let call = Call::AllReduce(Reduced {
        element: ElementType::F32,
        length: length as u64,
        reduction: Reduction::Sum,
        order: Order::Exact,
        compression: Compression::None,
    });
    let values = &mut vec![1.0_f32; length];
    let dies = group.run(
        call,
        values,
        |_| (),
        async |operation, lanes, _, _| {
            operation.call(&mut lanes.running).await?;
            let frame = Frame {
                kind: FrameKind::Running,
                index: 0,
                bytes: 256,
            };
            if !operation.is_first() {
                lanes.running.from.receive(operation.stamp, frame).await?;
            }
            if !operation.is_last() {
                lanes.running.to.send(operation.stamp, frame, |_| ()).await?;
            }
            Err(GroupError::Over {
                generation: operation.stamp.generation,
                reason: "killed".to_owned(),
            })
        },
    );
    dies.unwrap_err()
}

#[test]
fn a_rank_that_dies_within_an_operation_is_an_error_on_all_others() {
    for (world, dying) in [(2, 0), (2, 1), (4, 0), (4, 2), (4, 3)] {
        let errors = on_all(apart(world, 256), |mut group| {
            if group.rank().get() == dying {
                return dies_within(&mut group, 10_000);
            }
            sum::<f32>(&mut group, 10_000, Order::Exact).unwrap_err()
        });
        for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != dying as usize) {
            assert!(
                matches!(
                    error,
                    GroupError::Link {
                        number: 0,
                        source: LinkError::Reset | LinkError::Refused,
                        ..
                    }
                ),
                "{rank}: {error}"
            );
        }
    }
}

#[test]
fn whoever_leads_a_rank_ends_what_it_waits_for() {
    let alarm = Alarm::default();
    let mut groups = Group::linked(2, 256, || alarm.clone());
    let (absent, mut waiting) = (groups.swap_remove(0), groups.swap_remove(0));
    let generation = waiting.generation();
    let error = std::thread::scope(|scope| {
        let waits = scope.spawn(|| waiting.barrier().unwrap_err());
        let reason = "a worker is lost".to_owned();
        alarm.raise(Arc::new(GroupError::Over { generation, reason }));
        waits.join().unwrap()
    });
    assert_eq!(
        error.to_string(),
        "the group of g1.1 has ended: g1.1 is over: a worker is lost"
    );
    drop(absent);
}

#[test]
fn what_cannot_be_called_breaks_the_group_for_all() {
    let errors = on_all(threads(3, 256), |mut group| {
        if group.rank().get() == 1 {
            let mut integers = [1_i32];
            group.allreduce(&mut integers).unwrap_err()
        } else {
            group.barrier().unwrap_err()
        }
    });
    for error in &errors {
        assert!(matches!(first_of(error), GroupError::MeanOfIntegers { .. }), "{error}");
    }
    let mut alone = Group::in_process(1).swap_remove(0);
    let error = alone.broadcast(&mut [0_u64], Rank::new(1)).unwrap_err();
    assert!(matches!(error, GroupError::NoSuchRank { world_size: 1, .. }), "{error}");
    assert!(matches!(alone.barrier(), Err(GroupError::Broken { .. })));
    // What ended it stays what is told, whatever is called wrongly then.
    let later = alone.all_reduce(&mut [0_i32], Reduction::Mean, Order::Exact).unwrap_err();
    for error in [
        later,
        alone.broadcast(&mut [0_u64], Rank::new(2)).unwrap_err(),
        alone.barrier().unwrap_err(),
    ] {
        assert!(matches!(error, GroupError::Broken { .. }), "{error}");
        let GroupError::NoSuchRank { call, .. } = first_of(&error) else {
            panic!("{error}")
        };
        assert!(call.to_string().contains('1'), "{call}");
    }
}

#[test]
fn a_group_may_go_to_another_thread() {
    fn sent<T: Send>() {}
    sent::<Group>();
}
