//! Numbers that are combined as what they are: what becomes of one, and the loops over many.

use super::sealed::Kernels;
use super::{Combine, Element, ElementType, Reduction};

/// What becomes of one element.
trait Number: Copy {
    fn plus(self, own: Self) -> Self;
    fn least(self, own: Self) -> Self;
    fn greatest(self, own: Self) -> Self;
    /// A sum over so many ranks as their mean.
    fn divided(self, ranks: u32) -> Self;
    /// With one NaN.
    fn canonical(self) -> Self;
}

macro_rules! float {
    ($type:ty) => {
        impl Number for $type {
            #[inline(always)]
            fn plus(self, own: Self) -> Self {
                (self + own).canonical()
            }

            #[inline(always)]
            fn least(self, own: Self) -> Self {
                // Equal numbers have equal bits, but for the zeros: of these the negative one has a bit more.
                let equal = Self::from_bits(self.to_bits() | own.to_bits());
                let unequal = if self < own { self } else { own };
                let least = if self == own { equal } else { unequal };
                if self.is_nan() | own.is_nan() { Self::NAN } else { least }
            }

            #[inline(always)]
            fn greatest(self, own: Self) -> Self {
                let equal = Self::from_bits(self.to_bits() & own.to_bits());
                let unequal = if self > own { self } else { own };
                let greatest = if self == own { equal } else { unequal };
                if self.is_nan() | own.is_nan() {
                    Self::NAN
                } else {
                    greatest
                }
            }

            #[inline(always)]
            fn divided(self, ranks: u32) -> Self {
                // There are far fewer ranks than either type can count.
                (self / ranks as Self).canonical()
            }

            #[inline(always)]
            fn canonical(self) -> Self {
                if self.is_nan() { Self::NAN } else { self }
            }
        }
    };
}

macro_rules! integer {
    ($type:ty) => {
        impl Number for $type {
            #[inline(always)]
            fn plus(self, own: Self) -> Self {
                self.wrapping_add(own)
            }

            #[inline(always)]
            fn least(self, own: Self) -> Self {
                self.min(own)
            }

            #[inline(always)]
            fn greatest(self, own: Self) -> Self {
                self.max(own)
            }

            /// It stays a sum: a group refuses the mean of integers before anything is combined.
            #[inline(always)]
            fn divided(self, _ranks: u32) -> Self {
                self
            }

            #[inline(always)]
            fn canonical(self) -> Self {
                self
            }
        }
    };
}

/// The loops over elements of one type that are combined in one way.
macro_rules! combining {
    ($name:ident, $type:ty, $by:ident) => {
        mod $name {
            use multiversion::multiversion;

            use super::super::Number;

            #[multiversion(targets("x86_64+avx2"))]
            pub(super) fn fold(running: &[u8], own: &[$type], out: &mut [u8]) {
                let (running, _) = running.as_chunks::<{ size_of::<$type>() }>();
                let (out, _) = out.as_chunks_mut::<{ size_of::<$type>() }>();
                for ((running, own), out) in running.iter().zip(own).zip(out) {
                    *out = <$type>::from_le_bytes(*running).$by(*own).to_le_bytes();
                }
            }

            #[multiversion(targets("x86_64+avx2"))]
            pub(super) fn fold_here(running: &[u8], own: &mut [$type]) {
                let (running, _) = running.as_chunks::<{ size_of::<$type>() }>();
                for (running, own) in running.iter().zip(own) {
                    *own = <$type>::from_le_bytes(*running).$by(*own);
                }
            }
        }
    };
}

/// The loops over elements of one type. Each is compiled several times, and the processor decides which one runs: they differ in how many elements
/// an instruction takes, and not in what becomes of an element.
macro_rules! loops {
    ($name:ident, $type:ty, $dtype:ident) => {
        impl Element for $type {
            const TYPE: ElementType = ElementType::$dtype;
        }

        mod $name {
            use multiversion::multiversion;

            use super::{Combine, Kernels, Number, Reduction};

            combining!(sum, $type, plus);
            combining!(min, $type, least);
            combining!(max, $type, greatest);

            #[multiversion(targets("x86_64+avx2"))]
            fn divide(sums: &mut [$type], ranks: u32) {
                sums.iter_mut().for_each(|sum| *sum = sum.divided(ranks));
            }

            #[multiversion(targets("x86_64+avx2"))]
            fn make_canonical(values: &mut [$type]) {
                values.iter_mut().for_each(|value| *value = value.canonical());
            }

            impl Kernels for $type {
                const RUNNING_BYTES: usize = size_of::<Self>();

                fn begin(own: &[Self], out: &mut [u8]) {
                    let (out, _) = out.as_chunks_mut::<{ size_of::<Self>() }>();
                    for (own, out) in own.iter().zip(out) {
                        *out = own.to_le_bytes();
                    }
                }

                fn fold(reduction: Reduction, running: &[u8], own: &[Self], out: &mut [u8]) {
                    match reduction.combine() {
                        Combine::Add => sum::fold(running, own, out),
                        Combine::Min => min::fold(running, own, out),
                        Combine::Max => max::fold(running, own, out),
                    }
                }

                fn close(reduction: Reduction, world_size: u32, running: &[u8], own: &mut [Self]) {
                    match reduction.combine() {
                        Combine::Add => sum::fold_here(running, own),
                        Combine::Min => min::fold_here(running, own),
                        Combine::Max => max::fold_here(running, own),
                    }
                    if reduction == Reduction::Mean {
                        divide(own, world_size);
                    }
                }

                fn alone(own: &mut [Self]) {
                    make_canonical(own);
                }
            }
        }
    };
}

float!(f32);
float!(f64);
integer!(i32);
integer!(i64);
integer!(u64);

loops!(of_f32, f32, F32);
loops!(of_f64, f64, F64);
loops!(of_i32, i32, I32);
loops!(of_i64, i64, I64);
loops!(of_u64, u64, U64);
