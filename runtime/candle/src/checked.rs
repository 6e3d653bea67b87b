//! Gradients compared with central differences in f64, for the tests of layers.

use candle_core::{Device, Result, Shape, Tensor, Var};
use sardana::data::{CounterRng, Domain};

/// Half the distance between the two losses of a difference: its square, and an f64's last bit divided by it, are both below 1e-10.
const HALF_STEP: f64 = 1e-5;

/// A gradient smaller than this is compared as if it were this large: differences of losses have no more digits.
const SMALL: f64 = 1e-2;

/// How far a right gradient may be from the differences, relatively.
pub(crate) const TOLERANCE: f64 = 1e-6;

/// Values from -1 to 1 that have no symmetry, others for each `seed`.
pub(crate) fn drawn(shape: impl Into<Shape>, seed: u64) -> Var {
    let shape = shape.into();
    let mut rng = CounterRng::new(seed, Domain::User { stream: 0 });
    let values: Vec<f64> = (0..shape.elem_count()).map(|_| 2.0 * rng.uniform_f64() - 1.0).collect();
    variable(values, shape)
}

/// The values 0.1, 0.2, … in an order that `seed` fixes: no two are so near each other that a difference changes which is the
/// larger.
pub(crate) fn distinct(shape: impl Into<Shape>, seed: u64) -> Var {
    let shape = shape.into();
    let mut rng = CounterRng::new(seed, Domain::User { stream: 1 });
    let mut values: Vec<f64> = (1..=shape.elem_count()).map(|nth| nth as f64 / 10.0).collect();
    for at in (1..values.len()).rev() {
        values.swap(at, rng.below(at as u64 + 1) as usize);
    }
    variable(values, shape)
}

fn variable(values: Vec<f64>, shape: Shape) -> Var {
    Var::from_tensor(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap()).unwrap()
}

/// By how much the gradients of `variables` that candle computes through `output` differ from central differences, relatively,
/// where they differ most. The loss weights each value of the output differently, so that no two errors cancel.
///
/// # Errors
/// When candle cannot compute the output or its gradient.
pub(crate) fn gradient_error(variables: &[&Var], output: impl Fn() -> Result<Tensor>) -> Result<f64> {
    let weights = drawn(output()?.shape(), 99).as_detached_tensor();
    let loss = || (output()? * &weights)?.sum_all();
    let gradients = loss()?.backward()?;
    let mut worst = 0.0_f64;
    for variable in variables {
        let at = variable.as_detached_tensor().copy()?;
        let gradient = match gradients.get(variable) {
            Some(gradient) => gradient.flatten_all()?.to_vec1::<f64>()?,
            None => vec![0.0; at.elem_count()],
        };
        assert_eq!(gradient.len(), at.elem_count(), "a gradient has its variable's shape");
        let values = at.flatten_all()?.to_vec1::<f64>()?;
        for (moved, gradient) in gradient.into_iter().enumerate() {
            let loss_at = |by: f64| -> Result<f64> {
                let mut values = values.clone();
                values[moved] += by;
                variable.set(&Tensor::from_vec(values, at.shape(), &Device::Cpu)?)?;
                loss()?.to_scalar()
            };
            let difference = (loss_at(HALF_STEP)? - loss_at(-HALF_STEP)?) / (2.0 * HALF_STEP);
            let error = (gradient - difference).abs() / difference.abs().max(SMALL);
            // A NaN counts as the worst.
            worst = if error > worst || error.is_nan() { error } else { worst };
        }
        variable.set(&at)?;
    }
    Ok(worst)
}

/// How far two f64 tensors of one shape are from each other, where they are farthest.
pub(crate) fn farthest(first: &Tensor, second: &Tensor) -> f64 {
    let distances = (first - second).unwrap().abs().unwrap();
    distances.max_all().unwrap().to_scalar().unwrap()
}

/// Asserts that the gradients are right.
pub(crate) fn assert_gradients(variables: &[&Var], output: impl Fn() -> Result<Tensor>) {
    let error = gradient_error(variables, output).unwrap();
    assert!(
        error < TOLERANCE,
        "gradients differ from central differences by {error:e} of them"
    );
}

#[test]
fn a_wrong_gradient_is_found() {
    let x = drawn((2, 3), 1);
    assert_gradients(&[&x], || x.sqr()?.exp());
    // The gradient of the detached factor is missing: half of the true one is found.
    let error = gradient_error(&[&x], || x.as_tensor() * x.as_detached_tensor()).unwrap();
    assert!((error - 0.5).abs() < 1e-6, "{error}");
}
