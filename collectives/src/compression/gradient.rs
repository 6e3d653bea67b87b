//! A part of a gradient as it travels: its f32 as halves, its other numbers as they are, and nothing of the zeros between tensors. Knows no ranks.

use std::ops::Range;

use sardana_protocol::state::Dtype;

use super::{HALF_BYTES, Half};
use crate::layout::Layout;
use crate::limits::TILE_BYTES;
use crate::reduce::{self, add_to};
use crate::runs::Runs;

impl Half {
    /// Bytes of what lies in `range` as it travels.
    pub(crate) fn packed_bytes(self, layout: &Layout, range: Range<usize>) -> usize {
        let sections = layout.sections(range);
        sections.map(|section| packed(section.dtype, section.bytes.len())).sum()
    }

    /// Writes the sum of `terms`, which are what lies in `range` in each, to `out` as it travels; zeros if there are no terms.
    pub(crate) fn pack_sum(self, layout: &Layout, range: Range<usize>, out: &mut [u8], terms: &[&[u8]]) {
        let Some((first, rest)) = terms.split_first() else {
            return out.fill(0);
        };
        let mut room = [0; TILE_BYTES];
        for (dtype, tile, packed) in tiles(layout, range) {
            let (own, out) = (&first[tile.clone()], &mut out[packed]);
            let sum = if rest.is_empty() {
                own
            } else {
                let sum = &mut room[..tile.len()];
                sum.copy_from_slice(own);
                for term in rest {
                    add_to(dtype, sum, &term[tile.clone()]);
                }
                sum
            };
            match dtype {
                Dtype::F32 => self.narrow(sum, out),
                Dtype::F64 | Dtype::U64 => out.copy_from_slice(sum),
            }
        }
    }

    /// Writes what has travelled, and the sum of it and of `own`, which are what lies in `range` in each, to `out`.
    pub(crate) fn sum_unpacked(
        self,
        layout: &Layout,
        range: Range<usize>,
        out: &mut [u8],
        running: &mut impl Runs,
        own: &[&[u8]],
    ) {
        let mut written = 0;
        for (dtype, tile) in reduce::tiles(layout, range) {
            out[written..tile.start].fill(0);
            written = tile.end;
            let out = &mut out[tile.clone()];
            match dtype {
                Dtype::F32 => self.widen_next(running, out),
                Dtype::F64 | Dtype::U64 => running.copy_to(out),
            }
            for own in own {
                add_to(dtype, out, &own[tile.clone()]);
            }
        }
        out[written..].fill(0);
    }

    /// The f32 that the next halves are, as many as `out` has room for.
    pub(crate) fn widen_next(self, halves: &mut impl Runs, out: &mut [u8]) {
        const WIDE: usize = size_of::<f32>();
        halves.each(out.len() / WIDE, HALF_BYTES, |at, run| {
            self.widen(run, &mut out[at.start * WIDE..at.end * WIDE]);
        });
    }

    /// Makes what lies in `range` what other ranks get of it.
    pub(crate) fn round_part(self, layout: &Layout, range: Range<usize>, values: &mut [u8]) {
        for (dtype, tile, _) in tiles(layout, range) {
            match dtype {
                Dtype::F32 => self.round(&mut values[tile]),
                Dtype::F64 | Dtype::U64 => {}
            }
        }
    }
}

const fn packed(dtype: Dtype, bytes: usize) -> usize {
    match dtype {
        Dtype::F32 => bytes / size_of::<f32>() * HALF_BYTES,
        Dtype::F64 | Dtype::U64 => bytes,
    }
}

/// The elements of `range` in tiles of one type: as places within `range`, and within what travels.
fn tiles(layout: &Layout, range: Range<usize>) -> impl Iterator<Item = (Dtype, Range<usize>, Range<usize>)> {
    reduce::tiles(layout, range).scan(0, |end, (dtype, tile)| {
        let start = *end;
        *end += packed(dtype, tile.len());
        Some((dtype, tile, start..*end))
    })
}
