//! Means of finished sums, and parameters that follow them. All slices of a call have one length; each element depends on its own place alone.
//!
//! Updates are those of the optimizers of the crate `sardana`, operation by operation, after a division and a clipping as they are done there. An
//! optimizer passes on whichever NaN its processor makes of two; here it is the one.

use super::Number as _;
use crate::parameters::{Descent, Moments};

/// The sum divided by the number of samples, as f32.
#[must_use]
pub fn mean_f32(sum: &[f32], divisor: f32) -> Vec<f32> {
    sum.iter().map(|sum| (sum / divisor).one_nan()).collect()
}

/// The sum divided by the number of samples, as f64.
#[must_use]
pub fn mean_f64(sum: &[f64], divisor: f64) -> Vec<f64> {
    sum.iter().map(|sum| (sum / divisor).one_nan()).collect()
}

/// Stochastic gradient descent without momentum. `sum` is the gradient's, not yet divided.
///
/// # Panics
/// When the slices differ in length.
pub fn sgd(values: &mut [f32], sum: &[f32], by: &Descent) {
    assert_eq!(values.len(), sum.len(), "a value for each gradient");
    for (value, &sum) in values.iter_mut().zip(sum) {
        let gradient = decayed(sum, *value, by);
        *value = (*value - by.rate * gradient).one_nan();
    }
}

/// With momentum: along the velocity.
///
/// # Panics
/// When the slices differ in length.
pub fn momentum(values: &mut [f32], velocities: &mut [f32], sum: &[f32], by: &Descent) {
    each(values, velocities, sum, |value, velocity, sum| {
        let velocity = by.momentum * velocity + decayed(sum, value, by);
        (value - by.rate * velocity, velocity)
    });
}

/// With Nesterov's momentum: along the gradient, and the velocity as it will be after the next one.
///
/// # Panics
/// When the slices differ in length.
pub fn nesterov(values: &mut [f32], velocities: &mut [f32], sum: &[f32], by: &Descent) {
    each(values, velocities, sum, |value, velocity, sum| {
        let gradient = decayed(sum, value, by);
        let velocity = by.momentum * velocity + gradient;
        (value - by.rate * (gradient + by.momentum * velocity), velocity)
    });
}

/// Adam, or `AdamW`, which differ in constants. `means` and `squares` are the two moments.
///
/// # Panics
/// When the slices differ in length.
pub fn adam(values: &mut [f32], means: &mut [f32], squares: &mut [f32], sum: &[f32], by: &Moments) {
    let length = values.len();
    assert_eq!(
        [means.len(), squares.len(), sum.len()],
        [length; 3],
        "two moments and a gradient for each value"
    );
    for (((value, mean), square), &sum) in values.iter_mut().zip(means).zip(squares).zip(sum) {
        let gradient = sum / by.divisor * by.factor + by.to_gradient * *value;
        let new_mean = *mean + by.fresh_mean * (gradient - *mean);
        let new_square = *square + by.fresh_square * (gradient * gradient - *square);
        let root = new_square.sqrt() * by.unbias_root + by.epsilon;
        *mean = new_mean.one_nan();
        *square = new_square.one_nan();
        *value = (*value - (by.off_value * *value + by.step * (new_mean / root))).one_nan();
    }
}

/// The mean gradient, clipped, with the decay of its value.
fn decayed(sum: f32, value: f32, by: &Descent) -> f32 {
    sum / by.divisor * by.factor + by.decay * value
}

/// Makes each value and each velocity what `next` says of them and of the sum.
fn each(values: &mut [f32], velocities: &mut [f32], sum: &[f32], next: impl Fn(f32, f32, f32) -> (f32, f32)) {
    let length = values.len();
    assert_eq!(
        [velocities.len(), sum.len()],
        [length; 2],
        "a velocity and a gradient for each value"
    );
    for ((value, velocity), &sum) in values.iter_mut().zip(velocities).zip(sum) {
        let (new_value, new_velocity) = next(*value, *velocity, sum);
        (*value, *velocity) = (new_value.one_nan(), new_velocity.one_nan());
    }
}
