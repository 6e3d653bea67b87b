//! Rectifiers and labels against their references.

use sardana_cuda::kernels::{DISTANCES, HITS, Module, RECTIFY, RECTIFY_BACKWARD};
use sardana_cuda::reference::pointwise::{distances, hits, rectify, rectify_backward};
use sardana_twins::{Memory, Twin};

use crate::numbers::{LENGTHS, Numbers};
use crate::twin::{Found, any_geometry, in_all_orders, run, same};

/// Rows and classes.
const SIZES: [[usize; 2]; 5] = [[1, 1], [3, 10], [33, 2], [100, 3], [7, 64]];

fn compare_values(at: (&Twin, u64), length: usize, numbers: &mut Numbers) -> Result<(), Found> {
    let geometry = any_geometry(at.1).filter(|_| length > 0);
    let [values, gradients] = [(); 2].map(|()| numbers.all::<f32>(length));
    let mut memory = Memory::new();
    let own = memory.holding(&values);
    run(
        at,
        RECTIFY,
        geometry,
        &mut memory,
        &[own.into(), own.into(), (length as u64).into()],
    )?;
    let rectified = rectify(&values);
    same("rectified", &memory.read(own, length), &rectified)?;

    let mut memory = Memory::new();
    let (own, behind) = (memory.holding(&gradients), memory.constant(&rectified));
    let arguments = [own.into(), own.into(), behind.into(), (length as u64).into()];
    run(at, RECTIFY_BACKWARD, geometry, &mut memory, &arguments)?;
    same(
        "gradients",
        &memory.read(own, length),
        &rectify_backward(&gradients, &rectified),
    )
}

fn compare_scores(at: (&Twin, u64), [rows, classes]: [usize; 2], numbers: &mut Numbers) -> Result<(), Found> {
    let mut scores: Vec<f32> = numbers.all(rows * classes);
    // Scores that are equal, so that the first must be told from the others.
    scores.iter_mut().step_by(3).for_each(|score| *score = 20.0);
    // A label of no class as well.
    let labels: Vec<u32> = (0..rows).map(|_| numbers.below(classes as u64 + 1) as u32).collect();
    let sizes = [rows as u32, classes as u32];
    let mut memory = Memory::new();
    let (own, their) = (memory.holding(&scores), memory.constant(&labels));
    let out = memory.room::<u32>(rows);
    let arguments = [out.into(), own.into(), their.into(), sizes[0].into(), sizes[1].into()];
    run(at, HITS, any_geometry(at.1), &mut memory, &arguments)?;
    same("hits", &memory.read(out, rows), &hits(&scores, &labels, classes))?;
    let arguments = [own.into(), own.into(), their.into(), sizes[0].into(), sizes[1].into()];
    run(at, DISTANCES, any_geometry(at.1 / 2), &mut memory, &arguments)?;
    let expected = distances(&scores, &labels, classes);
    same("distances", &memory.read(own, scores.len()), &expected)
}

pub(crate) fn check(twin: &Twin, seed: u64) -> Result<(), Found> {
    let mut numbers = Numbers::new(seed);
    compare_values((twin, seed), LENGTHS[seed as usize % LENGTHS.len()], &mut numbers)?;
    compare_scores((twin, seed), SIZES[seed as usize % SIZES.len()], &mut numbers)
}

#[test]
fn rectifiers_and_labels_are_their_references_in_any_order() {
    in_all_orders(Module::Pointwise, check);
}

#[test]
fn the_references_are_what_their_names_say() {
    let nan = f32::from_bits(0xffc0_1234);
    let rectified = rectify(&[-1.0, -0.0, 0.5, nan, f32::INFINITY, f32::NEG_INFINITY]);
    let bits: Vec<u32> = rectified.iter().map(|value| value.to_bits()).collect();
    assert_eq!(bits, [0.0, 0.0, 0.5, f32::NAN, f32::INFINITY, 0.0].map(f32::to_bits));
    assert_eq!(rectify_backward(&[1.0, 2.0, 3.0], &[0.0, 0.1, 0.0]), [0.0, 2.0, 0.0]);
    assert_eq!(distances(&[0.25, 1.0, 0.5, -1.0], &[1, 0], 2), [0.25, 0.0, -0.5, -1.0]);
    // The second row's largest score is there twice, and only its first counts.
    assert_eq!(hits(&[0.0, 2.0, 1.0, 5.0, 5.0, 0.0], &[1, 1], 3), [1, 0]);
}
