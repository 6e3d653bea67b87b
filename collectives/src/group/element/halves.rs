//! Numbers of 16 bits: combined as f32, in tiles that stay in the nearest cache.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::sealed::Kernels;
use super::{Element, ElementType, Reduction};

/// Elements that are widened at once.
const TILE: usize = 1_024;

/// Bytes of their running values.
const TILE_BYTES: usize = TILE * size_of::<f32>();

/// A tile of numbers as f32.
struct Wide([f32; TILE]);

impl Wide {
    const fn new() -> Self {
        Self([0.0; TILE])
    }

    /// The same numbers, which f32 has all of.
    fn of<T>(&mut self, own: &[T]) -> &mut [f32]
    where
        [T]: HalfFloatSliceExt,
    {
        let wide = &mut self.0[..own.len()];
        own.convert_to_f32_slice(wide);
        wide
    }
}

macro_rules! half {
    ($type:ty, $dtype:ident) => {
        impl Element for $type {
            const TYPE: ElementType = ElementType::$dtype;
        }

        impl Kernels for $type {
            const RUNNING_BYTES: usize = size_of::<f32>();

            fn begin(own: &[Self], out: &mut [u8]) {
                let mut wide = Wide::new();
                for (own, out) in own.chunks(TILE).zip(out.chunks_mut(TILE_BYTES)) {
                    f32::begin(wide.of(own), out);
                }
            }

            fn fold(reduction: Reduction, running: &[u8], own: &[Self], out: &mut [u8]) {
                let mut wide = Wide::new();
                let running = running.chunks(TILE_BYTES);
                for ((own, running), out) in own.chunks(TILE).zip(running).zip(out.chunks_mut(TILE_BYTES)) {
                    f32::fold(reduction, running, wide.of(own), out);
                }
            }

            fn close(reduction: Reduction, world_size: u32, running: &[u8], own: &mut [Self]) {
                let mut wide = Wide::new();
                for (own, running) in own.chunks_mut(TILE).zip(running.chunks(TILE_BYTES)) {
                    let wide = wide.of(own);
                    f32::close(reduction, world_size, running, wide);
                    own.convert_from_f32_slice(wide);
                }
            }

            fn alone(own: &mut [Self]) {
                for value in own.iter_mut().filter(|value| value.is_nan()) {
                    *value = Self::NAN;
                }
            }
        }
    };
}

half!(bf16, Bf16);
half!(f16, F16);
