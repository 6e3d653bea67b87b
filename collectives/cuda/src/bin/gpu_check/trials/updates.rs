//! How parameters follow a finished sum.

use sardana_cuda::device::{DeviceTensor, ViewMut};
use sardana_cuda::kernels::{self, Kernel};
use sardana_cuda::parameters::{Adam, Descent, Moments};
use sardana_cuda::reference::updates;

use super::Run;
use crate::on::{Both, On, Tried, Wrong};

pub(super) const TRIALS: [(Kernel, Run); 4] = [
    (kernels::SGD, sgd),
    (kernels::MOMENTUM, momentum),
    (kernels::NESTEROV, nesterov),
    (kernels::ADAM, adam),
];

fn descent(on: &mut On<'_>) -> Descent {
    Descent {
        divisor: (1 + on.below(1_000)) as f32,
        factor: [1.0, 0.3][on.below(2) as usize],
        rate: 0.07,
        decay: [0.0, 1e-2][on.below(2) as usize],
        momentum: 0.9,
    }
}

fn moments(on: &mut On<'_>) -> Moments {
    let adam = Adam {
        number: 1 + on.below(100),
        rate: 1e-2,
        decay: [0.0, 1e-2][on.below(2) as usize],
        betas: [0.9, 0.999],
        epsilon: 1e-8,
        decoupled: on.below(2) == 0,
    };
    adam.moments((1 + on.below(1_000)) as f32, [1.0, 0.3][on.below(2) as usize])
}

/// The sum, and so many tensors that follow it: any values, and some of one magnitude.
fn each<const N: usize>(on: &mut On<'_>, mut follow: impl FnMut(&mut On<'_>, Both<f32>, [Both<f32>; N]) -> Tried) -> Tried {
    for length in on.lengths() {
        for any in [false, true] {
            let sum = on.drawn(any, length)?;
            let tensors = (0..N).map(|_| on.drawn(any, length)).collect::<Result<Vec<_>, Wrong>>()?;
            let tensors = tensors.try_into().expect("there are as many as were drawn");
            follow(on, sum, tensors)?;
        }
    }
    Ok(())
}

fn sgd(on: &mut On<'_>) -> Tried {
    each(on, |on, (sum, own_sum), [(mut values, mut own)]| {
        let by = descent(on);
        on.enqueue().sgd(&mut own.view_mut(), &own_sum.view(), by)?;
        updates::sgd(&mut values, &sum, &by);
        on.same(&own, &values)
    })
}

type Follows = fn(&On<'_>, [&mut ViewMut<'_, f32>; 2], &DeviceTensor<f32>, Descent) -> Tried;
type Reference = fn(&mut [f32], &mut [f32], &[f32], &Descent);

fn with_velocity(on: &mut On<'_>, follows: Follows, reference: Reference) -> Tried {
    each(
        on,
        |on, (sum, own_sum), [(mut values, mut own), (mut velocities, mut second)]| {
            let by = descent(on);
            follows(on, [&mut own.view_mut(), &mut second.view_mut()], &own_sum, by)?;
            reference(&mut values, &mut velocities, &sum, &by);
            on.same(&own, &values)?;
            on.same(&second, &velocities)
        },
    )
}

fn momentum(on: &mut On<'_>) -> Tried {
    let follows: Follows =
        |on, [values, velocities], sum, by| Ok(on.enqueue().momentum(values, velocities, &sum.view(), by)?);
    with_velocity(on, follows, updates::momentum)
}

fn nesterov(on: &mut On<'_>) -> Tried {
    let follows: Follows =
        |on, [values, velocities], sum, by| Ok(on.enqueue().nesterov(values, velocities, &sum.view(), by)?);
    with_velocity(on, follows, updates::nesterov)
}

fn adam(on: &mut On<'_>) -> Tried {
    each(on, |on, (sum, own_sum), tensors| {
        let by = moments(on);
        let [(mut values, mut own), (mut means, mut second), (mut squares, mut third)] = tensors;
        on.enqueue().adam(
            &mut own.view_mut(),
            &mut second.view_mut(),
            &mut third.view_mut(),
            &own_sum.view(),
            by,
        )?;
        updates::adam(&mut values, &mut means, &mut squares, &sum, &by);
        on.same(&own, &values)?;
        on.same(&second, &means)?;
        on.same(&third, &squares)
    })
}
