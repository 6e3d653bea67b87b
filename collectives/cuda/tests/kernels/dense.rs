//! Dense layers against their references.

use sardana_cuda::geometry::{self, Geometry};
use sardana_cuda::kernels::{
    DENSE_BACKWARD_BIASES, DENSE_BACKWARD_INPUTS, DENSE_BACKWARD_WEIGHTS, DENSE_FORWARD, Kernel, Module,
};
use sardana_cuda::reference::dense::{Sizes, backward_biases, backward_inputs, backward_weights, forward};
use sardana_twins::{Argument, Memory, Twin};

use crate::numbers::Numbers;
use crate::twin::{Found, any_geometry, in_all_orders, run, same, twin};

/// Batch, outputs, inputs: single ones, whole tiles, and what is left beside them.
const SIZES: [[usize; 3]; 8] = [
    [1, 1, 1],
    [5, 3, 17],
    [64, 64, 16],
    [65, 3, 33],
    [2, 70, 15],
    [0, 4, 3],
    [3, 0, 2],
    [2, 3, 0],
];

/// Runs a kernel over inputs of f32.
fn result(
    at: (&Twin, u64),
    (kernel, geometry): (Kernel, Option<Geometry>),
    length: usize,
    inputs: &[&[f32]],
    sizes: &[usize],
) -> Result<Vec<f32>, Found> {
    let mut memory = Memory::new();
    let out = memory.room::<f32>(length);
    let mut arguments: Vec<Argument> = vec![out.into()];
    arguments.extend(inputs.iter().map(|input| Argument::from(memory.constant(input))));
    arguments.extend(sizes.iter().map(|&size| Argument::from(size as u32)));
    run(at, kernel, geometry, &mut memory, &arguments)?;
    Ok(memory.read(out, length))
}

fn compare(at: (&Twin, u64), sizes: Sizes, numbers: &mut Numbers, any: bool) -> Result<(), Found> {
    let Sizes { batch, outputs, inputs } = sizes;
    let all = [batch, outputs, inputs];
    let mut draw = |length| if any { numbers.all(length) } else { numbers.near(length) };
    let (x, w, b, dy) = (
        draw(batch * inputs),
        draw(outputs * inputs),
        draw(outputs),
        draw(batch * outputs),
    );
    let product = |rows: usize, columns: usize| geometry::product(rows as u32, columns as u32);

    let y = result(
        at,
        (DENSE_FORWARD, product(batch, outputs)),
        batch * outputs,
        &[&x, &w, &b],
        &all,
    )?;
    same(&format!("forward of {all:?}"), &y, &forward(&x, &w, &b, sizes))?;
    let dx = result(
        at,
        (DENSE_BACKWARD_INPUTS, product(batch, inputs)),
        batch * inputs,
        &[&dy, &w],
        &all,
    )?;
    same(&format!("backward_inputs of {all:?}"), &dx, &backward_inputs(&dy, &w, sizes))?;
    let dw = result(
        at,
        (DENSE_BACKWARD_WEIGHTS, product(outputs, inputs)),
        outputs * inputs,
        &[&dy, &x],
        &all,
    )?;
    same(
        &format!("backward_weights of {all:?}"),
        &dw,
        &backward_weights(&dy, &x, sizes),
    )?;
    let db = result(at, (DENSE_BACKWARD_BIASES, any_geometry(at.1)), outputs, &[&dy], &all[..2])?;
    same(&format!("backward_biases of {all:?}"), &db, &backward_biases(&dy, sizes))
}

pub(crate) fn check(twin: &Twin, seed: u64) -> Result<(), Found> {
    let [batch, outputs, inputs] = SIZES[seed as usize % SIZES.len()];
    let sizes = Sizes { batch, outputs, inputs };
    let mut numbers = Numbers::new(seed);
    // Mostly numbers whose sums are rounded: one NaN hides a row.
    compare((twin, seed), sizes, &mut numbers, false)?;
    compare((twin, seed), sizes, &mut numbers, seed % 4 == 1)
}

#[test]
fn layers_are_their_references_in_any_order() {
    in_all_orders(Module::Dense, check);
}

#[test]
fn a_layer_of_many_weights_is_its_reference() {
    let Some(twin) = twin(Module::Dense) else { return };
    let sizes = Sizes {
        batch: 33,
        outputs: 130,
        inputs: 785,
    };
    compare((twin, 3), sizes, &mut Numbers::new(14), false).unwrap();
}
