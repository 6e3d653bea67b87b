//! Groups over the links that processes have: QUIC, and memory that they share.

use std::sync::Arc;
use std::thread;

use sardana_collectives::group::{Alarm, Compression, Group, GroupError, GroupLinks, LaneLinks, Order, Place, Reduction};
use sardana_collectives::links::{LinkReceiver, LinkSender};
use sardana_protocol::words::{Generation, Incarnation, Rank};
use tokio::runtime::Runtime;

use crate::loopback::{Loopback, loopback};

/// What drives links while ranks wait for them: the network's thread of a process.
fn network() -> Arc<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    Arc::new(runtime.unwrap())
}

/// Ranks that know of each other what their links tell.
fn ranks(world_size: u32, mut link: impl FnMut() -> (LinkSender, LinkReceiver)) -> Vec<Group> {
    let mut lane = || {
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..world_size).map(|_| link()).unzip();
        receivers.rotate_right(1);
        let ends = receivers.into_iter().zip(senders);
        ends.map(|(from, to)| LaneLinks { from, to }).collect::<Vec<_>>()
    };
    let lanes = lane().into_iter().zip(lane());
    (0..)
        .zip(lanes)
        .map(|(rank, (running, finished))| {
            let place = Place {
                rank: Rank::new(rank),
                world_size,
                generation: Generation::new(Incarnation::new(2), 3),
            };
            Group::new(place, GroupLinks { running, finished }, Alarm::default())
        })
        .collect()
}

fn values(rank: u32) -> Vec<f32> {
    (0..200_003)
        .map(|at| ((at * 7 + rank * 13) % 101) as f32 * 1.1_f32.powi(rank as i32))
        .collect()
}

/// Each operation once, and then one that fails since rank 1 is gone.
fn use_and_lose(groups: Vec<Group>) {
    let world_size = groups[0].world_size();
    let sum: Vec<f32> = (1..world_size).map(values).fold(values(0), |sum, own| {
        sum.into_iter().zip(own).map(|(sum, own)| sum + own).collect()
    });
    let sum = &sum;
    thread::scope(|scope| {
        for mut group in groups {
            scope.spawn(move || {
                let rank = group.rank().get();
                let mut own = values(rank);
                group.all_reduce(&mut own, Reduction::Sum, Order::Exact).unwrap();
                assert!(own == *sum, "rank {rank}");
                let mut own = values(rank);
                let length = own.len();
                let part = group.part(length);
                let scattered = group.reduce_scatter(&mut own, Reduction::Sum, Order::Exact).unwrap();
                assert!(*scattered == sum[part], "rank {rank}");
                group.all_gather(&mut own).unwrap();
                assert!(own == *sum, "rank {rank}");
                let mut own = vec![u64::from(rank); 300_000];
                group.all_reduce(&mut own, Reduction::Max, Order::Fast).unwrap();
                assert!(own.iter().all(|&max| max == u64::from(world_size - 1)), "rank {rank}");
                let mut halves = vec![1.0 + rank as f32 / 8.0; 300_001];
                group.compress(Compression::Bf16);
                group.all_reduce(&mut halves, Reduction::Sum, Order::Fast).unwrap();
                group.compress(Compression::None);
                // 1 + 1.125 + 1.25, whose sums bf16 has.
                assert!(halves.iter().all(|&sum| sum == 3.375), "rank {rank}");
                group.broadcast(&mut own, Rank::new(0)).unwrap();
                group.barrier().unwrap();
                if rank == 1 {
                    return;
                }
                let error = group.all_reduce(&mut own, Reduction::Sum, Order::Exact).unwrap_err();
                assert!(matches!(error, GroupError::Link { .. }), "rank {rank}: {error}");
                assert!(matches!(group.barrier(), Err(GroupError::Broken { .. })), "rank {rank}");
            });
        }
    });
}

#[test]
fn ranks_reduce_over_quic() {
    let network = network();
    let loopback: Loopback = network.block_on(loopback());
    use_and_lose(ranks(3, || network.block_on(loopback.link())));
}

#[cfg(target_os = "linux")]
#[test]
fn ranks_reduce_through_shared_memory() {
    use sardana_collectives::links::shared_memory_in_process;

    let network = network();
    let _driven = network.enter();
    use_and_lose(ranks(3, || shared_memory_in_process().unwrap()));
}
