//! The values of tensors on a CPU as slices, for layers that compute with loops of their own. It knows no layer.

use candle_core::{CpuStorage, Layout, Result, Storage, StorageRef, Tensor, WithDType, bail};

/// A type of numbers in which layers compute.
pub(super) trait Real: WithDType {
    /// The number as an f64: sums are added in those, so that they depend less on how many values there are.
    fn wide(self) -> f64;

    /// The nearest number to an f64.
    fn nearest(wide: f64) -> Self;

    /// Whether it is no number.
    fn is_no_number(self) -> bool;
}

impl Real for f32 {
    #[inline]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline]
    fn nearest(wide: f64) -> Self {
        wide as Self
    }

    #[inline]
    fn is_no_number(self) -> bool {
        self.is_nan()
    }
}

impl Real for f64 {
    #[inline]
    fn wide(self) -> f64 {
        self
    }

    #[inline]
    fn nearest(wide: f64) -> Self {
        wide
    }

    #[inline]
    fn is_no_number(self) -> bool {
        self.is_nan()
    }
}

/// Computes an expression with the type alias `$real` for numbers of type `$dtype`; returns an error from the function around it
/// for those that layers do not compute in.
macro_rules! by_dtype {
    ($dtype:expr, $layer:expr, $real:ident => $computed:expr) => {{
        let dtype = $dtype;
        if dtype == ::candle_core::DType::F32 {
            type $real = f32;
            $computed
        } else if dtype == ::candle_core::DType::F64 {
            type $real = f64;
            $computed
        } else {
            ::candle_core::bail!("{}: expected f32 or f64, found {dtype:?}", $layer)
        }
    }};
}
pub(super) use by_dtype;

/// The values of a contiguous tensor, row-major.
pub(super) fn values<'a, T: Real>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [T]> {
    match layout.contiguous_offsets() {
        Some((from, to)) => Ok(&T::cpu_storage_as_slice(storage)?[from..to]),
        None => bail!("expected a contiguous tensor, found strides {:?}", layout.stride()),
    }
}

/// A tensor while its values are read.
pub(super) struct Reading<'a> {
    storage: StorageRef<'a>,
    layout: &'a Layout,
}

impl<'a> Reading<'a> {
    pub(super) fn of(tensor: &'a Tensor) -> Self {
        let (storage, layout) = tensor.storage_and_layout();
        Self { storage, layout }
    }

    /// Its values, row-major.
    pub(super) fn values<T: Real>(&self) -> Result<&[T]> {
        let Storage::Cpu(storage) = &*self.storage else {
            bail!("expected a tensor on a CPU, found one on another device");
        };
        values(storage, self.layout)
    }
}
