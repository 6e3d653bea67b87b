//! The fast ring: equal bits on all ranks, close to the sequential sum, and the same trailer.

use sardana_collectives::gradient::Sum;
use sardana_protocol::job::Order;
use sardana_protocol::messages::Trailer;
use sardana_protocol::words::Step;

use crate::dance::{Dance, FIRST_STEP, Gradient, Values, in_process_links};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_ranks_agree_and_are_close_to_the_sequential_sum() {
    const STEPS: u64 = 3;
    for (world, shards) in [(1, 5), (2, 5), (3, 8), (5, 16), (8, 5), (8, 16)] {
        let dance = Dance::new(Order::Fast, world, shards);
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

            let step = Step::new(step);
            let sum = Sum::from_bytes(step, &dance.layout, bytes.clone()).unwrap();
            let samples: u64 = (0..shards)
                .map(|shard| Gradient::draw(&dance.layout, step, shard).samples)
                .sum();
            assert_eq!(sum.samples(&dance.layout), samples);
            let mean = sum.mean(&dance.layout);
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            let n = samples as f64;
            let found = [mean.f32(0).unwrap(), mean.f32(1).unwrap()]
                .concat()
                .into_iter()
                .map(f64::from);
            let found = found
                .chain(mean.f64(2).unwrap())
                .chain(mean.f32(3).unwrap().into_iter().map(f64::from));
            let found: Vec<f64> = found.map(|mean| mean * n).chain(mean.auxiliary()).collect();
            let (expected, magnitudes) = wide(&dance, step, shards);
            assert_eq!(found.len(), expected.len());
            for ((found, expected), magnitude) in found.iter().zip(expected).zip(magnitudes) {
                let bound = f64::from(shards + 2) * f64::from(f32::EPSILON) * magnitude;
                assert!((found - expected).abs() <= bound, "{found} is not close to {expected}");
            }
        }
    }
}
