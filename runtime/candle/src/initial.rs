//! First values of tensors: candle's own initialisers, drawn from the job's seed and the tensor's name. candle's generator cannot be
//! seeded on a CPU.

use candle_core::{Result, Shape};
use candle_nn::Init;
use candle_nn::init::NormalOrUniform;
use sardana::data::{CounterRng, Domain};

/// The first values of the tensor `name`, row-major.
pub(crate) fn values(seed: u64, name: &str, shape: &Shape, init: Init) -> Result<Vec<f32>> {
    let count = shape.elem_count();
    let mut rng = CounterRng::new(seed, Domain::named(name));
    let values = match init {
        Init::Const(value) => vec![value as f32; count],
        Init::Uniform { lo, up } => uniform(&mut rng, count, lo, up),
        Init::Randn { mean, stdev } => normal(&mut rng, count, mean, stdev),
        Init::Kaiming {
            dist,
            fan,
            non_linearity,
        } => {
            let deviation = non_linearity.gain() / (fan.for_shape(shape).max(1) as f64).sqrt();
            match dist {
                NormalOrUniform::Uniform => {
                    let bound = 3_f64.sqrt() * deviation;
                    uniform(&mut rng, count, -bound, bound)
                }
                NormalOrUniform::Normal => normal(&mut rng, count, 0.0, deviation),
            }
        }
    };
    Ok(values)
}

fn uniform(rng: &mut CounterRng, count: usize, low: f64, high: f64) -> Vec<f32> {
    (0..count).map(|_| (low + (high - low) * rng.uniform_f64()) as f32).collect()
}

/// Two at a time from two uniform numbers (Box and Muller: "A note on the generation of random normal deviates", 1958).
fn normal(rng: &mut CounterRng, count: usize, mean: f64, deviation: f64) -> Vec<f32> {
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        // Above 0, so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - rng.uniform_f64()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * rng.uniform_f64()).sin_cos();
        values.extend([cosine, sine].map(|unit| (mean + deviation * radius * unit) as f32));
    }
    values.truncate(count);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_depend_on_the_seed_and_the_name_alone() {
        let draw = |seed, name| values(seed, name, &Shape::from((4, 3)), candle_nn::init::DEFAULT_KAIMING_NORMAL).unwrap();
        assert_eq!(draw(1, "a.weight"), draw(1, "a.weight"));
        assert_ne!(draw(1, "a.weight"), draw(1, "b.weight"));
        assert_ne!(draw(1, "a.weight"), draw(2, "a.weight"));
    }

    #[test]
    fn values_are_spread_as_asked() {
        let shape = Shape::from((100, 200));
        let moments = |values: &[f32]| {
            let n = values.len() as f64;
            let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / n;
            let square = values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>() / n;
            (mean, (square - mean * mean).sqrt())
        };
        // Kaiming after a rectifier: √(2 / 200), either way.
        for init in [
            candle_nn::init::DEFAULT_KAIMING_UNIFORM,
            candle_nn::init::DEFAULT_KAIMING_NORMAL,
        ] {
            let (mean, deviation) = moments(&values(1, "weight", &shape, init).unwrap());
            assert!(
                mean.abs() < 0.003 && (deviation - 0.1).abs() < 0.002,
                "{init:?}: {mean} {deviation}"
            );
        }
        let init = Init::Randn { mean: 5.0, stdev: 2.0 };
        let (mean, deviation) = moments(&values(1, "weight", &shape, init).unwrap());
        assert!(
            (mean - 5.0).abs() < 0.06 && (deviation - 2.0).abs() < 0.04,
            "{mean} {deviation}"
        );
        let bounded = values(1, "weight", &shape, Init::Uniform { lo: -1.0, up: 3.0 }).unwrap();
        assert!(bounded.iter().all(|value| (-1.0..=3.0).contains(value)));
        assert_eq!(values(1, "bias", &Shape::from(3), Init::Const(0.5)).unwrap(), [0.5; 3]);
    }
}
