//! As what values travel between ranks: as they are, or f32 as halves. Knows slices; no ranks and no links.

use std::marker::PhantomData;

use sardana_protocol::job::Compression;

use super::element::sealed::Kernels;
use super::element::{Element, Reduction};
use crate::compression::{HALF_BYTES, Half};
use crate::limits::TILE_BYTES;

/// The loops over values of one type, whose running values and results travel in some form: those of [`Kernels`] around the form.
pub(super) trait Travel: Copy {
    type Value: Element;

    /// Bytes of one running value.
    const RUNNING_BYTES: usize;

    /// Bytes of one result.
    const RESULT_BYTES: usize;

    fn compression(self) -> Compression;

    /// Begins running values with the first rank's own.
    fn begin(self, own: &[Self::Value], out: &mut [u8]);

    /// Writes `running` combined with the next rank's own to `out`.
    fn fold(self, reduction: Reduction, running: &[u8], own: &[Self::Value], out: &mut [u8]);

    /// Makes the last rank's own what all ranks get.
    fn close(self, reduction: Reduction, world_size: u32, running: &[u8], own: &mut [Self::Value]);

    /// Writes results to `out`.
    fn store(self, results: &[Self::Value], out: &mut [u8]);

    /// Reads results as another rank has stored them.
    fn load(self, bytes: &[u8], results: &mut [Self::Value]);
}

/// Values travel in their own form.
#[derive(Debug, Clone, Copy)]
pub(super) struct AsTheyAre<E>(PhantomData<E>);

impl<E> AsTheyAre<E> {
    pub(super) const NEW: Self = Self(PhantomData);
}

impl<E: Element> Travel for AsTheyAre<E> {
    type Value = E;

    const RUNNING_BYTES: usize = E::RUNNING_BYTES;
    const RESULT_BYTES: usize = size_of::<E>();

    fn compression(self) -> Compression {
        Compression::None
    }

    fn begin(self, own: &[E], out: &mut [u8]) {
        E::begin(own, out);
    }

    fn fold(self, reduction: Reduction, running: &[u8], own: &[E], out: &mut [u8]) {
        E::fold(reduction, running, own, out);
    }

    fn close(self, reduction: Reduction, world_size: u32, running: &[u8], own: &mut [E]) {
        E::close(reduction, world_size, running, own);
    }

    fn store(self, results: &[E], out: &mut [u8]) {
        out.copy_from_slice(bytemuck::cast_slice(results));
    }

    fn load(self, bytes: &[u8], results: &mut [E]) {
        bytemuck::cast_slice_mut(results).copy_from_slice(bytes);
    }
}

/// Elements that are widened at once.
const TILE: usize = TILE_BYTES / size_of::<f32>();

/// Bytes of their halves.
const HALVES: usize = TILE * HALF_BYTES;

impl Travel for Half {
    type Value = f32;

    const RUNNING_BYTES: usize = HALF_BYTES;
    const RESULT_BYTES: usize = HALF_BYTES;

    fn compression(self) -> Compression {
        match self {
            Self::Bf16 => Compression::Bf16,
            Self::F16 => Compression::F16,
        }
    }

    fn begin(self, own: &[f32], out: &mut [u8]) {
        self.narrow(bytemuck::cast_slice(own), out);
    }

    fn fold(self, reduction: Reduction, running: &[u8], own: &[f32], out: &mut [u8]) {
        let (mut wide, mut folded) = ([0; TILE_BYTES], [0; TILE_BYTES]);
        let running = running.chunks(HALVES);
        for ((own, running), out) in own.chunks(TILE).zip(running).zip(out.chunks_mut(HALVES)) {
            let bytes = size_of_val(own);
            self.widen(running, &mut wide[..bytes]);
            f32::fold(reduction, &wide[..bytes], own, &mut folded[..bytes]);
            self.narrow(&folded[..bytes], out);
        }
    }

    fn close(self, reduction: Reduction, world_size: u32, running: &[u8], own: &mut [f32]) {
        let mut wide = [0; TILE_BYTES];
        for (own, running) in own.chunks_mut(TILE).zip(running.chunks(HALVES)) {
            let wide = &mut wide[..size_of_val(own)];
            self.widen(running, wide);
            f32::close(reduction, world_size, wide, own);
            self.round(bytemuck::cast_slice_mut(own));
        }
    }

    fn store(self, results: &[f32], out: &mut [u8]) {
        self.narrow(bytemuck::cast_slice(results), out);
    }

    fn load(self, bytes: &[u8], results: &mut [f32]) {
        self.widen(bytes, bytemuck::cast_slice_mut(results));
    }
}
