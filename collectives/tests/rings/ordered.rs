//! BITS-1: the ordered ring's sum has the bits of adding shard after shard on one machine.

use sardana_collectives::links::Meter;
use sardana_protocol::job::Order;
use sardana_protocol::messages::Trailer;
use sardana_protocol::words::Step;

use crate::dance::{Dance, FIRST_STEP, Gradient, in_process_links};

const STEPS: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_world_size_gives_the_bits_of_sequential_addition() {
    for shards in [1, 5, 8, 16] {
        let expected: Vec<Vec<u8>> = (0..STEPS)
            .map(|step| {
                let dance = Dance::new(Order::Exact, 1, shards);
                let sum = Gradient::sequential(&dance.layout, Step::new(FIRST_STEP.get() + step), shards);
                sum.buffer(&dance.layout).bytes().to_vec()
            })
            .collect();
        for world in 1..=8 {
            let dance = Dance::new(Order::Exact, world, shards);
            let sums = dance.run(in_process_links(&dance.first, &dance.steady), STEPS, false).await;
            for (step, (ranks, expected)) in sums.iter().zip(&expected).enumerate() {
                assert_eq!(ranks.len(), world as usize);
                for (rank, (bytes, trailer)) in ranks.iter().enumerate() {
                    assert!(bytes == expected, "K={shards} N={world} step {step} rank {rank} differs");
                    assert_eq!(*trailer, Trailer::Continue);
                }
            }
        }
    }
}

#[test]
fn the_order_shows_in_these_gradients() {
    let dance = Dance::new(Order::Exact, 1, 8);
    let forwards = Gradient::sequential(&dance.layout, FIRST_STEP, 8);
    let mut backwards = Gradient::draw(&dance.layout, FIRST_STEP, 7);
    (0..7)
        .rev()
        .for_each(|shard| backwards.plus(&Gradient::draw(&dance.layout, FIRST_STEP, shard)));
    assert_ne!(forwards, backwards, "else the tests above would prove nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reaches_every_rank_and_all_end_well() {
    for world in [1, 2, 5] {
        let dance = Dance::new(Order::Exact, world, 8);
        for steps in [1, 3] {
            let sums = dance.run(in_process_links(&dance.first, &dance.steady), steps, true).await;
            let (last, before) = sums.split_last().unwrap();
            assert!(last.iter().all(|(_, trailer)| *trailer == Trailer::Stop));
            assert!(before.iter().flatten().all(|(_, trailer)| *trailer == Trailer::Continue));
        }
    }
}

/// Each hop carries a whole sum once a step, in chunks with a header each; those of a finished sum a trailer of 17 bytes as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_count_what_the_sums_move() {
    let (world, header) = (3, 48);
    let dance = Dance::new(Order::Exact, world, 8);
    let links = in_process_links(&dance.first, &dance.steady);
    let plans = || links.iter().flat_map(|links| [&links.first, &links.steady]);
    let sent: Vec<Meter> = plans()
        .flat_map(|plan| plan.outgoing.values())
        .map(|link| link.meter().clone())
        .collect();
    let received: Vec<Meter> = plans()
        .flat_map(|plan| plan.incoming.values())
        .map(|link| link.meter().clone())
        .collect();
    dance.run(links, STEPS, false).await;
    let hops = dance.first.hops().len() as u64 + (STEPS - 1) * dance.steady.hops().len() as u64;
    let sum = dance.layout.bytes() as u64 + 7 * header;
    let expected = hops * sum + STEPS * (u64::from(world) - 1) * (17 + header);
    let bytes = |meters: &[Meter]| meters.iter().map(Meter::bytes).sum::<u64>();
    assert_eq!((bytes(&sent), bytes(&received)), (expected, expected));
}
