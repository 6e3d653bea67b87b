//! Kernels that take many tensors at once.

use sardana_cuda::device::{DeviceTensor, Float};
use sardana_cuda::kernels::{self, Kernel};
use sardana_cuda::parameters::{MAX_PIECE_BYTES, SQUARES_TILE};
use sardana_cuda::reference::{Number, hashes, norms, tensors};

use super::Run;
use crate::numbers::Any;
use crate::on::{Both, On, Tried, Wrong};

pub(super) const TRIALS: [(Kernel, Run); 7] = [
    (kernels::PACK_F32, packed::<f32>),
    (kernels::PACK_F64, packed::<f64>),
    (kernels::UNPACK_F32, unpacked::<f32>),
    (kernels::UNPACK_F64, unpacked::<f64>),
    (kernels::SQUARES, squares),
    (kernels::TREE_SUMS, trees),
    (kernels::HASH_PIECES, pieces),
];

/// A gradient of these tensors, with a gap between each two.
struct Gradient<T> {
    bytes: Both<u8>,
    offsets: Vec<usize>,
    tensors: Vec<Both<T>>,
}

impl<T: Float + Any> Gradient<T> {
    fn of(on: &mut On<'_>) -> Result<Self, Wrong> {
        let (mut offsets, mut end) = (Vec::new(), 0);
        let lengths: Vec<usize> = on.lengths().into_iter().chain([1_023, 1_024, 1_025]).collect();
        for length in &lengths {
            offsets.push(end);
            end += (length + 1) * size_of::<T>();
        }
        let (values, _) = on.any::<T>(end / size_of::<T>())?;
        let bytes = on.there(bytemuck::cast_slice(&values).to_vec())?;
        let tensors = lengths.iter().map(|&length| on.any::<T>(length)).collect::<Result<_, _>>()?;
        Ok(Self { bytes, offsets, tensors })
    }
}

fn packed<T: Float + Any + Number>(on: &mut On<'_>) -> Tried {
    for add in [false, true] {
        let Gradient { bytes, offsets, tensors } = Gradient::<T>::of(on)?;
        let (mut expected, mut gradient) = bytes;
        let places = || offsets.iter().copied().zip(&tensors);
        let views: Vec<_> = places().map(|(offset, (_, tensor))| (offset as u64, tensor.view())).collect();
        on.enqueue().pack(&mut gradient.view_mut(), &views, add)?;
        let values: Vec<_> = places().map(|(offset, (values, _))| (offset, values.as_slice())).collect();
        tensors::pack(&mut expected, &values, add);
        on.same(&gradient, &expected)?;
    }
    Ok(())
}

fn unpacked<T: Float + Any + Number>(on: &mut On<'_>) -> Tried {
    for add in [false, true] {
        let Gradient { bytes, offsets, tensors } = Gradient::<T>::of(on)?;
        let (values, gradient) = bytes;
        let (mut expected, mut found): (Vec<Vec<T>>, Vec<DeviceTensor<T>>) = tensors.into_iter().unzip();
        let places = offsets.iter().map(|&offset| offset as u64);
        let mut views: Vec<_> = places.zip(found.iter_mut().map(DeviceTensor::view_mut)).collect();
        on.enqueue().unpack(&gradient.view(), &mut views, add)?;
        let places = offsets.iter().copied();
        let mut own: Vec<_> = places.zip(expected.iter_mut().map(Vec::as_mut_slice)).collect();
        tensors::unpack(&values, &mut own, add);
        for (found, expected) in found.iter().zip(&expected) {
            on.same(found, expected)?;
        }
    }
    Ok(())
}

fn squares(on: &mut On<'_>) -> Tried {
    for divisor in [1.0, 3.0] {
        let mut tensors = Vec::new();
        let tile = SQUARES_TILE as usize;
        for length in on.lengths().into_iter().chain([tile, 3 * tile + 1]) {
            tensors.extend([on.drawn(true, length)?, on.drawn(false, length)?]);
        }
        let views: Vec<_> = tensors.iter().map(|(_, tensor)| tensor.view()).collect();
        let mut out = on.room::<f64>(tensors.len())?;
        on.enqueue().squares(&mut out.view_mut(), &views, divisor)?;
        let expected: Vec<f64> = tensors.iter().map(|(values, _)| norms::squares(values, divisor)).collect();
        on.same(&out, &expected)?;
    }
    Ok(())
}

fn trees(on: &mut On<'_>) -> Tried {
    let (mut expected, mut rows) = (Vec::new(), Vec::new());
    for length in on.lengths().into_iter().chain([1_023, 1_024, 1_025]) {
        // Sums of thirds are rounded.
        let thirds = (0..length).map(|_| on.below(1 << 52) as f64 / 3.0).collect();
        for (terms, there) in [on.any(length)?, on.there(thirds)?] {
            expected.push(norms::tree_sum(&terms));
            rows.push(there);
        }
    }
    let mut out = on.room::<f64>(rows.len())?;
    let mut views: Vec<_> = rows.iter_mut().map(DeviceTensor::view_mut).collect();
    on.enqueue().tree_sums(&mut out.view_mut(), &mut views)?;
    on.same(&out, &expected)
}

/// Lengths at which blocks, chunks and trees of them end.
const PIECES: [usize; 13] = [0, 1, 63, 64, 65, 1_023, 1_024, 1_025, 2_048, 2_049, 3_073, 31_744, 65_537];

fn pieces(on: &mut On<'_>) -> Tried {
    let most = MAX_PIECE_BYTES as usize;
    let long = if on.is_quick() { vec![] } else { vec![most - 1, most] };
    // Behind one byte no address is a multiple of anything.
    for behind in [0, 1] {
        let mut tensors = Vec::new();
        for length in PIECES.into_iter().chain(long.clone()) {
            let bytes = (0..behind + length).map(|_| on.below(256) as u8).collect();
            tensors.push(on.there(bytes)?);
        }
        let views: Vec<_> = tensors.iter().map(|(_, tensor)| tensor.part(behind..tensor.len())).collect();
        let mut out = on.room::<u8>(32 * tensors.len())?;
        on.enqueue().hash_pieces(&mut out.view_mut(), &views)?;
        let expected: Vec<u8> = tensors.iter().flat_map(|(bytes, _)| hashes::hash(&bytes[behind..])).collect();
        on.same(&out, &expected)?;
    }
    Ok(())
}
