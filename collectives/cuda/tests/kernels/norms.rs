//! Sums of squares against their reference, whose order a test of the optimizers' norms holds to theirs.

use sardana_cuda::geometry;
use sardana_cuda::kernels::{Module, SQUARES, TREE_SUMS};
use sardana_cuda::parameters::{SQUARES_TILE, Terms, Values};
use sardana_cuda::reference::norms::{squares, tree_sum};
use sardana_twins::{Memory, Twin};

use crate::numbers::{LENGTHS, MANY, Numbers};
use crate::twin::{Found, in_all_orders, run, same, twin};

/// The launches over all tensors: of their tiles, and of the tiles' sums.
fn compare(at: (&Twin, u64), tensors: &[Vec<f32>], divisor: f32) -> Result<(), Found> {
    let mut memory = Memory::new();
    let rows: Vec<_> = tensors
        .iter()
        .map(|tensor| (memory.constant(tensor).get(), tensor.len() as u64))
        .collect();
    let (rows, tiles) = Values::table(&rows);
    let (table, of_tiles) = (memory.constant(&rows), memory.room::<f64>(tiles as usize));
    let arguments = [of_tiles.into(), table.into(), (rows.len() as u32).into(), divisor.into()];
    run(at, SQUARES, geometry::squares(tiles), &mut memory, &arguments)?;
    let found: Vec<f64> = memory.read(of_tiles, tiles as usize);
    let all_tiles = tensors.iter().flat_map(|tensor| tensor.chunks(SQUARES_TILE as usize));
    let expected: Vec<f64> = all_tiles.map(|tile| squares(tile, divisor)).collect();
    same("squares of tiles", &found, &expected)?;
    let terms: Vec<_> = rows
        .iter()
        .map(|row| found[row.tiles_before as usize..][..row.tiles() as usize].to_vec())
        .collect();
    let expected: Vec<f64> = tensors.iter().map(|tensor| squares(tensor, divisor)).collect();
    compare_trees(at, &terms, &expected)
}

fn compare_trees(at: (&Twin, u64), terms: &[Vec<f64>], expected: &[f64]) -> Result<(), Found> {
    let mut memory = Memory::new();
    let row = |terms: &Vec<f64>| Terms {
        at: memory.holding(terms).get(),
        length: terms.len() as u64,
    };
    let rows: Vec<_> = terms.iter().map(row).collect();
    let (table, out) = (memory.constant(&rows), memory.room::<f64>(rows.len()));
    let geometry = geometry::tree_sums(rows.len() as u64);
    run(at, TREE_SUMS, geometry, &mut memory, &[out.into(), table.into()])?;
    same("tree sums", &memory.read(out, rows.len()), expected)
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
    let tile = SQUARES_TILE as usize;
    tensors.extend([4_100, tile, tile + 1, 2 * tile + 2_047].map(|length| numbers.near(length)));
    compare((twin, seed), &tensors, [1.0, 96.0, 0.0][seed as usize % 3])?;
    check_trees(twin, seed)
}

/// Of more terms than a block adds at once, too.
fn check_trees(twin: &Twin, seed: u64) -> Result<(), Found> {
    let mut numbers = Numbers::new(seed);
    let lengths = LENGTHS.into_iter().chain([2, 511, 512, 513, 1_025 + seed as usize]);
    // Sums of thirds are rounded.
    let thirds = |length| numbers.near(length).iter().map(|&value| f64::from(value) / 3.0).collect();
    let terms: Vec<Vec<f64>> = lengths.map(thirds).collect();
    let expected: Vec<f64> = terms.iter().map(|terms| tree_sum(terms)).collect();
    compare_trees((twin, seed), &terms, &expected)
}

#[test]
fn squares_are_their_reference_in_any_order() {
    in_all_orders(Module::Norms, check);
}

#[test]
fn many_squares_are_added_in_their_lanes_and_tiles() {
    let Some(twin) = twin(Module::Norms) else { return };
    let mut numbers = Numbers::new(12);
    compare((twin, 1), &[numbers.near(MANY)], 64.0).unwrap();
}
