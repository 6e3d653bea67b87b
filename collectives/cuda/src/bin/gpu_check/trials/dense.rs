//! Dense layers, forward and backward.

use sardana_cuda::kernels::{self, Kernel};
use sardana_cuda::reference::dense::{self, Sizes};

use super::Run;
use crate::on::{On, Tried};

pub(super) const TRIALS: [(Kernel, Run); 4] = [
    (kernels::DENSE_FORWARD, forward),
    (kernels::DENSE_BACKWARD_INPUTS, backward_inputs),
    (kernels::DENSE_BACKWARD_WEIGHTS, backward_weights),
    (kernels::DENSE_BACKWARD_BIASES, backward_biases),
];

const fn sizes(batch: usize, outputs: usize, inputs: usize) -> Sizes {
    Sizes { batch, outputs, inputs }
}

/// About tiles, and none of them.
const SHORT: [Sizes; 5] = [
    sizes(1, 1, 1),
    sizes(5, 66, 17),
    sizes(64, 64, 64),
    sizes(65, 63, 33),
    sizes(3, 2, 0),
];
const LONG: Sizes = sizes(257, 301, 515);

/// For each size, with any values and with some of one magnitude.
fn each(on: &mut On<'_>, check: impl Fn(&mut On<'_>, Sizes, bool) -> Tried) -> Tried {
    let long = (!on.is_quick()).then_some(LONG);
    for sizes in SHORT.into_iter().chain(long) {
        for any in [false, true] {
            check(on, sizes, any)?;
        }
    }
    Ok(())
}

fn forward(on: &mut On<'_>) -> Tried {
    each(on, |on, sizes, any| {
        let Sizes { batch, outputs, inputs } = sizes;
        let (x, own_x) = on.drawn(any, batch * inputs)?;
        let (w, own_w) = on.drawn(any, outputs * inputs)?;
        let (b, own_b) = on.drawn(any, outputs)?;
        let mut y = on.room(batch * outputs)?;
        let given = [&own_x.view(), &own_w.view(), &own_b.view()];
        on.enqueue().dense_forward(&mut y.view_mut(), given, sizes)?;
        on.same(&y, &dense::forward(&x, &w, &b, sizes))
    })
}

fn backward_inputs(on: &mut On<'_>) -> Tried {
    each(on, |on, sizes, any| {
        let Sizes { batch, outputs, inputs } = sizes;
        let (dy, own_dy) = on.drawn(any, batch * outputs)?;
        let (w, own_w) = on.drawn(any, outputs * inputs)?;
        let mut dx = on.room(batch * inputs)?;
        let given = [&own_dy.view(), &own_w.view()];
        on.enqueue().dense_backward_inputs(&mut dx.view_mut(), given, sizes)?;
        on.same(&dx, &dense::backward_inputs(&dy, &w, sizes))
    })
}

fn backward_weights(on: &mut On<'_>) -> Tried {
    each(on, |on, sizes, any| {
        let Sizes { batch, outputs, inputs } = sizes;
        let (dy, own_dy) = on.drawn(any, batch * outputs)?;
        let (x, own_x) = on.drawn(any, batch * inputs)?;
        let mut dw = on.room(outputs * inputs)?;
        let given = [&own_dy.view(), &own_x.view()];
        on.enqueue().dense_backward_weights(&mut dw.view_mut(), given, sizes)?;
        on.same(&dw, &dense::backward_weights(&dy, &x, sizes))
    })
}

fn backward_biases(on: &mut On<'_>) -> Tried {
    each(on, |on, sizes, any| {
        let (dy, own_dy) = on.drawn(any, sizes.batch * sizes.outputs)?;
        let mut db = on.room(sizes.outputs)?;
        on.enqueue()
            .dense_backward_biases(&mut db.view_mut(), &own_dy.view(), sizes)?;
        on.same(&db, &dense::backward_biases(&dy, sizes))
    })
}
