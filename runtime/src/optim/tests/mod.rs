//! What holds for every optimizer: the same bits wherever a tensor is cut, constants that are refused, descriptions.

mod golden;
mod reference;

use super::*;
use crate::data::{CounterRng, Domain};

/// Each optimizer, and each form that has code of its own.
fn every_optimizer() -> Vec<Box<dyn Optimizer>> {
    vec![
        Box::new(Sgd::new()),
        Box::new(Sgd::new().momentum(0.9)),
        Box::new(Sgd::nesterov(0.9)),
        Box::new(RmsProp::new()),
        Box::new(RmsProp::new().momentum(0.9)),
        Box::new(Adagrad::new()),
        Box::new(Adam::new()),
        Box::new(AdamW::new()),
        Box::new(Lars::new()),
    ]
}

/// Evenly spread in -1..1.
fn draw(rng: &mut CounterRng, length: usize) -> Vec<f32> {
    (0..length).map(|_| 2.0 * rng.uniform_f32() - 1.0).collect()
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

/// A tensor and its slots.
#[derive(Clone, Debug, PartialEq)]
struct Tensor {
    values: Vec<f32>,
    slots: Vec<Vec<f32>>,
}

impl Tensor {
    fn new(optimizer: &dyn Optimizer, values: Vec<f32>) -> Self {
        let slots = vec![vec![0.0; values.len()]; optimizer.slots().len()];
        Self { values, slots }
    }

    /// One update in runs that end at `cuts`, and one after the last of them.
    fn update(&mut self, optimizer: &dyn Optimizer, update: &Update, gradient: &[f32], cuts: &[usize]) {
        let mut begin = 0;
        for &end in cuts.iter().chain([&gradient.len()]) {
            let mut slots: Vec<_> = self.slots.iter_mut().map(|slot| &mut slot[begin..end]).collect();
            optimizer.update(update, &mut self.values[begin..end], &gradient[begin..end], &mut slots);
            begin = end;
        }
    }

    fn norms(&self, gradient: &[f32]) -> Norms {
        Norms {
            values: norm(&self.values),
            gradient: norm(gradient),
        }
    }

    fn bits(&self) -> Vec<u32> {
        let all = self.slots.iter().chain([&self.values]).flatten();
        all.map(|value| value.to_bits()).collect()
    }
}

#[test]
fn a_tensor_cut_anywhere_has_the_same_bits() {
    // Past the widths of every vector unit, and no multiple of one.
    let length = 1_003;
    for optimizer in every_optimizer() {
        let mut rng = CounterRng::new(11, Domain::User { stream: 0 });
        let mut whole = Tensor::new(optimizer.as_ref(), draw(&mut rng, length));
        let cut = [vec![0, 1, 4, 9, 9, 26, 63, 500, 1_002], (1..length).collect()];
        let mut parts = cut.map(|cuts| (whole.clone(), cuts));
        for number in 1..=5 {
            let gradient = draw(&mut rng, length);
            let (rate, decay, norms) = (0.013, 0.0007, whole.norms(&gradient));
            let update = Update {
                number,
                rate,
                decay,
                norms,
            };
            whole.update(optimizer.as_ref(), &update, &gradient, &[]);
            for (part, cuts) in &mut parts {
                part.update(optimizer.as_ref(), &update, &gradient, cuts);
                assert_eq!(part.bits(), whole.bits(), "{}, update {number}", optimizer.describe());
            }
        }
    }
}

#[test]
fn an_update_without_gradient_or_decay_changes_nothing_that_never_had_one() {
    for optimizer in every_optimizer() {
        let mut tensor = Tensor::new(optimizer.as_ref(), vec![0.5, -1.25, 0.0, 1e-30]);
        let before = tensor.clone();
        for number in [1, 2, 1_000_000, u64::MAX] {
            let update = Update {
                number,
                rate: 0.1,
                decay: 0.0,
                norms: before.norms(&[0.0; 4]),
            };
            tensor.update(optimizer.as_ref(), &update, &[0.0; 4], &[]);
            assert_eq!(tensor, before, "{}, update {number}", optimizer.describe());
        }
    }
}

#[test]
fn a_late_update_needs_no_correction_of_bias() {
    // Both moments are where they would stay, so the update is the rate's size.
    let mut tensor = Tensor {
        values: vec![0.0],
        slots: vec![vec![2.0], vec![4.0]],
    };
    let update = Update {
        number: u64::MAX,
        rate: 0.5,
        decay: 0.0,
        norms: Norms::default(),
    };
    tensor.update(&Adam::new(), &update, &[2.0], &[]);
    assert_eq!(tensor.values, [-0.5]);
    assert_eq!(tensor.slots, [[2.0], [4.0]]);
}

#[test]
fn the_ratio_of_lars_is_one_where_a_norm_is_zero() {
    let after = |values: f64, gradient: f64, decay: f64| {
        let mut tensor = Tensor::new(&Lars::new(), vec![1.0]);
        let norms = Norms { values, gradient };
        let update = Update {
            number: 1,
            rate: 0.25,
            decay,
            norms,
        };
        tensor.update(&Lars::new(), &update, &[2.0], &[]);
        tensor.values[0]
    };
    assert_eq!(after(3.0, 2.0, 0.0), 1.0 - 0.25 * 0.0015 * 2.0);
    assert_eq!(after(0.0, 2.0, 0.5), 0.375);
    assert_eq!(after(3.0, 0.0, 0.5), 0.375);
    let ratio = 0.001 * 3.0 / (2.0 + 0.5 * 3.0);
    assert!((f64::from(after(3.0, 2.0, 0.5)) - (1.0 - 0.25 * ratio * 2.5)).abs() < 1e-7);
}

#[test]
fn only_lars_asks_for_norms() {
    let asking: Vec<_> = every_optimizer()
        .into_iter()
        .filter(|optimizer| optimizer.wants_norms())
        .collect();
    assert_eq!(
        asking.iter().map(|optimizer| optimizer.describe()).collect::<Vec<_>>(),
        [Lars::new().describe()]
    );
}

#[test]
fn the_defaults_are_right_and_a_description_has_all_constants() {
    let expected = [
        "sgd(momentum 0)",
        "sgd(momentum 0.9)",
        "sgd(momentum 0.9, nesterov)",
        "rmsprop(alpha 0.99, epsilon 0.00000001, momentum 0)",
        "rmsprop(alpha 0.99, epsilon 0.00000001, momentum 0.9)",
        "adagrad(epsilon 0.0000000001)",
        "adam(beta1 0.9, beta2 0.999, epsilon 0.00000001)",
        "adamw(beta1 0.9, beta2 0.999, epsilon 0.00000001)",
        "lars(trust 0.001, momentum 0.9, epsilon 0.00000001)",
    ];
    for (optimizer, expected) in every_optimizer().iter().zip(expected) {
        assert_eq!(optimizer.describe(), expected);
        assert_eq!(optimizer.check(), Ok(()));
    }
}

#[test]
fn a_constant_out_of_range_is_refused_by_name() {
    let refuse = |optimizer: &dyn Optimizer, constant: &str, found: f64| {
        let words = optimizer.check().unwrap_err().to_string();
        let name = optimizer.describe();
        let (name, _) = name.split_once('(').unwrap();
        assert!(words.starts_with(&format!("{name}: expected {constant} to be ")), "{words}");
        assert!(words.contains(&format!(", found {found}; ")), "{words}");
    };
    // The last is 1 as an f32.
    for found in [-0.1, 1.0, 2.0, f64::NAN, f64::INFINITY, 0.999_999_999_9] {
        refuse(&Sgd::new().momentum(found), "momentum", found);
        refuse(&Sgd::nesterov(found), "momentum", found);
        refuse(&RmsProp::new().momentum(found), "momentum", found);
        refuse(&RmsProp::new().alpha(found), "alpha", found);
        refuse(&Adam::new().betas(found, 0.999), "beta1", found);
        refuse(&AdamW::new().betas(0.9, found), "beta2", found);
        refuse(&Lars::new().momentum(found), "momentum", found);
    }
    refuse(&Sgd::nesterov(0.0), "momentum", 0.0);
    // 1e-50 is 0 as an f32, and 1e50 infinite.
    for found in [-1e-8, 0.0, 1e-50, 1e50, f64::NAN, f64::INFINITY] {
        refuse(&RmsProp::new().epsilon(found), "epsilon", found);
        refuse(&Adagrad::new().epsilon(found), "epsilon", found);
        refuse(&Adam::new().epsilon(found), "epsilon", found);
        refuse(&AdamW::new().epsilon(found), "epsilon", found);
    }
    for found in [-1e-8, f64::NAN, f64::INFINITY] {
        refuse(&Lars::new().epsilon(found), "epsilon", found);
        refuse(&Lars::new().trust(found), "trust", found);
    }
    refuse(&Lars::new().trust(0.0), "trust", 0.0);
    assert_eq!(Lars::new().epsilon(0.0).check(), Ok(()));
}

#[test]
#[should_panic(expected = "expected 2 slots, found 1")]
fn a_slot_too_few_is_not_overlooked() {
    let update = Update {
        number: 1,
        rate: 0.1,
        decay: 0.0,
        norms: Norms::default(),
    };
    Adam::new().update(&update, &mut [1.0], &[1.0], &mut [&mut [0.0]]);
}

#[test]
#[should_panic(expected = "a gradient is as long as the values")]
fn a_gradient_too_short_is_not_overlooked() {
    let update = Update {
        number: 1,
        rate: 0.1,
        decay: 0.0,
        norms: Norms::default(),
    };
    Sgd::new().update(&update, &mut [1.0, 2.0], &[1.0], &mut []);
}
