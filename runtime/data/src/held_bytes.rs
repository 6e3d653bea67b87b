//! How much memory samples take, for those who hold many of them.

use super::array::Array;
use super::image::Image;

/// What can say how many bytes of memory it holds, about.
pub trait HeldBytes {
    /// Bytes, with what it points to.
    fn held_bytes(&self) -> usize;
}

/// What allocators keep beside each piece of memory that they give, about.
const ALLOCATION: usize = 16;

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
        size_of::<Self>() + ALLOCATION + size_of_val(self.shape()) + ALLOCATION + self.room()
    }
}

impl HeldBytes for Image {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + ALLOCATION + self.room()
    }
}

impl<T: HeldBytes> HeldBytes for Vec<T> {
    fn held_bytes(&self) -> usize {
        let spare = (self.capacity() - self.len()) * size_of::<T>();
        size_of::<Self>() + ALLOCATION + spare + self.iter().map(HeldBytes::held_bytes).sum::<usize>()
    }
}

impl HeldBytes for String {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + ALLOCATION + self.capacity()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_spare_counts() {
        let spare = || {
            let mut bytes = Vec::with_capacity(100);
            bytes.extend([1_u8; 12]);
            bytes
        };
        assert!(Array::row(spare()).held_bytes() >= size_of::<Array<u8>>() + 100);
        let image = Image::new(3, 2, 2, spare()).unwrap();
        assert!(image.held_bytes() >= size_of::<Image>() + 100);
    }

    #[test]
    fn an_image_as_numbers_has_none_to_spare() {
        let image = Image::new(3, 20, 20, vec![7; 1_200]).unwrap();
        let exact = size_of::<Array<f32>>() + 2 * ALLOCATION + 3 * size_of::<usize>() + 4 * 1_200;
        assert_eq!(image.to_unit().held_bytes(), exact);
        assert_eq!(image.normalise(&[0.5; 3], &[0.5; 3]).unwrap().held_bytes(), exact);
    }
}
