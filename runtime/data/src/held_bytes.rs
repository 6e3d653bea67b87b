//! How much memory samples take, for those who hold many of them.

use super::array::Array;
use super::image::Image;

/// What can say how many bytes of memory it holds, about.
pub trait HeldBytes {
    /// Bytes, with what it points to.
    fn held_bytes(&self) -> usize;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl HeldBytes for $type {
            fn held_bytes(&self) -> usize {
                size_of::<Self>()
            }
        }
    )*};
}

plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, bool, ());

impl<T> HeldBytes for Array<T> {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(self.shape()) + size_of_val(self.values())
    }
}

impl HeldBytes for Image {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes().len()
    }
}

impl<T: HeldBytes> HeldBytes for Vec<T> {
    fn held_bytes(&self) -> usize {
        let spare = (self.capacity() - self.len()) * size_of::<T>();
        size_of::<Self>() + spare + self.iter().map(HeldBytes::held_bytes).sum::<usize>()
    }
}

impl HeldBytes for String {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.capacity()
    }
}

impl<A: HeldBytes, B: HeldBytes> HeldBytes for (A, B) {
    fn held_bytes(&self) -> usize {
        self.0.held_bytes() + self.1.held_bytes()
    }
}

impl<A: HeldBytes, B: HeldBytes, C: HeldBytes> HeldBytes for (A, B, C) {
    fn held_bytes(&self) -> usize {
        self.0.held_bytes() + self.1.held_bytes() + self.2.held_bytes()
    }
}
