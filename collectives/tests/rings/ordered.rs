//! BITS-1: the ordered ring's sum has the bits of adding shard after shard on one machine.

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::layout::Layout;
use sardana_collectives::limits::{CHUNK_BYTES, QUEUED_CHUNKS};
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot};
use sardana_collectives::links::{self, Meter};
use sardana_collectives::ring::{self, RingInput, RingLinks};
use sardana_protocol::job::Order;
use sardana_protocol::messages::Trailer;
use sardana_protocol::plan::{Part, Plan};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Rank, ShardRange, Step};
use tokio::sync::mpsc::unbounded_channel;

use crate::dance::{Dance, FIRST_STEP, GENERATION, Gradient, config, in_process_links, steady};

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

#[tokio::test]
async fn each_chunk_of_the_sum_goes_on_before_the_next_is_taken_in() {
    let spec = TensorSpec::new("weights", Dtype::F32, &[3 * QUEUED_CHUNKS * CHUNK_BYTES / 4]);
    let layout = Arc::new(Layout::new(vec![spec], 0).unwrap());
    let plan = Plan::new(Order::Exact, 3, &steady(3, 3));
    // Rank 1 receives it from rank 2, which closes it, and both send it on.
    for rank in [1, 2] {
        let Part::Ordered(part) = plan.part(Rank::new(rank)).unwrap() else {
            panic!("the plan is ordered")
        };
        let (from, kind) = match part.sum_from {
            Some(from) => (from, FrameKind::Sum),
            None => (part.visits[0].from.unwrap(), FrameKind::Running),
        };
        let to = part.sum_to.unwrap();
        let mut links = in_process_links(&plan, &plan);
        let mut own: RingLinks = links.remove(rank as usize);
        let ((mut sender, incoming), (outgoing, mut receiver)) = (links::in_process(), links::in_process());
        own.first.incoming.insert(from.hop, incoming);
        own.first.outgoing.insert(to.hop, outgoing);

        let header = |hop, kind, chunk| FrameHeader {
            generation: GENERATION,
            step: FIRST_STEP,
            plan: PlanSlot::First,
            hop,
            kind,
            chunk,
            payload_bytes: u32::try_from(layout.chunk(chunk).len()).unwrap(),
        };
        let mut come = layout.travel().map(|chunk| header(from.hop, kind, chunk));
        let first = header(to.hop, FrameKind::Sum, layout.travel().next().unwrap());
        for header in come.by_ref().take(QUEUED_CHUNKS) {
            sender.send(&header, |payload| payload.fill(0)).await.unwrap();
        }
        let (inbox, inputs) = unbounded_channel();
        let (step, shards) = (FIRST_STEP, ShardRange::one(rank));
        let into = GradientBuffer::zeros(&layout);
        inbox.send(RingInput::Begin { step, into }).unwrap();
        let gradient = Gradient::draw(&layout, step, rank).buffer(&layout).complete();
        inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
        let mut ring = pin!(ring::run(config(rank, &plan, &plan, &layout), own, inputs, |_| ()));
        let mut turns = 0;
        while receiver.receive(&first).now_or_never().is_none() {
            assert!(
                ring.as_mut().now_or_never().is_none() && turns < 1_000,
                "rank {rank} sends nothing on"
            );
            turns += 1;
        }
        let mut taken_in = 0;
        while let Some(Ok(())) = sender.send(&come.next().unwrap(), |payload| payload.fill(0)).now_or_never() {
            taken_in += 1;
        }
        assert_eq!(taken_in, 1, "chunks that rank {rank} took in, and had sent one");
    }
}
