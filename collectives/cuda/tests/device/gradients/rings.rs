//! Rings whose ranks have a device each, or share one: the running sum passes them, has the bits of the ordered sum, and no more crosses than is said.

use std::thread;
use std::time::{Duration, Instant};

use sardana_collectives::gradient::{GradientBuffer, Slot};
use sardana_collectives::limits::{ALIGNMENT, LOWERED_BYTES, PASSING_AT_ONCE};
use sardana_collectives::links::Meter;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot};
use sardana_collectives::runs::Runs;
use sardana_cuda::device::{Device, Traffic};
use sardana_protocol::plan::{Owners, Part};
use sardana_protocol::words::{Generation, Incarnation, Step};
use sardana_twins::{Count, Planted};
use tokio::runtime::Builder;

use super::super::twin::driver;
use super::ranks::{Ranks, shared_memory};

#[test]
fn a_sum_that_passes_devices_has_the_bits_of_the_ordered_sum() {
    let Some(driver) = driver() else { return };
    for seed in 0..20 {
        let session = driver.begin(seed);
        let wide = seed.is_multiple_of(5);
        let ranks = Ranks {
            tensors: vec![(37, wide), (0, wide), (5, wide)],
            room: [0, 1, 2, u64::MAX][seed as usize % 4],
            ..Ranks::small(seed)
        };
        ranks.check();
        // Tensors of two types do not pass: each gradient comes down.
        Ranks {
            tensors: vec![(9, false), (4, true)],
            ..Ranks::small(seed)
        }
        .check();
        session.ends_well();
    }
}

#[test]
fn no_gradient_comes_down_where_the_sum_passes() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(3);
    let ranks = Ranks {
        tensors: vec![(270_000, false), (40, false)],
        shards: vec![2, 4, 3],
        joined: false,
        ..Ranks::small(1)
    };
    let gradient = ranks.layout().tensors_end() as u64;
    // The last copy up of each is of the finished sum; the closer has it.
    let moved = |down, up| Traffic {
        down: down * gradient,
        up: up * gradient,
    };
    assert_eq!(ranks.check(), [moved(1, 1), moved(1, 2), moved(1, 1)]);
    assert_eq!(session.count(Count::Down), 3 * gradient);
    // Spilled ones come down once, and are added on the host.
    let tensors = 4 * (270_000 + 40);
    let spilled = Ranks { room: 2, ..ranks }.check();
    let down: Vec<u64> = spilled.iter().map(|traffic| traffic.down).collect();
    assert_eq!(down, [gradient, gradient + 2 * tensors, gradient + tensors]);
    session.ends_well();
}

#[test]
fn where_chunks_have_owners_each_gradient_comes_down_once_and_the_sum_goes_up() {
    let Some(driver) = driver() else { return };
    for owners in [Owners::All, Owners::Closer] {
        for seed in 0..40 {
            let session = driver.begin(seed);
            let ranks = Ranks {
                owners: Some(owners),
                ..Ranks::any(seed)
            };
            let (crossed, expected) = (ranks.check(), ranks.crosses());
            assert_eq!(crossed, expected, "{ranks:?}");
            let counted = [Count::Down, Count::Up].map(|what| session.count(what));
            let all = |of: fn(&Traffic) -> u64| expected.iter().map(of).sum::<u64>();
            assert_eq!(counted, [all(|traffic| traffic.down), all(|traffic| traffic.up)], "{ranks:?}");
            session.ends_well();
        }
        // Two gradients a rank: as much crosses as where a running sum passes.
        let session = driver.begin(2);
        let ranks = Ranks {
            tensors: vec![(270_000, false)],
            shards: vec![2; 3],
            owners: Some(owners),
            joined: true,
            ..Ranks::small(2)
        };
        let gradient = ranks.layout().tensors_end() as u64;
        let moved = |down| Traffic {
            down: down * gradient,
            up: gradient,
        };
        assert_eq!(ranks.check(), [moved(1), moved(2), moved(2)]);
        session.ends_well();
    }
}

#[test]
fn a_ring_that_is_given_up_leaves_gradients_for_the_next_or_lets_go_of_them() {
    let Some(driver) = driver() else { return };
    for seed in 0..20 {
        let session = driver.begin(seed);
        let ranks = Ranks {
            given_up_after: Some(seed as usize % 10 * 3),
            ..Ranks::small(seed)
        };
        ranks.check();
        let ends = Ranks { drops: true, ..ranks }.run();
        assert!(ends.iter().all(Result::is_err));
        session.ends_well();
    }
}

#[test]
fn any_split_in_any_order_of_streams_gives_the_bits_of_the_ordered_sum_and_no_more_crosses_than_is_said() {
    let Some(driver) = driver() else { return };
    for seed in 0..1_000 {
        let session = driver.begin(seed);
        let ranks = Ranks::any(seed);
        let (crossed, expected) = (ranks.check(), ranks.crosses());
        assert_eq!(crossed, expected, "{ranks:?}");
        let counted = [Count::Down, Count::Up].map(|what| session.count(what));
        let all = |of: fn(&Traffic) -> u64| expected.iter().map(of).sum::<u64>();
        assert_eq!(counted, [all(|traffic| traffic.down), all(|traffic| traffic.up)], "{ranks:?}");
        session.ends_well();
    }
}

#[test]
fn more_parts_than_pass_at_once_follow_one_another() {
    let Some(driver) = driver() else { return };
    for seed in 0..3 {
        let session = driver.begin(seed);
        let ranks = Ranks {
            tensors: vec![(1_400_000, false)],
            shards: vec![1, 2],
            room: [2, 1, 3][seed as usize],
            ..Ranks::small(seed)
        };
        assert_eq!(ranks.check(), ranks.crosses());
        session.ends_well();
    }
}

/// Whether it does so within the time in which any copy lands.
fn comes_to(expected: u64, mut look: impl FnMut() -> u64) -> bool {
    let until = Instant::now() + Duration::from_secs(20);
    while look() != expected && Instant::now() < until {
        thread::yield_now();
    }
    look() == expected
}

#[test]
fn memory_through_which_sums_pass_serves_one_after_the_other_and_ranks_that_share_a_device() {
    let Some(driver) = driver() else { return };
    for seed in 0..8 {
        let session = driver.begin(seed);
        let device = Device::open(0).unwrap();
        for (round, elements) in [40, 40, 7, 40].into_iter().enumerate() {
            let ranks = Ranks {
                tensors: vec![(elements, false)],
                shared: Some(device.clone()),
                ..Ranks::small(8 * round as u64 + seed)
            };
            ranks.check();
            // How many slots are needed at once is a matter of chance; more than are under way at once, and are filled and emptied, never are.
            let most = ranks.shards.len() * (PASSING_AT_ONCE + 2) * LOWERED_BYTES;
            assert!(device.pinned().held <= most as u64);
            // The gradients go with the last copy of them, and the longest part of a sum stays.
            let longest = (40 * size_of::<f32>()).next_multiple_of(ALIGNMENT) as u64;
            assert!(comes_to(longest, || device.memory().held));
        }
        drop(device);
        session.ends_well();
    }
}

/// What the links that a running sum takes have sent where it lies, hop by hop.
fn shown(ranks: &Ranks) -> Vec<u64> {
    let (expected, plan, mut meters) = (ranks.expected(), ranks.plan(), Vec::new());
    let ends = ranks.run_and_look(|links| {
        for (part, links) in plan.parts().iter().zip(links) {
            let Part::Ordered(part) = part else {
                panic!("a sum passes rank by rank")
            };
            let hops = part.visits.iter().filter_map(|visit| visit.to);
            meters.extend(hops.map(|to| links.first.outgoing[&to.hop].meter().clone()));
        }
    });
    for end in ends {
        assert!(end.unwrap().0 == expected, "{ranks:?}");
    }
    meters.iter().map(Meter::bytes_in_place).collect()
}

#[test]
fn a_sum_that_passes_devices_of_one_host_is_read_where_the_rank_before_has_it() {
    let Some(driver) = driver() else { return };
    for seed in 0..20 {
        let session = driver.begin(seed);
        let ranks = Ranks {
            // Two parts and what lies behind them, or one.
            tensors: vec![(if seed == 0 { 264_000 } else { 37 }, false), (5, false)],
            shared_memory: true,
            ..Ranks::small(seed)
        };
        let whole = ranks.layout().bytes() as u64;
        assert_eq!(shown(&ranks), [whole; 2], "seed {seed}");
        if seed == 0 {
            session.ends_well();
            continue;
        }
        // What is spilled is added to it on the host, from where it goes on.
        let spilled = Ranks {
            room: 1,
            ..ranks.clone()
        };
        let begins = if spilled.joined { whole } else { 0 };
        assert_eq!(shown(&spilled), [begins, 0], "seed {seed}");
        // Memory that cannot be pinned where it is is not shown, and the sum is the same.
        let alone = Ranks {
            with_devices: Some(0),
            ..ranks.clone()
        };
        session.plant(Planted::RefuseRegister, 0);
        assert_eq!(shown(&alone), [0, 0], "seed {seed}");
        // A ring that breaks may leave what another one still reads.
        let broken = Ranks {
            given_up_after: Some(seed as usize % 10 * 3),
            ..ranks
        };
        assert!(shown(&broken).iter().all(|shown| *shown <= whole));
        session.ends_well();
    }
}

#[test]
fn memory_that_another_process_still_reads_serves_no_other_part() {
    let Some(driver) = driver() else { return };
    let session = driver.begin(5);
    let device = Device::open(0).unwrap();
    let ranks = Ranks::small(5);
    let layout = ranks.layout();
    let mut buffer = GradientBuffer::zeros(&layout);
    ranks.case(0, 1).write(&mut buffer, &layout, Some(&device)).unwrap();
    let resident = buffer.resident(&layout).unwrap();
    let place = |slot: &mut Box<dyn Slot>| slot.bytes().unwrap().as_ptr();
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let (mut sender, mut receiver) = shared_memory();
        let header = FrameHeader {
            generation: Generation::new(Incarnation::new(1), 1),
            step: Step::ZERO,
            plan: PlanSlot::First,
            hop: 0,
            kind: FrameKind::Running,
            chunk: 0,
            payload_bytes: 300,
        };
        let mut first = resident.slot().unwrap();
        first.bytes().unwrap()[..300].fill(7);
        let read = place(&mut first);
        let part = first.in_place().unwrap().part(0..300);
        sender.send_in_place(&header, part, None::<fn()>).await.unwrap();
        assert_eq!(sender.meter().bytes_in_place(), 300);
        drop(first);
        let mut second = resident.slot().unwrap();
        assert_ne!(place(&mut second), read);
        second.bytes().unwrap().fill(9);
        let held = device.pinned().held;
        let mut payload = receiver.receive(&header).await.unwrap();
        let mut came = [0; 300];
        payload.copy_to(&mut came);
        assert_eq!(came, [7; 300]);
        drop(payload);
        let mut third = resident.slot().unwrap();
        assert_eq!((place(&mut third), device.pinned().held), (read, held), "it is read");
        // An end that is given up leaves what the other one may be reading, until that is gone.
        third.bytes().unwrap()[..300].fill(8);
        let part = third.in_place().unwrap().part(0..300);
        sender.send_in_place(&header, part, None::<fn()>).await.unwrap();
        drop((sender, third));
        let mut fourth = resident.slot().unwrap();
        assert_ne!(place(&mut fourth), read);
        let mut payload = receiver.receive(&header).await.unwrap();
        payload.copy_to(&mut came);
        assert_eq!(came, [8; 300]);
        drop(payload);
        drop(receiver);
        let mut fifth = resident.slot().unwrap();
        assert_eq!(place(&mut fifth), read);
    });
    buffer.clear();
    drop((buffer, resident, device));
    session.ends_well();
}
