//! The fast ring: equal bits on all ranks, close to the sequential sum, and the same trailer; also where it is compressed, in half the bytes.

use std::sync::Arc;

use sardana_collectives::gradient::Sum;
use sardana_collectives::layout::Layout;
use sardana_collectives::links::frame::{HEADER_BYTES, TRAILER_BYTES};
use sardana_collectives::links::{self, Meter};
use sardana_collectives::ring::RingLinks;
use sardana_protocol::job::{Compression, Order};
use sardana_protocol::messages::Trailer;
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::Step;

use crate::dance::{Dance, FIRST_STEP, Gradient, Values, in_process_links};

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Bf16, Compression::F16];

/// Sums of values and of magnitudes, in f64.
fn wide(dance: &Dance, step: Step, shards: u32) -> (Vec<f64>, Vec<f64>) {
    let mut sums = Vec::new();
    let mut magnitudes = Vec::new();
    for shard in 0..shards {
        let gradient = Gradient::draw(&dance.layout, step, shard);
        let values = gradient.tensors.iter().flat_map(|values| match values {
            Values::F32(values) => values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>(),
            Values::F64(values) => values.clone(),
        });
        for (index, value) in values.chain(gradient.auxiliary.iter().copied()).enumerate() {
            if index == sums.len() {
                sums.push(0.0);
                magnitudes.push(0.0);
            }
            sums[index] += value;
            magnitudes[index] += value.abs();
        }
    }
    (sums, magnitudes)
}

/// How far from the sum of the shards a result may be, for each part of the sum of their magnitudes: each of its terms is rounded at most once
/// for each shard that is added, and to halves, if it is an f32, once for each rank.
fn bound(dance: &Dance, shards: u32, magnitude: f64, is_f32: bool) -> f64 {
    let (unit, least) = match dance.compression {
        _ if !is_f32 => (0.0, 0.0),
        Compression::None => (0.0, 0.0),
        Compression::Bf16 => (2_f64.powi(-8), 0.0),
        Compression::F16 => (2_f64.powi(-11), 2_f64.powi(-25)),
    };
    let ranks = dance.first.parts().len() as i32;
    let growth = (1.0 + unit).powi(ranks) * (1.0 + f64::from(f32::EPSILON) / 2.0).powi(shards as i32 + 2);
    (growth - 1.0) * magnitude + f64::from(ranks) * least * growth
}

/// Compares what the ranks have of a step with sums in f64. The largest part of the bound that is used, of f32.
pub(crate) fn compare(dance: &Dance, step: Step, shards: u32, bytes: &[u8]) -> f64 {
    let sum = Sum::from_bytes(step, &dance.layout, bytes.to_vec()).unwrap();
    let samples: u64 = (0..shards)
        .map(|shard| Gradient::draw(&dance.layout, step, shard).samples)
        .sum();
    assert_eq!(sum.samples(&dance.layout), samples);
    let mean = sum.mean(&dance.layout);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let n = samples as f64;
    let narrow = |index| mean.f32(index).unwrap().into_iter().map(|mean| (f64::from(mean) * n, true));
    let wide = mean.f64(2).unwrap().into_iter().map(|mean| (mean * n, false));
    let found = narrow(0).chain(narrow(1)).chain(wide).chain(narrow(3));
    let found: Vec<(f64, bool)> = found.chain(mean.auxiliary().into_iter().map(|sum| (sum, false))).collect();
    let (expected, magnitudes) = self::wide(dance, step, shards);
    assert_eq!(found.len(), expected.len());
    let mut most = 0.0_f64;
    for (((found, is_f32), expected), magnitude) in found.into_iter().zip(expected).zip(magnitudes) {
        if dance.compression == Compression::F16 && !found.is_finite() {
            assert!(is_f32 && magnitude >= 65_000.0, "{expected} has become {found}");
            continue;
        }
        let (error, bound) = ((found - expected).abs(), bound(dance, shards, magnitude, is_f32));
        assert!(error <= bound, "{found} is not close to {expected}, {}", dance.compression);
        most = most.max(if is_f32 { error / bound.max(f64::MIN_POSITIVE) } else { 0.0 });
    }
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_ranks_agree_and_are_close_to_the_sequential_sum() {
    const STEPS: u64 = 3;
    let worlds = [(1, 5), (2, 5), (3, 8), (5, 16), (8, 5), (8, 16), (9, 9)];
    for (compression, (world, shards)) in COMPRESSIONS
        .into_iter()
        .flat_map(|compression| worlds.map(|world| (compression, world)))
    {
        let dance = Dance {
            compression,
            ..Dance::new(Order::Fast, world, shards)
        };
        let sums = dance
            .run(in_process_links(&dance.first, &dance.steady), STEPS, world % 2 == 0)
            .await;
        for (ranks, step) in sums.iter().zip(FIRST_STEP.get()..) {
            let (bytes, trailer) = &ranks[0];
            assert!(
                ranks.iter().all(|other| other == &ranks[0]),
                "N={world}: every rank has the same"
            );
            let last = step == FIRST_STEP.get() + STEPS - 1;
            assert_eq!(
                *trailer,
                if last && world % 2 == 0 {
                    Trailer::Stop
                } else {
                    Trailer::Continue
                }
            );
            if world == 1 {
                let whole = Gradient::sequential(&dance.layout, Step::new(step), shards).buffer(&dance.layout);
                assert!(*bytes == whole.bytes(), "a rank alone rounds nothing");
            }
            let most = compare(&dance, Step::new(step), shards, bytes);
            // A bound that is never nearly reached would bound nothing.
            assert!(
                compression == Compression::None || world != 2 || most > 0.3,
                "{most} of the bound"
            );
        }
    }
}

/// What all ranks have sent over links in so many steps, by the links' meters.
async fn sent(dance: &Dance, steps: u64) -> u64 {
    let links = RingLinks::of_all(&dance.first, &dance.steady, links::in_process);
    let senders = |links: &RingLinks| -> Vec<Meter> {
        let senders = links.first.outgoing.values().chain(links.steady.outgoing.values());
        senders.map(|sender| sender.meter().clone()).collect()
    };
    let meters: Vec<Meter> = links.iter().flat_map(senders).collect();
    dance.run(links, steps, true).await;
    meters.iter().map(Meter::bytes).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_f32_travels_in_two_bytes_where_it_is_compressed() {
    const STEPS: u64 = 3;
    const ELEMENTS: u64 = 301 * 503;
    let tensors = vec![TensorSpec::new("weights", Dtype::F32, &[301, 503])];
    let layout = Arc::new(Layout::new(tensors, 2).unwrap());
    for (world, compression) in [2, 3, 5].into_iter().flat_map(|world| COMPRESSIONS.map(|to| (world, to))) {
        let dance = Dance {
            compression,
            layout: Arc::clone(&layout),
            ..Dance::new(Order::Fast, world, 8)
        };
        let (others, chunks) = (u64::from(world) - 1, u64::from(layout.chunks()));
        let (each, zeros) = match compression {
            // The zeros before the next cache line are sent as well.
            Compression::None => (4, layout.bytes() as u64 - ELEMENTS * 4 - 3 * 8),
            Compression::Bf16 | Compression::F16 => (2, 0),
        };
        // Over all links each chunk passes n - 1 hops as a running sum and as many as a finished one; two auxiliary sums and a count are with them.
        let payloads = 2 * others * (ELEMENTS * each + zeros + 3 * 8);
        let headers = (2 * others * chunks + others) * HEADER_BYTES as u64;
        let expected = STEPS * (payloads + headers + others * u64::from(TRAILER_BYTES));
        assert_eq!(sent(&dance, STEPS).await, expected, "{compression}, {world} ranks");
    }
}
