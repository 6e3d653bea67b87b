//! Tensors in their places in a gradient's bytes.

use std::ops::Range;

use super::Number;

/// Stores each of `tensors`, or adds it to what is there, in `gradient`: f32 or f64, native-endian, from the byte on that each comes with. A stored
/// element keeps its bits. What lies between tensors stays.
///
/// # Panics
/// When a tensor goes beyond the gradient.
pub fn pack<T: Number>(gradient: &mut [u8], tensors: &[(usize, &[T])], add: bool) {
    for &(offset, values) in tensors {
        for (number, &own) in values.iter().enumerate() {
            let place = &mut gradient[element::<T>(offset, number)];
            let there: T = bytemuck::pod_read_unaligned(place);
            place.copy_from_slice(bytemuck::bytes_of(&if add { there.plus(own) } else { own }));
        }
    }
}

/// Stores what `gradient` has from the byte on that each of `tensors` comes with, or adds it to what is there, in the tensors: [`pack`] the other way.
///
/// # Panics
/// When a tensor goes beyond the gradient.
pub fn unpack<T: Number>(gradient: &[u8], tensors: &mut [(usize, &mut [T])], add: bool) {
    for (offset, values) in tensors {
        for (number, own) in values.iter_mut().enumerate() {
            let there: T = bytemuck::pod_read_unaligned(&gradient[element::<T>(*offset, number)]);
            *own = if add { own.plus(there) } else { there };
        }
    }
}

fn element<T>(offset: usize, number: usize) -> Range<usize> {
    let start = offset + number * size_of::<T>();
    start..start + size_of::<T>()
}
