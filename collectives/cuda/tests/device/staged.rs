//! A running sum that passes devices has the bits of the ordered sum, for any order of streams and any split; and no more crosses than is said.

use sardana_cuda::device::{Device, DeviceTensor, Float, Stream, Traffic};
use sardana_cuda::staged::Place::{Device as Kept, Spilled};
use sardana_cuda::staged::StagedError;
use sardana_cuda::staged::{Place, Shard, Staged, Step, places};
use sardana_twins::{Count, Session};

use super::cases::{Case, Wrong};
use super::numbers::Any;
use super::twin::{driver, ends_well};

/// Four ranks, of which one has none of its shards on the device, and one has them mixed.
pub(crate) fn four_ranks() -> Case {
    Case {
        ranks: vec![
            vec![Kept, Kept, Spilled],
            vec![Spilled, Spilled],
            vec![Kept, Spilled, Kept],
            vec![Spilled, Kept],
        ],
        elements: 37,
        chunk: 8,
        slots: 2,
        seed: 1,
    }
}

/// Runs a case, and compares each rank's sum with the processor's, and what was copied with what the plan says.
fn check<T: Float + Any>(case: &Case, session: &Session<'_>) {
    session.forget_counts();
    let shards = case.shards::<T>();
    let expected = case.expected(&shards);
    let given = case.run(&shards, |_, _| {}).unwrap();
    let mut all = [0; 2];
    for (rank, given) in given.iter().enumerate() {
        let (found, expected) = (
            bytemuck::cast_slice::<T, u8>(&given.finished),
            bytemuck::cast_slice(&expected),
        );
        assert!(found == expected, "rank {rank} of {case:?} has other bits");
        let [down, up] = given.visit.bytes((case.elements * size_of::<T>()) as u64);
        assert_eq!(given.traffic, Traffic { up, down }, "rank {rank} of {case:?}");
        all = [all[0] + down, all[1] + up];
    }
    let counted = [Count::Down, Count::Up].map(|what| session.count(what));
    assert_eq!(counted, all, "as the driver counts them: {case:?}");
}

#[test]
fn any_order_of_streams_gives_the_bits_of_the_ordered_sum() {
    let Some(driver) = driver() else { return };
    let case = four_ranks();
    for seed in 0..250 {
        let session = driver.begin(seed);
        check::<f32>(&case, &session);
        ends_well(&session);
    }
}

#[test]
fn any_split_gives_the_bits_of_the_ordered_sum() {
    let Some(driver) = driver() else { return };
    for seed in 0..1_200 {
        let session = driver.begin(seed);
        let case = Case::any(seed);
        if seed % 4 == 0 {
            check::<f64>(&case, &session);
        } else {
            check::<f32>(&case, &session);
        }
        ends_well(&session);
    }
}

#[test]
fn what_the_device_has_no_room_for_is_spilled_and_the_sum_is_the_same() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(3);
    let gradient = 4 * 50;
    for room in [0, gradient, 2 * gradient + 3, 9 * gradient] {
        let case = Case {
            ranks: vec![places(4, gradient, room), places(3, gradient, room)],
            elements: 50,
            chunk: 16,
            slots: 3,
            seed: room,
        };
        let kept = case.ranks[0].iter().filter(|place| **place == Place::Device).count();
        assert_eq!(kept as u64, (room / gradient).min(4));
        check::<f32>(&case, &session);
    }
    ends_well(&session);
}

#[test]
fn a_plan_for_other_shards_slots_or_elements_is_refused() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(5);
    let case = four_ranks();
    let wrong: [(&str, Wrong); 5] = [
        ("3 shards", |steps| {
            steps.push(Step::Add {
                range: 0..1,
                shards: 3..4,
            })
        }),
        ("lie where they were planned", |steps| {
            steps.push(Step::Add {
                range: 0..1,
                shards: 2..3,
            })
        }),
        ("lie where they were planned", |steps| {
            steps.push(Step::AddSpilled { range: 0..1, shard: 0 })
        }),
        ("2 slots", |steps| steps.push(Step::Lower { range: 0..1, slot: 2 })),
        ("8 elements", |steps| steps.push(Step::Lower { range: 0..9, slot: 0 })),
    ];
    for (words, alter) in wrong {
        let alter = |rank, steps: &mut Vec<Step>| {
            if rank == 0 {
                alter(steps)
            }
        };
        let error = case.run(&case.shards::<f32>(), alter).unwrap_err();
        assert!(
            matches!(error, StagedError::Plan { .. }) && error.to_string().contains(words),
            "{error}"
        );
    }
    ends_well(&session);
}

#[test]
fn a_sum_that_is_given_up_leaves_the_device_of_use() {
    let Some(driver) = driver() else { return };
    for seed in 0..20 {
        let session = driver.begin(seed);
        let case = four_ranks();
        // The first chunk is enqueued and no more; the gradients are freed at once.
        let alter = |_, steps: &mut Vec<Step>| {
            let first = steps.iter().position(|step| matches!(step, Step::Lower { .. })).unwrap();
            steps.insert(first, Step::Await { shard: 9 });
        };
        case.run(&case.shards::<f32>(), alter).unwrap_err();
        check::<f32>(&case, &session);
        ends_well(&session);
    }
}

#[test]
fn memory_that_sums_pass_through_serves_one_after_the_other() {
    let Some(driver) = driver() else { return };
    for seed in 0..20 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        let case = Case {
            ranks: vec![vec![Kept, Kept]],
            elements: 30,
            chunk: 7,
            slots: 2,
            seed,
        };
        let visit = case.visit(0);
        let mut staged = Staged::<f32>::new(&device, visit.chunk, visit.slots).unwrap();
        let held = device.memory().held;
        let mut nothing = Nowhere;
        for round in 0..3 {
            let case = Case {
                seed: seed + 100 * round,
                ..case.clone()
            };
            let shards = case.shards::<f32>();
            let own = shards
                .iter()
                .map(|shard| Shard::kept(DeviceTensor::from_slice(&device, Stream::Compute, shard).unwrap()).unwrap());
            let own: Vec<_> = own.collect();
            let mut sum = DeviceTensor::unset(&device, Stream::Compute, 30).unwrap();
            staged.carry_out(&visit.steps(), &own, Some(&mut sum), &mut nothing).unwrap();
            drop(own);
            let (found, expected) = (sum.to_vec().unwrap(), case.expected(&shards));
            assert!(bytemuck::cast_slice::<f32, u32>(&found) == bytemuck::cast_slice::<f32, u32>(&expected));
        }
        assert_eq!(device.memory().held, held);
        drop((staged, device));
        ends_well(&session);
    }
}

/// Alone, nothing comes and nothing goes.
struct Nowhere;

impl sardana_cuda::staged::Host<f32> for Nowhere {
    type Error = std::io::Error;

    fn receive(&mut self, _: std::ops::Range<usize>, _: &mut [f32]) -> std::io::Result<()> {
        Err(std::io::Error::other("nothing comes"))
    }

    fn deliver(&mut self, _: std::ops::Range<usize>, _: &[f32]) -> std::io::Result<()> {
        Err(std::io::Error::other("nothing goes"))
    }
}
