//! Rings whose ranks have a device each, or share one: the running sum passes them, has the bits of the ordered sum, and no more crosses than is said.

use std::thread;
use std::time::{Duration, Instant};

use sardana_collectives::limits::{ALIGNMENT, LOWERED_BYTES, PASSING_AT_ONCE};
use sardana_cuda::device::{Device, Traffic};
use sardana_protocol::plan::Owners;
use sardana_twins::Count;

use super::super::twin::driver;
use super::ranks::Ranks;

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
