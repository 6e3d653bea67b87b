//! Hashes of pieces against their reference, and what a checkpoint calls a piece.

use sardana_cuda::geometry;
use sardana_cuda::kernels::{HASH_PIECES, Module};
use sardana_cuda::parameters::{MAX_PIECE_BYTES, Piece};
use sardana_cuda::reference::hashes::hash;
use sardana_protocol::checkpoint::PieceHash;
use sardana_twins::{Memory, Twin};

use crate::numbers::Numbers;
use crate::twin::{Found, in_all_orders, run, same, twin};

/// Bytes of a piece's first byte beyond an aligned one.
const OFFS: [usize; 4] = [0, 16, 4, 1];

/// A piece's bytes, and the hash that was found.
type Hashed = (Vec<u8>, [u8; 32]);

/// Hashes pieces of these lengths in one launch.
fn hashed(at: (&Twin, u64), lengths: &[usize]) -> Result<Vec<Hashed>, Found> {
    let mut numbers = Numbers::new(at.1);
    let mut memory = Memory::new();
    let mut pieces = Vec::new();
    let mut table = Vec::new();
    for (number, &length) in lengths.iter().enumerate() {
        let off = OFFS[number % OFFS.len()];
        let bytes: Vec<u8> = (0..off + length).map(|_| numbers.next() as u8).collect();
        table.push(Piece {
            bytes: memory.constant(&bytes).plus(off).get(),
            length: length as u64,
        });
        pieces.push(bytes[off..].to_vec());
    }
    let (table, out) = (memory.constant(&table), memory.room::<u32>(8 * lengths.len()));
    run(
        at,
        HASH_PIECES,
        geometry::pieces(lengths.len() as u64),
        &mut memory,
        &[out.into(), table.into()],
    )?;
    let words: Vec<u32> = memory.read(out, 8 * lengths.len());
    let hashes = words.as_chunks::<8>().0.iter();
    Ok(pieces
        .into_iter()
        .zip(hashes.map(|words| bytemuck::cast(words.map(u32::to_le))))
        .collect())
}

pub(crate) fn check(twin: &Twin, seed: u64) -> Result<(), Found> {
    // An end of a block of 64 bytes, of a chunk, and trees of each shape.
    let short = [
        0, 1, 3, 63, 64, 65, 1_023, 1_024, 1_025, 2_048, 2_049, 3_072, 4_097, 5_121, 7_168, 31_745,
    ];
    let start = seed as usize % short.len();
    let lengths: Vec<usize> = short.iter().copied().cycle().skip(start).take(4).collect();
    for (piece, found) in hashed((twin, seed), &lengths)? {
        same(&format!("a piece of {} bytes", piece.len()), &found, &hash(&piece))?;
    }
    Ok(())
}

#[test]
fn hashes_are_their_reference_in_any_order() {
    in_all_orders(Module::Hashes, check);
}

#[test]
fn large_pieces_are_called_as_checkpoints_call_them() {
    let Some(twin) = twin(Module::Hashes) else { return };
    let most = MAX_PIECE_BYTES as usize;
    for (piece, found) in hashed((twin, 13), &[most, most - 1, 1_000_003, most - 1_024]).unwrap() {
        assert_eq!(PieceHash::new(found), PieceHash::of(&piece), "{} bytes", piece.len());
    }
}
