//! How many blocks and threads a launch has. Knows sizes, and no device: the bits of a result must not depend on one, so nothing here does.

use crate::parameters::TILE;

/// A launch's blocks, and the threads of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
}

impl Geometry {
    /// Whether a launch may have so many, on any device.
    ///
    /// # Errors
    /// Says how many it may have.
    pub fn is_possible(self) -> Result<(), &'static str> {
        let [[x, y, z], [across, down, deep]] = [self.grid, self.block];
        if !self.grid.into_iter().chain(self.block).all(|along| along > 0) {
            return Err("blocks and threads along each direction");
        }
        if x > MOST_ALONG_X || y > MOST_ALONG_Y || z > MOST_ALONG_Y {
            return Err("at most 2147483647 blocks along x and 65535 along y and z");
        }
        let threads = u64::from(across) * u64::from(down);
        if deep > MOST_DEEP || threads > MOST_THREADS || threads * u64::from(deep) > MOST_THREADS {
            return Err("at most 1024 threads of a block, and 64 along z");
        }
        Ok(())
    }
}

/// Threads of a block that has no need of its own.
const THREADS: u32 = 256;

/// Most blocks of a launch whose threads take one element after the other: enough for any device, and no more to start than that.
const MOST_BLOCKS: u64 = 4_096;

/// Threads of a block of `hash_pieces`: one for each chunk of the largest piece.
const CHUNKS: u32 = 1_024;

/// Rows and columns of results of one block of `dense_*`, and its threads along each.
const SIDE: u32 = 64;
const ACROSS: u32 = 16;

/// Most blocks along x, and along y or z.
const MOST_ALONG_X: u32 = i32::MAX as u32;
const MOST_ALONG_Y: u32 = 65_535;

/// Most threads of a block, and most of them along z.
const MOST_THREADS: u64 = 1_024;
const MOST_DEEP: u32 = 64;

/// For `length` elements, of any kernel that says nothing else: `sum_*`, `narrow_*`, `widen_*`, `mean_*`, updates, `dense_backward_biases`,
/// `rectify*`, `distances`, `hits` (a row each). These may have any other geometry, too; `sum_f32x4` has enough of it with a quarter of its
/// elements. None where there is nothing to do.
#[must_use]
pub fn elements(length: u64) -> Option<Geometry> {
    of(length.div_ceil(THREADS.into()).min(MOST_BLOCKS), THREADS)
}

/// For `tiles` tiles of `pack_*` and `unpack_*`, which may have any other geometry along x, too. None where there is nothing to do.
#[must_use]
pub fn tiles(tiles: u64) -> Option<Geometry> {
    of(tiles.min(MOST_BLOCKS), THREADS.min(TILE as u32))
}

/// For `squares` of so many tiles, one block each. None where there are none, or more than a launch has blocks: cut the table then.
#[must_use]
pub fn squares(tiles: u64) -> Option<Geometry> {
    of(tiles, THREADS)
}

/// For `tree_sums` of so many rows, one block each. None where there are none, or more than a launch has blocks: cut the table then.
#[must_use]
pub fn tree_sums(rows: u64) -> Option<Geometry> {
    of(rows, THREADS)
}

/// For `hash_pieces` of so many pieces, one block each. None where there are none, or more than a launch has blocks: cut the table then.
#[must_use]
pub fn pieces(pieces: u64) -> Option<Geometry> {
    of(pieces, CHUNKS)
}

/// For a result of `rows` by `columns` of `dense_forward` (batch by outputs), `dense_backward_inputs` (batch by inputs) or `dense_backward_weights` (outputs by
/// inputs). None where there is nothing to do, or there are more than 4,194,240 rows: cut the batch then.
#[must_use]
pub const fn product(rows: u32, columns: u32) -> Option<Geometry> {
    let (down, along) = (rows.div_ceil(SIDE), columns.div_ceil(SIDE));
    if down == 0 || along == 0 || down > MOST_ALONG_Y {
        return None;
    }
    Some(Geometry {
        grid: [along, down, 1],
        block: [ACROSS, ACROSS, 1],
    })
}

fn of(blocks: u64, threads: u32) -> Option<Geometry> {
    let blocks = u32::try_from(blocks)
        .ok()
        .filter(|blocks| (1..=MOST_ALONG_X).contains(blocks))?;
    Some(Geometry {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_no_launch_and_no_launch_has_more_blocks_than_it_may() {
        for nothing in [
            elements(0),
            tiles(0),
            squares(0),
            tree_sums(0),
            pieces(0),
            product(0, 5),
            product(5, 0),
        ] {
            assert_eq!(nothing, None);
        }
        assert_eq!((squares(1 << 31), tree_sums(1 << 31), pieces(u64::MAX)), (None, None, None));
        assert_eq!((product(u32::MAX, 1), product(65_535 * 64 + 1, 1)), (None, None));
        assert_eq!(product(65_535 * 64, u32::MAX).map(|all| all.grid), Some([1 << 26, 65_535, 1]));
    }

    #[test]
    fn no_device_has_more() {
        let of = |grid, block| Geometry { grid, block }.is_possible();
        let [least, most] = [[1; 3], [i32::MAX as u32, 65_535, 65_535]];
        for block in [least, [1_024, 1, 1], [1, 1_024, 1], [16, 1, 64], [4, 4, 64]] {
            assert_eq!((of(least, block), of(most, block)), (Ok(()), Ok(())));
        }
        for block in [
            [0, 1, 1],
            [1, 0, 1],
            [1, 1, 0],
            [1_025, 1, 1],
            [1, 1, 65],
            [32, 33, 1],
            [17, 1, 61],
            [u32::MAX; 3],
        ] {
            assert!(of(least, block).is_err(), "{block:?}");
        }
        for grid in [[0, 1, 1], [1 << 31, 1, 1], [1, 65_536, 1], [1, 1, 65_536], [1, 1, 0]] {
            assert!(of(grid, least).is_err(), "{grid:?}");
        }
    }

    #[test]
    fn all_elements_have_a_thread_until_there_are_too_many() {
        assert_eq!(elements(257).map(|all| (all.grid, all.block)), Some(([2, 1, 1], [256, 1, 1])));
        assert_eq!(elements(u64::MAX).map(|all| all.grid), Some([4_096, 1, 1]));
        assert_eq!(product(65, 64).map(|all| all.grid), Some([1, 2, 1]));
    }
}
