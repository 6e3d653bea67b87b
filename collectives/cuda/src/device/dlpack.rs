//! A tensor of another library's, by DLPack, as one of a device: whether it is one that kernels can take. Must not know the library.

use half::{bf16, f16};
use thiserror::Error;

use super::tensor::Element;
use super::{Device, DeviceTensor, Stream};
use crate::raw::dlpack::{DlPack, MAJOR, MOST_DIMENSIONS, Said};
use crate::raw::memory::RawMemory;

/// The kind of device that memory of a GPU is on.
const CUDA: i32 = 2;

/// The flag of a tensor that is only to be read.
const READ_ONLY: u64 = 1;

/// Why a tensor of another library's is not taken. It has been given back.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DlPackError {
    /// There is none.
    #[error("expected a tensor by DLPack, found a null pointer; pass what the capsule holds")]
    Null,
    /// Its layout is not known.
    #[error(
        "expected DLPack of version {MAJOR}, found {0}.{1}; have the producer give that: `__dlpack__(max_version=({MAJOR}, 0))`"
    )]
    Version(u32, u32),
    /// It lies elsewhere.
    #[error(
        "expected a tensor on the CUDA device {expected}, found one on a device of kind {kind} and number {ordinal}; move it there"
    )]
    Device {
        /// The device that is to use it.
        expected: usize,
        /// DLPack's number of a kind: 1 for the host, 2 for CUDA.
        kind: i32,
        /// The device's number among those of its kind.
        ordinal: i32,
    },
    /// Its elements are others.
    #[error(
        "expected elements of type {expected}, found DLPack's type {code} of {bits} bits and {lanes} lanes; convert it, or ask for what it is"
    )]
    Dtype {
        /// The type that was asked for.
        expected: &'static str,
        /// DLPack's number of a kind of numbers.
        code: u8,
        /// Bits of each.
        bits: u8,
        /// How many make an element.
        lanes: u16,
    },
    /// Its shape is none.
    #[error(
        "expected a shape of at most {MOST_DIMENSIONS} dimensions whose elements can be counted, found {dimensions} dimensions, {shape:?}; correct the producer"
    )]
    Shape {
        /// How many there are.
        dimensions: i32,
        /// How long each is, of those that were read.
        shape: Vec<i64>,
    },
    /// Its elements do not lie one behind the other.
    #[error(
        "expected elements that lie in rows, one behind the other, found strides {strides:?} for the shape {shape:?}; make it contiguous"
    )]
    Strides {
        /// How long each dimension is.
        shape: Vec<i64>,
        /// How far the elements are apart in each.
        strides: Vec<i64>,
    },
    /// Its address is none that kernels take.
    #[error(
        "expected an address that is a multiple of {expected}, with {bytes} bytes behind it, found {address:#x} and the offset {offset}; copy it"
    )]
    Address {
        /// An element's bytes.
        expected: usize,
        /// Bytes of all elements.
        bytes: usize,
        /// What its data begin at.
        address: u64,
        /// How far the first element is from there.
        offset: u64,
    },
    /// It must not be written, and kernels may write any tensor.
    #[error(
        "expected a tensor that may be written, found one that is only to be read; have the producer copy it: `__dlpack__(copy=True)`"
    )]
    ReadOnly,
}

/// An element's type by its name, and as DLPack numbers it: the kind of number, and its bits.
pub trait Exchanged: Element + sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        const DTYPE: (&'static str, u8, u8);
    }
}

macro_rules! exchanged {
    ($($type:ty: $code:literal;)*) => {$(
        impl Exchanged for $type {}
        impl sealed::Sealed for $type {
            const DTYPE: (&'static str, u8, u8) = (stringify!($type), $code, 8 * size_of::<$type>() as u8);
        }
    )*};
}

exchanged! {
    u8: 1;
    u32: 1;
    u64: 1;
    f16: 2;
    f32: 2;
    f64: 2;
    bf16: 4;
}

impl DlPack {
    /// The tensor's shape. None where there is no tensor, or its version is not known.
    #[must_use]
    pub fn shape(&self) -> Option<&[i64]> {
        self.found()?.1.map(|said| said.shape.as_slice())
    }
}

impl<T: Exchanged> DeviceTensor<T> {
    /// A tensor of another library's, at home on `home`, all of whose elements lie one behind the other. It is not counted, and not copied. When it ends, the host
    /// waits until all streams of the device have come past all that was enqueued on them so far; then the tensor is given back to its library, once.
    ///
    /// # Errors
    /// When it is not on this device, has elements of another type, or does not lie as kernels take it. It is given back then.
    pub fn from_dlpack(device: &Device, home: Stream, tensor: DlPack) -> Result<Self, DlPackError> {
        let said = match tensor.found() {
            None => return Err(DlPackError::Null),
            Some(([major, minor], None)) => return Err(DlPackError::Version(major, minor)),
            Some((_, Some(said))) => said,
        };
        let (address, length) = place::<T>(said, device.0.context.ordinal())?;
        let streams = Stream::ALL.map(|stream| device.stream(stream).clone());
        let memory = RawMemory::lent(address, length, tensor.into_lent(), streams);
        Ok(Self::from_raw(device, home, memory))
    }
}

impl Device {
    /// CUDA's handle of a stream, as a number: for libraries that are told on which stream their tensor is going to be used, as by `__dlpack__(stream=…)`.
    #[must_use]
    pub fn handle(&self, stream: Stream) -> usize {
        self.stream(stream).cu_stream().expose_provenance()
    }
}

/// The address of the first element, and how many there are.
fn place<T: Exchanged>(said: &Said, ordinal: usize) -> Result<(u64, usize), DlPackError> {
    let (kind, number) = said.device;
    if kind != CUDA || usize::try_from(number) != Ok(ordinal) {
        return Err(DlPackError::Device {
            expected: ordinal,
            kind,
            ordinal: number,
        });
    }
    let (expected, code, bits) = T::DTYPE;
    if said.dtype != (code, bits, 1) {
        let (code, bits, lanes) = said.dtype;
        return Err(DlPackError::Dtype {
            expected,
            code,
            bits,
            lanes,
        });
    }
    if said.flags & READ_ONLY != 0 {
        return Err(DlPackError::ReadOnly);
    }
    let length = elements(said).filter(|length| {
        length
            .checked_mul(size_of::<T>())
            .is_some_and(|bytes| isize::try_from(bytes).is_ok())
    });
    let length = length.ok_or_else(|| DlPackError::Shape {
        dimensions: said.dimensions,
        shape: said.shape.clone(),
    })?;
    if let Some(strides) = said
        .strides
        .as_ref()
        .filter(|strides| length > 0 && !is_dense(&said.shape, strides))
    {
        return Err(DlPackError::Strides {
            shape: said.shape.clone(),
            strides: strides.clone(),
        });
    }
    if length == 0 {
        return Ok((0, 0));
    }
    let bytes = length * size_of::<T>();
    let first = said.address.checked_add(said.byte_offset);
    let fits = |first: &u64| {
        said.address != 0 && first.is_multiple_of(size_of::<T>() as u64) && first.checked_add(bytes as u64).is_some()
    };
    let first = first.filter(fits).ok_or(DlPackError::Address {
        expected: size_of::<T>(),
        bytes,
        address: said.address,
        offset: said.byte_offset,
    })?;
    Ok((first, length))
}

/// How many elements a shape has; without dimensions it is one. None where it is no shape.
fn elements(said: &Said) -> Option<usize> {
    if usize::try_from(said.dimensions) != Ok(said.shape.len()) {
        return None;
    }
    let lengths: Option<Vec<usize>> = said.shape.iter().map(|length| usize::try_from(*length).ok()).collect();
    let lengths = lengths?;
    if lengths.contains(&0) {
        return Some(0);
    }
    lengths.into_iter().try_fold(1_usize, usize::checked_mul)
}

/// Whether the last dimension's elements lie side by side, and each other's as far apart as what is within it is long. Where there is one only, nothing lies apart.
fn is_dense(shape: &[i64], strides: &[i64]) -> bool {
    let mut apart = 1_i64;
    shape.len() == strides.len()
        && shape.iter().zip(strides).rev().all(|(length, stride)| {
            let lies = *length == 1 || *stride == apart;
            apart = apart.saturating_mul(*length);
            lies
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Said {
        Said {
            address: 0x1000,
            byte_offset: 0,
            device: (CUDA, 0),
            dtype: (2, 32, 1),
            dimensions: 2,
            shape: vec![3, 4],
            strides: None,
            flags: 0,
        }
    }

    fn changed(change: impl FnOnce(&mut Said)) -> Result<(u64, usize), DlPackError> {
        let mut said = said();
        change(&mut said);
        place::<f32>(&said, 0)
    }

    fn shaped(shape: &[i64], strides: Option<&[i64]>) -> Result<(u64, usize), DlPackError> {
        changed(|said| {
            said.dimensions = shape.len() as i32;
            said.shape = shape.to_vec();
            said.strides = strides.map(<[i64]>::to_vec);
        })
    }

    #[test]
    fn elements_one_behind_the_other_are_taken_whatever_their_shape() {
        for (shape, strides, length) in [
            (&[3, 4][..], None, 12),
            (&[3, 4], Some(&[4, 1][..]), 12),
            (&[], None, 1),
            (&[], Some(&[]), 1),
            (&[1, 5, 1], Some(&[77, 1, -3]), 5),
            (&[0, 5], Some(&[9, 9]), 0),
            (&[i64::MAX, 0, i64::MAX], None, 0),
        ] {
            let address = if length == 0 { 0 } else { 0x1000 };
            assert_eq!(shaped(shape, strides), Ok((address, length)), "{shape:?} {strides:?}");
        }
        assert_eq!(changed(|said| said.byte_offset = 8), Ok((0x1008, 12)));
    }

    #[test]
    fn elements_that_lie_otherwise_are_refused() {
        for (shape, strides) in [
            (&[3, 4][..], &[1, 3][..]),
            (&[3, 4], &[8, 1]),
            (&[3, 4], &[0, 1]),
            (&[2], &[-1]),
        ] {
            assert!(
                matches!(shaped(shape, Some(strides)), Err(DlPackError::Strides { .. })),
                "{shape:?} {strides:?}"
            );
        }
    }

    #[test]
    fn a_shape_that_no_memory_has_is_refused() {
        let too_many = [1; 65];
        for shape in [
            &[-1, 4][..],
            &[1 << 32, 1 << 32],
            &[i64::MAX],
            &[1 << 61],
            &[i64::MAX, i64::MAX, i64::MAX],
        ] {
            assert!(matches!(shaped(shape, None), Err(DlPackError::Shape { .. })), "{shape:?}");
        }
        // More dimensions than are read, and fewer than none.
        for dimensions in [too_many.len() as i32, -1, i32::MIN] {
            let found = changed(|said| (said.dimensions, said.shape) = (dimensions, vec![]));
            assert!(matches!(found, Err(DlPackError::Shape { .. })), "{dimensions}");
        }
    }

    #[test]
    fn other_devices_types_and_addresses_are_refused() {
        for device in [(1, 0), (3, 0), (13, 0), (CUDA, 1), (CUDA, -1)] {
            assert!(
                matches!(changed(|said| said.device = device), Err(DlPackError::Device { .. })),
                "{device:?}"
            );
        }
        for dtype in [
            (2, 64, 1),
            (2, 16, 1),
            (1, 32, 1),
            (0, 32, 1),
            (2, 32, 4),
            (2, 32, 0),
            (4, 16, 1),
            (255, 255, 1),
        ] {
            assert!(
                matches!(changed(|said| said.dtype = dtype), Err(DlPackError::Dtype { .. })),
                "{dtype:?}"
            );
        }
        for (address, offset) in [(0x1001, 0), (0x1000, 2), (0, 0), (0, 4), (u64::MAX - 3, 4), (u64::MAX - 7, 0)] {
            let found = changed(|said| (said.address, said.byte_offset) = (address, offset));
            assert!(matches!(found, Err(DlPackError::Address { .. })), "{address:#x} {offset}");
        }
        assert_eq!(changed(|said| said.flags = READ_ONLY), Err(DlPackError::ReadOnly));
        assert_eq!(changed(|said| said.flags = 2), Ok((0x1000, 12)), "a copy");
    }

    #[test]
    fn types_are_numbered_as_dlpack_has_them() {
        fn of<T: Exchanged>() -> (&'static str, u8, u8) {
            T::DTYPE
        }
        let all = [
            of::<u8>(),
            of::<u32>(),
            of::<u64>(),
            of::<f16>(),
            of::<bf16>(),
            of::<f32>(),
            of::<f64>(),
        ];
        let expected = [
            ("u8", 1, 8),
            ("u32", 1, 32),
            ("u64", 1, 64),
            ("f16", 2, 16),
            ("bf16", 4, 16),
            ("f32", 2, 32),
            ("f64", 2, 64),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn each_error_says_what_was_expected_and_found_and_what_to_do() {
        let errors = [
            DlPackError::Null,
            DlPackError::Version(2, 0),
            changed(|said| said.device = (1, 0)).unwrap_err(),
            changed(|said| said.dtype = (1, 8, 1)).unwrap_err(),
            shaped(&[-1], None).unwrap_err(),
            shaped(&[2, 2], Some(&[1, 2])).unwrap_err(),
            changed(|said| said.address = 1).unwrap_err(),
            DlPackError::ReadOnly,
        ];
        for error in errors {
            let words = error.to_string();
            assert!(
                words.starts_with("expected ") && words.contains(", found ") && words.contains(';'),
                "{words}"
            );
        }
    }
}
