//! Running sums that pass memory elsewhere have the bits of sequential addition, and no gradient comes from there.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sardana_collectives::gradient::GradientBuffer;
use sardana_collectives::layout::Layout;
use sardana_collectives::limits::LOWERED_BYTES;
use sardana_collectives::ring::{RingError, RingInput};
use sardana_protocol::job::Order;
use sardana_protocol::plan::Owners;
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{ShardRange, Step};

use crate::dance::{Dance, FIRST_STEP, Gradient, config, in_process_links, patiently, start};
use crate::far::Far;

const STEPS: u64 = 2;

/// Nine chunks in two parts and one more, of one type, with a gap between tensors.
fn even(dtype: Dtype) -> Arc<Layout> {
    let elements = 280_003 * 4 / dtype.bytes();
    let tensors = vec![
        TensorSpec::new("a", dtype, &[elements]),
        TensorSpec::new("none", dtype, &[0]),
        TensorSpec::new("b", dtype, &[41]),
    ];
    Arc::new(Layout::new(tensors, 3).unwrap())
}

fn expected(layout: &Layout, step: u64, shards: u32) -> Vec<u8> {
    let sum = Gradient::sequential(layout, Step::new(FIRST_STEP.get() + step), shards);
    sum.buffer(layout).bytes().to_vec()
}

async fn check(dance: &Dance, shards: u32) {
    let sums = dance.run(in_process_links(&dance.first, &dance.steady), STEPS, false).await;
    for (step, ranks) in (0..).zip(&sums) {
        let expected = expected(&dance.layout, step, shards);
        for (rank, (bytes, _)) in ranks.iter().enumerate() {
            assert!(*bytes == expected, "step {step} rank {rank} differs");
        }
    }
}

const KEEPS: [fn(u32) -> bool; 4] = [|_| true, |shard| shard % 3 != 2, |shard| shard >= 4, |shard| shard % 2 == 1];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wherever_gradients_lie_the_sum_has_the_bits_of_sequential_addition() {
    for dtype in [Dtype::F32, Dtype::F64] {
        for world in [2, 3, 5] {
            for (number, keeps) in KEEPS.into_iter().enumerate() {
                let far = Far::new(keeps);
                let dance = Dance {
                    layout: even(dtype),
                    far: Some(far.clone()),
                    ..Dance::new(Order::Exact, world, 8)
                };
                check(&dance, 8).await;
                // Then each rank's first gradient is here.
                let passes = (number, world) != (3, 2);
                assert_eq!(far.crossed.down.load(Ordering::Relaxed) > 0, passes, "{number} {world}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gradients_come_from_there_for_other_plans_and_tensors_of_several_types() {
    let far = || Far::new(|shard| shard != 1);
    let owners = Owners::All;
    for dance in [Dance::direct(3, 8, owners), Dance::new(Order::Exact, 3, 8)] {
        let far = far();
        let dance = Dance {
            far: Some(far.clone()),
            ..dance
        };
        check(&dance, 8).await;
        let crossed = [&far.crossed.down, &far.crossed.lowered].map(|bytes| bytes.load(Ordering::Relaxed));
        assert!(crossed[0] == 0 && crossed[1] > 0, "{crossed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_gradient_comes_from_where_the_sum_passes() {
    let (far, world, layout) = (Far::new(|_| true), 4, even(Dtype::F32));
    let gradient = layout.tensors_end() as u64;
    let mut dance = Dance {
        layout,
        far: Some(far.clone()),
        ..Dance::new(Order::Exact, world, 8)
    };
    dance.first = dance.steady.clone();
    check(&dance, 8).await;
    let crossed = [&far.crossed.down, &far.crossed.up, &far.crossed.lowered].map(|bytes| bytes.load(Ordering::Relaxed));
    // Each of two shards a rank; the first rank's sum begins there. The closer's stays as well.
    assert_eq!(crossed, [4 * gradient, 3 * gradient, 0].map(|bytes| bytes * STEPS));
    assert_eq!(far.crossed.stays.load(Ordering::Relaxed), STEPS);
    // The closer's first part goes to the sum by itself, as far as what passes it does so; with the last chunk comes what is added here.
    assert_eq!(far.crossed.placed.load(Ordering::Relaxed), LOWERED_BYTES as u64 * STEPS);
}

#[tokio::test]
async fn a_rank_whose_gradient_is_not_written_yet_sees_that_the_rank_before_it_is_gone() {
    let dance = Dance {
        layout: even(Dtype::F32),
        ..Dance::new(Order::Exact, 2, 4)
    };
    // The steady plan, in which the second rank has one visit, behind the first rank's.
    let plan = &dance.steady;
    let mut links = in_process_links(plan, plan).into_iter();
    drop(links.next());
    let dancer = start(config(1, plan, plan, &dance.layout), links.next().unwrap());
    dancer.begin(FIRST_STEP, GradientBuffer::zeros(&dance.layout));
    let mut buffers = Vec::new();
    for shard in 2..4 {
        let mut buffer = GradientBuffer::zeros(&dance.layout);
        let input = RingInput::Piece {
            step: FIRST_STEP,
            shards: ShardRange::one(shard),
            gradient: buffer.awaited(&dance.layout),
        };
        dancer.inbox.send(input).unwrap();
        buffers.push(buffer);
    }
    let end = patiently(dancer.ring).await.unwrap();
    assert!(matches!(end, Err(RingError::Link { .. })), "{end:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_fails_ends_its_rank_with_the_reason_and_leaves_gradients_as_they_are() {
    for lasts in [0, 1, 2] {
        let far = Far::new(|_| true);
        far.lasts.store(lasts, Ordering::Relaxed);
        let dance = Dance {
            layout: even(Dtype::F32),
            far: Some(far.clone()),
            ..Dance::new(Order::Exact, 2, 4)
        };
        let mut links = in_process_links(&dance.first, &dance.steady).into_iter();
        let [zero, one] = [0, 1].map(|rank| {
            let config = config(rank, &dance.first, &dance.steady, &dance.layout);
            start(config, links.next().unwrap())
        });
        let mut kept: Vec<(ShardRange, GradientBuffer)> = Vec::new();
        for (rank, dancer) in [(0, &zero), (1, &one)] {
            dancer.begin(FIRST_STEP, GradientBuffer::zeros(&dance.layout));
            for (shards, mut gradient) in dance.pieces(rank, FIRST_STEP) {
                dancer.piece(FIRST_STEP, shards, &mut gradient);
                kept.push((shards, gradient));
            }
        }
        let ends = [patiently(zero.ring).await.unwrap(), patiently(one.ring).await.unwrap()];
        let burns = |end: &Result<(), RingError>| match end {
            Err(error @ RingError::Lowering { .. }) => error.to_string().ends_with("from where it lies: it burns"),
            Ok(()) | Err(_) => false,
        };
        assert!(ends.iter().any(burns), "{ends:?}");
        // Another ring sums them.
        far.lasts.store(u64::MAX, Ordering::Relaxed);
        kept.sort_by_key(|(shards, _)| shards.start());
        let kept = kept.into_iter().map(|(_, gradient)| gradient);
        let layout = Arc::clone(&dance.layout);
        let adding = tokio::task::spawn_blocking(move || sardana_collectives::alone::add_up(&layout, FIRST_STEP, kept));
        let sum = adding.await.unwrap().unwrap();
        assert!(sum.bytes() == expected(&dance.layout, 0, 4));
    }
}
