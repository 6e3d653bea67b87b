//! Odd gradients that lie elsewhere: shards that are empty, what is not a number, and auxiliary sums that two chunks share with tensors and the number of
//! samples. Their sums have the bits of addition number by number, which is written out here.

use std::sync::Arc;

use sardana_collectives::gradient::{GradientBuffer, WriteMode};
use sardana_collectives::layout::Layout;
use sardana_collectives::limits::CHUNK_BYTES;
use sardana_protocol::job::Order;
use sardana_protocol::plan::Plan;
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::{Rank, ShardRange};

use crate::dance::{Dancer, FIRST_STEP, Gradient, Values, config, in_process_links, patiently, start, steady};
use crate::far::Far;

const SHARDS: u32 = 8;

/// The second shard of the first rank, whose shards are added in one buffer.
const EMPTY: u32 = 1;

/// Numbers of different magnitudes, -0.0 in all shards that have samples, infinities, and NaNs of which each has bits of its own.
fn odd(at: usize, shard: u32) -> f32 {
    match (at % 13, shard) {
        (0, _) => -0.0,
        (1, 0) => f32::from_bits(0x7fa0_1234),
        (2, 2) | (3, 7) => f32::from_bits(0xffc0_0777 + shard),
        (4, 0) | (5, 3) => f32::INFINITY,
        (4, 2) | (5, 6) => f32::NEG_INFINITY,
        (number, _) => ((at * 31 + shard as usize * 17) % 1_009) as f32 * 0.37_f32.powi(number as i32) - 9.1,
    }
}

/// None is an empty shard.
fn drawn(layout: &Layout, shard: u32) -> Option<Gradient> {
    let values = |spec: &TensorSpec| Values::F32((0..spec.elements().unwrap()).map(|at| odd(at, shard)).collect());
    (shard != EMPTY).then(|| Gradient {
        tensors: layout.tensors().iter().map(values).collect(),
        auxiliary: (0..layout.auxiliary()).map(|at| f64::from(odd(at, shard)) * 1.1).collect(),
        samples: 3 + u64::from(shard),
    })
}

/// The one NaN is f32's own.
fn plus(sum: &mut [f32], shard: &[f32]) {
    for (sum, shard) in sum.iter_mut().zip(shard) {
        *sum += shard;
        if sum.is_nan() {
            *sum = f32::from_bits(0x7fc0_0000);
        }
    }
}

fn expected(layout: &Layout) -> Vec<u8> {
    let mut sum = drawn(layout, 0).unwrap();
    for shard in 1..SHARDS {
        let next = drawn(layout, shard);
        for (index, values) in sum.tensors.iter_mut().enumerate() {
            let Values::F32(values) = values else { panic!("all are f32") };
            match next.as_ref().map(|next| &next.tensors[index]) {
                Some(Values::F32(next)) => plus(values, next),
                Some(Values::F64(_)) => panic!("all are f32"),
                None => values.iter_mut().for_each(|value| plus(std::slice::from_mut(value), &[0.0])),
            }
        }
        for (index, sum) in sum.auxiliary.iter_mut().enumerate() {
            *sum += next.as_ref().map_or(0.0, |next| next.auxiliary[index]);
            if sum.is_nan() {
                *sum = f64::from_bits(0x7ff8_0000_0000_0000);
            }
        }
        sum.samples += next.map_or(0, |next| next.samples);
    }
    sum.buffer(layout).bytes().to_vec()
}

/// The first three shards of a rank that begins the sum are one piece.
fn pieces(layout: &Layout, shards: ShardRange, far: &Far) -> Vec<(ShardRange, GradientBuffer)> {
    let joined = if shards.start() == 0 { shards.len().min(3) } else { 1 };
    let head = ShardRange::new(shards.start(), shards.start() + joined);
    let rest = (head.end()..shards.end()).map(ShardRange::one);
    let write = |piece: ShardRange| {
        let mut buffer = GradientBuffer::zeros(layout);
        let memory = (far.keeps)(piece.start()).then(|| far.memory(layout));
        for shard in piece.iter() {
            let mode = if shard == piece.start() {
                WriteMode::Store
            } else {
                WriteMode::Add
            };
            match (drawn(layout, shard), &memory) {
                (Some(gradient), Some(memory)) => memory.keep(&gradient, layout, &mut buffer, mode),
                (Some(gradient), None) => gradient.write(layout, &mut buffer, mode),
                (None, _) => buffer.writer(layout, mode).zero().unwrap(),
            }
        }
        (piece, buffer)
    };
    std::iter::once(head).chain(rest).map(write).collect()
}

async fn sums(layout: &Arc<Layout>, world: u32, far: &Far) -> Vec<Vec<u8>> {
    let plan = Plan::new(Order::Exact, world, &steady(world, SHARDS));
    let links = in_process_links(&plan, &plan);
    let mut dancers: Vec<Dancer> = (0..world)
        .zip(links)
        .map(|(rank, links)| start(config(rank, &plan, &plan, layout), links))
        .collect();
    let mut held = Vec::new();
    for (rank, dancer) in (0..world).zip(&dancers) {
        dancer.begin(FIRST_STEP, GradientBuffer::zeros(layout));
        for shards in plan.part(Rank::new(rank)).unwrap().shards() {
            for (piece, mut gradient) in pieces(layout, shards, far) {
                dancer.piece(FIRST_STEP, piece, &mut gradient);
                held.push(gradient);
            }
        }
    }
    let mut sums = Vec::new();
    for dancer in &mut dancers {
        let done = patiently(dancer.completed.recv()).await.expect("the ring sums the step");
        sums.push(done.sum.bytes().to_vec());
    }
    sums
}

fn layout(elements: usize, auxiliary: usize) -> Arc<Layout> {
    let tensors = vec![
        TensorSpec::new("a", Dtype::F32, &[elements]),
        TensorSpec::new("b", Dtype::F32, &[0]),
    ];
    Arc::new(Layout::new(tensors, auxiliary).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_gradients_that_lie_elsewhere_have_the_bits_of_addition_number_by_number() {
    // The tail begins with the last chunk; within it; and before it, for which the last chunk has nothing else.
    let whole = 9 * CHUNK_BYTES / 4;
    for (elements, auxiliary) in [(whole, 20), (whole + 40, 3), (whole - 16, 20)] {
        let layout = layout(elements, auxiliary);
        assert_eq!(layout.chunks(), 10);
        let expected = expected(&layout);
        let keeps: [fn(u32) -> bool; 3] = [|_| true, |shard| shard < 4, |shard| shard >= 3];
        for world in [2, 3] {
            for keeps in keeps {
                let far = Far::new(keeps);
                for sum in sums(&layout, world, &far).await {
                    assert!(sum == expected, "{elements} {world}");
                }
            }
        }
    }
}
