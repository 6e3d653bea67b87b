//! Means and updates, against their references, a sum's mean, and the optimizers.

use sardana::optim::{self, Norms, Optimizer, Sgd, Update};
use sardana_collectives::gradient::Sum;
use sardana_collectives::layout::Layout;
use sardana_cuda::geometry::{self, Geometry};
use sardana_cuda::kernels::{ADAM, Kernel, MEAN_F32, MEAN_F64, MOMENTUM, Module, NESTEROV, SGD};
use sardana_cuda::parameters::{Adam, Descent, Moments};
use sardana_cuda::reference::updates;
use sardana_protocol::state::{Dtype, TensorSpec};
use sardana_protocol::words::Step;
use sardana_twins::{Address, Argument, Memory, Twin};

use crate::numbers::{LENGTHS, MANY, Numbers};
use crate::twin::{Found, any_geometry, in_all_orders, run, same, twin};

/// Runs an update of values and slots, and returns them.
fn updated(
    at: (&Twin, u64),
    (kernel, geometry): (Kernel, Option<Geometry>),
    state: &[Vec<f32>],
    sum: &[f32],
    by: Argument,
) -> Result<Vec<Vec<f32>>, Found> {
    let mut memory = Memory::new();
    let addresses: Vec<Address> = state.iter().map(|values| memory.holding(values)).collect();
    let mut arguments: Vec<Argument> = addresses.iter().map(|&address| address.into()).collect();
    arguments.extend([memory.constant(sum).into(), by, (sum.len() as u64).into()]);
    run(at, kernel, geometry, &mut memory, &arguments)?;
    Ok(addresses.iter().map(|&address| memory.read(address, sum.len())).collect())
}

/// The reference of an update with a velocity.
type WithVelocity = fn(&mut [f32], &mut [f32], &[f32], &Descent);

fn descent(numbers: &mut Numbers) -> Descent {
    Descent {
        divisor: (1 + numbers.below(1_000)) as f32,
        factor: [1.0, 0.3][numbers.below(2) as usize],
        rate: 0.07,
        decay: [0.0, 1e-2][numbers.below(2) as usize],
        momentum: 0.9,
    }
}

fn moments(numbers: &mut Numbers) -> Moments {
    let adam = Adam {
        number: 1 + numbers.below(100),
        rate: 1e-2,
        decay: [0.0, 1e-2][numbers.below(2) as usize],
        betas: [0.9, 0.999],
        epsilon: 1e-8,
        decoupled: numbers.below(2) == 0,
    };
    adam.moments((1 + numbers.below(1_000)) as f32, [1.0, 0.3][numbers.below(2) as usize])
}

/// Values and slots, and a sum: of one magnitude, or any.
fn state(numbers: &mut Numbers, slots: usize, length: usize, any: bool) -> (Vec<Vec<f32>>, Vec<f32>) {
    let mut draw = || if any { numbers.all(length) } else { numbers.near(length) };
    let mut state: Vec<Vec<f32>> = (0..=slots).map(|_| draw()).collect();
    if let [_, _, squares] = state.as_mut_slice() {
        squares.iter_mut().for_each(|square| *square = square.abs());
    }
    (state, draw())
}

fn check_means(at: (&Twin, u64), numbers: &mut Numbers, length: usize) -> Result<(), Found> {
    let divisor = [1.0_f32, 3.0, 0.0, f32::INFINITY, 96.0][numbers.below(5) as usize];
    let (sum, wide): (Vec<f32>, Vec<f64>) = (numbers.all(length), numbers.all(length));
    let mut memory = Memory::new();
    let (from, out) = (memory.constant(&sum), memory.room::<f32>(length));
    let arguments = [out.into(), from.into(), divisor.into(), (length as u64).into()];
    run(at, MEAN_F32, any_geometry(at.1), &mut memory, &arguments)?;
    same("mean_f32", &memory.read(out, length), &updates::mean_f32(&sum, divisor))?;
    // In place.
    let both = memory.holding(&wide);
    let arguments = [both.into(), both.into(), f64::from(divisor).into(), (length as u64).into()];
    run(at, MEAN_F64, any_geometry(at.1), &mut memory, &arguments)?;
    same(
        "mean_f64",
        &memory.read(both, length),
        &updates::mean_f64(&wide, divisor.into()),
    )
}

pub(crate) fn check(twin: &Twin, seed: u64) -> Result<(), Found> {
    let at = (twin, seed);
    let geometry = any_geometry(seed);
    let mut numbers = Numbers::new(seed);
    for length in LENGTHS {
        check_means(at, &mut numbers, length)?;
        let any = numbers.below(2) == 0;
        let (by, mut expected) = (descent(&mut numbers), state(&mut numbers, 0, length, any));
        let found = updated(at, (SGD, geometry), &expected.0, &expected.1, Argument::value(&by))?;
        updates::sgd(&mut expected.0[0], &expected.1, &by);
        same("sgd", &found[0], &expected.0[0])?;

        for (kernel, reference) in [(MOMENTUM, updates::momentum as WithVelocity), (NESTEROV, updates::nesterov)] {
            let (mut expected, sum) = state(&mut numbers, 1, length, any);
            let found = updated(at, (kernel, geometry), &expected, &sum, Argument::value(&by))?;
            let [values, velocities] = expected.as_mut_slice() else {
                unreachable!("there is one slot")
            };
            reference(values, velocities, &sum, &by);
            same(kernel.name, &found.concat(), &expected.concat())?;
        }

        let (by, (mut expected, sum)) = (moments(&mut numbers), state(&mut numbers, 2, length, any));
        let found = updated(at, (ADAM, geometry), &expected, &sum, Argument::value(&by))?;
        let [values, means, squares] = expected.as_mut_slice() else {
            unreachable!("there are two slots")
        };
        updates::adam(values, means, squares, &sum, &by);
        same("adam", &found.concat(), &expected.concat())?;
    }
    Ok(())
}

#[test]
fn updates_are_their_references_in_any_order_and_geometry() {
    in_all_orders(Module::Updates, check);
}

/// A finished sum of one tensor, and its samples.
fn finished(dtype: Dtype, elements: &[u8], count: usize, samples: u64) -> (Layout, Sum) {
    let layout = Layout::new(vec![TensorSpec::new("all", dtype, &[count])], 0).expect("one tensor is a gradient");
    let mut bytes = elements.to_vec();
    bytes.resize(layout.bytes() - 8, 0);
    bytes.extend(samples.to_le_bytes());
    let sum = Sum::from_bytes(Step::new(0), &layout, bytes).expect("a sum has the bytes of its layout");
    (layout, sum)
}

#[test]
fn many_are_divided_as_a_sum_is_by_its_samples() {
    let Some(twin) = twin(Module::Updates) else { return };
    let mut numbers = Numbers::new(15);
    // As a sum has them: with one NaN.
    let sum: Vec<f32> = numbers
        .all::<f32>(MANY)
        .iter()
        .map(|&value| if value.is_nan() { f32::NAN } else { value })
        .collect();
    let wide: Vec<f64> = numbers
        .all::<f64>(257)
        .iter()
        .map(|&value| if value.is_nan() { f64::NAN } else { value })
        .collect();
    for samples in [1, 96, 16_777_217, u64::MAX] {
        let (layout, whole) = finished(Dtype::F32, bytemuck::cast_slice(&sum), MANY, samples);
        let mut memory = Memory::new();
        let (from, out) = (memory.constant(&sum), memory.room::<f32>(MANY));
        let arguments = [out.into(), from.into(), (samples as f32).into(), (MANY as u64).into()];
        run((twin, 3), MEAN_F32, any_geometry(3), &mut memory, &arguments).unwrap();
        same("the mean", &memory.read(out, MANY), &whole.mean(&layout).f32(0).unwrap()).unwrap();

        let (layout, whole) = finished(Dtype::F64, bytemuck::cast_slice(&wide), 257, samples);
        let (from, out) = (memory.constant(&wide), memory.room::<f64>(257));
        let arguments = [out.into(), from.into(), (samples as f64).into(), 257_u64.into()];
        run((twin, 3), MEAN_F64, geometry::elements(257), &mut memory, &arguments).unwrap();
        same("the mean", &memory.read(out, 257), &whole.mean(&layout).f64(0).unwrap()).unwrap();
    }
}

/// What a kernel takes for an update by so many samples, clipped by a factor.
type By = Box<dyn Fn(&Update, f32, f32) -> Argument>;

/// An optimizer that trains without a device, and the kernel that does the same.
struct Pair {
    optimizer: Box<dyn Optimizer>,
    kernel: Kernel,
    by: By,
}

fn descends(optimizer: Sgd, kernel: Kernel, momentum: f32) -> Pair {
    let by = move |update: &Update, divisor, factor| {
        Argument::value(&Descent {
            divisor,
            factor,
            rate: update.rate as f32,
            decay: update.decay as f32,
            momentum,
        })
    };
    Pair {
        optimizer: Box::new(optimizer),
        kernel,
        by: Box::new(by),
    }
}

fn adapts(optimizer: Box<dyn Optimizer>, betas: [f64; 2], epsilon: f64, decoupled: bool) -> Pair {
    let by = move |update: &Update, divisor, factor| {
        let Update { number, rate, decay, .. } = *update;
        let adam = Adam {
            number,
            rate,
            decay,
            betas,
            epsilon,
            decoupled,
        };
        Argument::value(&adam.moments(divisor, factor))
    };
    Pair {
        optimizer,
        kernel: ADAM,
        by: Box::new(by),
    }
}

/// With one NaN: an optimizer without a device passes on whichever came.
fn one_nan(state: &[Vec<f32>]) -> Vec<f32> {
    let all = state.iter().flatten();
    all.map(|&value| if value.is_nan() { f32::NAN } else { value }).collect()
}

#[test]
fn parameters_follow_gradients_as_without_a_device() {
    let Some(twin) = twin(Module::Updates) else { return };
    let pairs = [
        descends(Sgd::new(), SGD, 0.0),
        descends(Sgd::new().momentum(0.9), MOMENTUM, 0.9),
        descends(Sgd::nesterov(0.8), NESTEROV, 0.8),
        adapts(Box::new(optim::Adam::new()), [0.9, 0.999], 1e-8, false),
        adapts(Box::new(optim::AdamW::new()), [0.9, 0.999], 1e-8, true),
        adapts(
            Box::new(optim::AdamW::new().betas(0.5, 0.95).epsilon(1e-6)),
            [0.5, 0.95],
            1e-6,
            true,
        ),
    ];
    for Pair { optimizer, kernel, by } in &pairs {
        let mut numbers = Numbers::new(16);
        for (length, any) in [(3_001, false), (3_001, true), (MANY, false)] {
            let (mut expected, _) = state(&mut numbers, optimizer.slots().len(), length, any);
            let mut found = expected.clone();
            // Of the long ones one is enough.
            for (number, decay) in
                [(1_000_003, 1e-4), (1, 0.0), (2, 1e-2)]
                    .into_iter()
                    .take(if length == MANY { 1 } else { 3 })
            {
                let update = Update {
                    number,
                    rate: 3e-3,
                    decay,
                    norms: Norms::default(),
                };
                let (sum, samples, clip) = (numbers.near(length), 96_u64, [None, Some(0.37_f32)][number as usize % 2]);
                let (layout, whole) = finished(Dtype::F32, bytemuck::cast_slice(&sum), length, samples);
                // As `fit` updates: run by run, each divided and clipped.
                whole
                    .mean(&layout)
                    .runs_f32(0, |at, gradient| {
                        if let Some(factor) = clip {
                            gradient.iter_mut().for_each(|value| *value *= factor);
                        }
                        let run = at..at + gradient.len();
                        let (values, slots) = expected.split_first_mut().unwrap();
                        let mut slots: Vec<&mut [f32]> = slots.iter_mut().map(|slot| &mut slot[run.clone()]).collect();
                        optimizer.update(&update, &mut values[run.clone()], gradient, &mut slots);
                    })
                    .unwrap();
                let by = by(&update, samples as f32, clip.unwrap_or(1.0));
                found = updated((twin, number), (*kernel, any_geometry(3)), &found, &sum, by).unwrap();
                let what = format!("{}, update {number}", optimizer.describe());
                same(&what, &found.concat(), &one_nan(&expected)).unwrap();
            }
        }
    }
}
