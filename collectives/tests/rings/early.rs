//! A sum begins before the gradients are whole: each chunk goes as soon as the last gradient of it is written.

use std::sync::Arc;

use futures_util::FutureExt;
use sardana_collectives::gradient::{GradientBuffer, GradientWriter, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::links::frame::{FrameHeader, FrameKind, PlanSlot};
use sardana_collectives::ring::RingInput;
use sardana_collectives::runs::Runs;
use sardana_protocol::job::Order;
use sardana_protocol::plan::{Owners, Plan};
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{ShardRange, Step};

use crate::dance::{FIRST_STEP, GENERATION, config, in_process_links, patiently, start, steady};

/// Elements of one tensor: more than a chunk.
const ELEMENTS: usize = 100_000;

/// Three layers. A backward pass writes the last one's gradient first.
fn layout() -> Arc<Layout> {
    let layer = |name: &str| TensorSpec::new(name, Dtype::F32, &[ELEMENTS]);
    Arc::new(Layout::new(vec![layer("first"), layer("second"), layer("third")], 1).unwrap())
}

/// Those of some chunks that are whole once these tensors are written.
fn whole(layout: &Layout, chunks: &[u32], from: usize, to: usize) -> usize {
    let bytes = |tensor: usize| tensor * (ELEMENTS * 4).next_multiple_of(64);
    let within = |chunk: &&u32| layout.chunk(**chunk).start >= bytes(from) && layout.chunk(**chunk).end <= bytes(to);
    chunks.iter().filter(within).count()
}

fn write(writer: &mut GradientWriter<'_>, tensor: usize, value: f32) {
    writer.write_f32(tensor, &vec![value; ELEMENTS]).unwrap();
}

#[tokio::test]
async fn a_chunk_goes_as_soon_as_the_last_gradient_of_it_is_written() {
    let all: Vec<u32> = layout().travel().collect();
    goes_as_soon_as_it_is_written(&Plan::new(Order::Exact, 2, &steady(2, 4)), &all).await;
    // The other rank is the first of two owners, and has the last chunk.
    let last = layout().chunks() - 1;
    let every_second: Vec<u32> = all.into_iter().filter(|chunk| (last - chunk).is_multiple_of(2)).collect();
    let direct = Plan::direct(2, &steady(2, 4), Owners::All);
    goes_as_soon_as_it_is_written(&direct, &every_second).await;
}

/// Rank 0 of two holds shards 0 and 1 in one buffer, which is written while these chunks of it are passed on over hop 0.
async fn goes_as_soon_as_it_is_written(plan: &Plan, chunks: &[u32]) {
    let layout = layout();
    let mut links = in_process_links(plan, plan);
    let mut other = links.remove(1).first;
    let zero = start(config(0, plan, plan, &layout), links.remove(0));
    let mut buffer = GradientBuffer::zeros(&layout);
    let mut first = buffer.writer(&layout, WriteMode::Store);
    (0..3).for_each(|tensor| write(&mut first, tensor, 1.0));
    first.samples(4).unwrap();
    first.finish().unwrap();

    let gradient = buffer.awaited(&layout);
    let (step, shards) = (FIRST_STEP, ShardRange::new(0, 2));
    zero.inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
    zero.begin(step, GradientBuffer::zeros(&layout));
    let (_, mut running) = other.incoming.pop_first().unwrap();
    let mut passed = chunks.iter().map(|&chunk| header(&layout, chunk));
    let mut writer = buffer.writer(&layout, WriteMode::Add);
    let mut total = 0;
    for tensor in [2, 1, 0] {
        write(&mut writer, tensor, 0.5);
        let now = whole(&layout, chunks, tensor, 3) - total;
        assert!(now > 0, "tensor {tensor} makes chunks whole");
        for header in passed.by_ref().take(now) {
            let payload = patiently(running.receive(&header)).await.unwrap().to_vec();
            let (values, _) = payload.as_chunks::<4>();
            // The zeros behind a tensor are in none.
            assert!(values.iter().all(|value| [1.5, 0.0].contains(&f32::from_le_bytes(*value))));
        }
        total += now;
    }
    writer.auxiliary(0, 2.0).unwrap();
    writer.samples(3).unwrap();
    writer.finish().unwrap();
    // The last chunk has the number of samples: it goes once the gradient counts.
    let last = passed.next().unwrap();
    assert_eq!((passed.next(), last.chunk), (None, layout.chunks() - 1));
    {
        let coming = running.receive(&last);
        tokio::pin!(coming);
        for _ in 0..100 {
            tokio::task::yield_now().await;
            let seen = coming.as_mut().now_or_never();
            assert!(seen.is_none(), "it does not count yet");
        }
        drop(buffer.complete());
        let payload = patiently(coming).await.unwrap().to_vec();
        assert!(payload.ends_with(&7_u64.to_le_bytes()));
    }
    zero.ring.abort();
    assert!(patiently(zero.ring).await.unwrap_err().is_cancelled());
    assert!(buffer.is_unread(), "an aborted ring lets go of what is written");
}

fn header(layout: &Layout, chunk: u32) -> FrameHeader {
    FrameHeader {
        generation: GENERATION,
        step: Step::new(FIRST_STEP.get()),
        plan: PlanSlot::First,
        hop: 0,
        kind: FrameKind::Running,
        chunk,
        payload_bytes: u32::try_from(layout.chunk(chunk).len()).unwrap(),
    }
}

/// All ranks write while all of them sum, the last layer first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_summed_while_it_is_written_has_the_bits_of_sequential_addition() {
    for world in [1, 2, 3] {
        let visits = steady(world, world);
        for order in [Order::Exact, Order::Fast] {
            sums_while_writing(&Plan::new(order, world, &visits), order).await;
        }
        sums_while_writing(&Plan::direct(world, &visits, Owners::All), Order::Exact).await;
    }
}

async fn sums_while_writing(plan: &Plan, order: Order) {
    let layout = layout();
    let world = u32::try_from(plan.parts().len()).unwrap();
    let value = |shard: u32| 0.1 + shard as f32;
    let mut dancers = Vec::new();
    for (rank, links) in (0..).zip(in_process_links(plan, plan)) {
        let dancer = start(config(rank, plan, plan, &layout), links);
        let mut buffer = GradientBuffer::zeros(&layout);
        let (step, shards, gradient) = (FIRST_STEP, ShardRange::one(rank), buffer.awaited(&layout));
        dancer.inbox.send(RingInput::Piece { step, shards, gradient }).unwrap();
        dancer.begin(step, GradientBuffer::zeros(&layout));
        let layout = Arc::clone(&layout);
        let training = tokio::task::spawn_blocking(move || {
            let mut writer = buffer.writer(&layout, WriteMode::Store);
            for tensor in [2, 1, 0] {
                write(&mut writer, tensor, value(rank));
            }
            writer.samples(1).unwrap();
            writer.finish().unwrap();
            drop(buffer.complete());
        });
        dancers.push((dancer, training));
    }
    let expected = (1..world).fold(value(0), |sum, shard| sum + value(shard)) / world as f32;
    for (mut dancer, training) in dancers {
        let done = patiently(dancer.completed.recv()).await.unwrap();
        training.await.unwrap();
        let mean = done.sum.mean(&layout);
        assert_eq!(mean.samples(), u64::from(world));
        for tensor in 0..3 {
            let found = mean.f32(tensor).unwrap();
            match order {
                Order::Exact => assert!(found.iter().all(|value| value.to_bits() == expected.to_bits())),
                Order::Fast => assert!(found.iter().all(|value| (value - expected).abs() < 1e-5)),
            }
        }
        drop(dancer.inbox);
        patiently(dancer.ring).await.unwrap().unwrap();
    }
}
