//! Sums of squares against their reference, whose order a test of the optimizers' norms holds to theirs.

use sardana_cuda::geometry;
use sardana_cuda::kernels::{Module, SQUARES};
use sardana_cuda::parameters::Values;
use sardana_cuda::reference::norms::squares;
use sardana_twins::{Memory, Twin};

use crate::numbers::{LENGTHS, MANY, Numbers};
use crate::twin::{Found, in_all_orders, run, same, twin};

/// A launch over all tensors.
fn compare(at: (&Twin, u64), tensors: &[Vec<f32>], divisor: f32) -> Result<(), Found> {
    let mut memory = Memory::new();
    let row = |tensor: &Vec<f32>| Values {
        at: memory.constant(tensor).get(),
        length: tensor.len() as u64,
    };
    let table: Vec<Values> = tensors.iter().map(row).collect();
    let (table, out) = (memory.constant(&table), memory.room::<f64>(tensors.len()));
    let geometry = geometry::squares(tensors.len() as u64);
    run(
        at,
        SQUARES,
        geometry,
        &mut memory,
        &[out.into(), table.into(), divisor.into()],
    )?;
    let expected: Vec<f64> = tensors.iter().map(|tensor| squares(tensor, divisor)).collect();
    same("squares", &memory.read(out, tensors.len()), &expected)
}

pub(crate) fn check(twin: &Twin, seed: u64) -> Result<(), Found> {
    let mut numbers = Numbers::new(seed);
    let kind = |numbers: &mut Numbers, length| match seed % 2 {
        0 => numbers.near(length),
        _ => numbers.all(length),
    };
    let lengths = LENGTHS.into_iter().step_by(2).chain([257, 2_047, 2_048, 2_049, 6_145]);
    let mut tensors: Vec<Vec<f32>> = lengths.map(|length| kind(&mut numbers, length)).collect();
    // Without what is not a number, which would hide everything.
    tensors.push(numbers.near(4_100));
    compare((twin, seed), &tensors, [1.0, 96.0, 0.0][seed as usize % 3])
}

#[test]
fn squares_are_their_reference_in_any_order() {
    in_all_orders(Module::Norms, check);
}

#[test]
fn many_squares_are_added_in_their_lanes() {
    let Some(twin) = twin(Module::Norms) else { return };
    let mut numbers = Numbers::new(12);
    compare((twin, 1), &[numbers.near(MANY)], 64.0).unwrap();
}
