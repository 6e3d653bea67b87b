//! A launch of a program's own kernel: arguments of types, compared with what the kernel takes before anything is enqueued. Must not know why it is launched.

use std::fmt;

use cudarc::driver::CudaFunction;

use super::ptx::{Entry, Takes};
use super::{Program, ProgramError, Trusted};
use crate::device::{Device, Element, Enqueue, View, ViewMut};
use crate::geometry::Geometry;
use crate::raw::launch::ArgumentBytes;

/// Most bytes of shared memory that a launch adds to the kernel's own; all devices have them.
const MOST_SHARED: u32 = 48 << 10;

/// A kernel of a [`Program`], which stays as long as this.
#[derive(Debug, Clone)]
pub struct LoadedKernel {
    program: Program,
    number: usize,
    function: CudaFunction,
}

/// A number that is passed to a kernel by value: `f32`, `f64`, an integer of 8 to 64 bits, or a `bool`.
pub trait Scalar: bytemuck::NoUninit + sealed::Sealed {
    #[doc(hidden)]
    const OFFERED: Offered;
}

mod sealed {
    pub trait Sealed {}
}

/// What an argument is.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// The address of a tensor's element.
    Address,
    /// A number of this type.
    Integer(&'static str, usize),
    /// A number of this type.
    Float(&'static str, usize),
    /// A structure of so many bytes.
    Structure(usize),
}

macro_rules! scalars {
    ($($kind:ident: $($type:ty),*;)*) => {$($(
        impl sealed::Sealed for $type {}
        impl Scalar for $type {
            const OFFERED: Offered = Offered::$kind(stringify!($type), size_of::<$type>());
        }
    )*)*};
}

scalars! {
    Float: f32, f64;
    Integer: u8, u16, u32, u64, i8, i16, i32, i64, bool;
}

impl Offered {
    /// Whether it can be given for a parameter. PTX tells an integer from a floating-point number, and older PTX no address from a `u64`.
    fn fits(self, takes: Takes) -> bool {
        match self {
            Self::Address => matches!(takes, Takes::Address | Takes::Integer(8) | Takes::Bits(8)),
            Self::Integer(_, bytes) => takes == Takes::Integer(bytes) || takes == Takes::Bits(bytes),
            Self::Float(_, bytes) => takes == Takes::Float(bytes) || takes == Takes::Bits(bytes),
            Self::Structure(bytes) => takes == Takes::Structure(bytes),
        }
    }
}

impl fmt::Display for Offered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => formatter.write_str("address"),
            Self::Integer(name, _) | Self::Float(name, _) => formatter.write_str(name),
            Self::Structure(bytes) => write!(formatter, "structure of {bytes} bytes"),
        }
    }
}

#[derive(Debug)]
struct Argument<'a> {
    offered: Offered,
    bytes: ArgumentBytes,
    /// Where the tensor lies, if it is one's.
    device: Option<&'a Device>,
}

/// A launch of a kernel, with its arguments in the order of the kernel's parameters. It borrows the tensors until it is enqueued, which needs [`Trusted`].
#[derive(Debug)]
pub struct Launch<'a> {
    kernel: &'a LoadedKernel,
    geometry: Geometry,
    shared: u32,
    arguments: Vec<Argument<'a>>,
}

impl LoadedKernel {
    pub(super) fn of(program: &Program, number: usize) -> Result<Self, ProgramError> {
        let loaded = &*program.0;
        let entry = &loaded.kernels[number];
        let found = loaded.device.function(&loaded.module, &entry.name)?;
        let (function, sizes) = found.map_err(|(code, words)| ProgramError::Refused {
            program: loaded.name.clone(),
            code,
            name: words,
            log: None,
        })?;
        let expected: Vec<usize> = entry.parameters.iter().map(|takes| takes.bytes()).collect();
        if sizes.as_ref().is_some_and(|found| *found != expected) {
            return Err(mistake(
                entry,
                format!("parameters of {expected:?} bytes, as its PTX has them,"),
                format!("{sizes:?} in its code"),
            ));
        }
        Ok(Self {
            program: program.clone(),
            number,
            function,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry().name
    }

    /// What it takes, in order.
    #[must_use]
    pub fn parameters(&self) -> &[Takes] {
        &self.entry().parameters
    }

    /// A launch with so many blocks and threads, still without arguments.
    #[must_use]
    pub const fn launch(&self, geometry: Geometry) -> Launch<'_> {
        Launch {
            kernel: self,
            geometry,
            shared: 0,
            arguments: Vec::new(),
        }
    }

    fn entry(&self) -> &Entry {
        &self.program.0.kernels[self.number]
    }
}

impl<'a> Launch<'a> {
    /// Gives each block so many bytes of shared memory besides the kernel's own: at most 48 KiB, both together.
    #[must_use]
    pub const fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    /// The next argument: elements that the kernel reads.
    #[must_use]
    pub fn read<T: Element>(self, view: View<'a, T>) -> Self {
        let (bytes, device) = (bytemuck::bytes_of(&view.address()).to_vec(), view.device());
        self.with(Offered::Address, &bytes, Some(device))
    }

    /// The next argument: elements that the kernel writes, and may read.
    #[must_use]
    pub fn write<T: Element>(self, view: ViewMut<'a, T>) -> Self {
        self.read(*view.read())
    }

    /// The next argument: a number.
    #[must_use]
    pub fn value<T: Scalar>(self, value: T) -> Self {
        self.with(T::OFFERED, bytemuck::bytes_of(&value), None)
    }

    /// The next argument: a structure, or an array in one, by value. Only its size is compared: its fields lie as C has them (`repr(C)`), without padding.
    #[must_use]
    pub fn structure<T: bytemuck::NoUninit>(self, value: T) -> Self {
        self.with(Offered::Structure(size_of::<T>()), bytemuck::bytes_of(&value), None)
    }

    fn with(mut self, offered: Offered, bytes: &[u8], device: Option<&'a Device>) -> Self {
        let bytes = ArgumentBytes::new(bytes);
        self.arguments.push(Argument { offered, bytes, device });
        self
    }

    /// Whether the kernel takes these, and a device has so much.
    fn check(&self, on: &Device) -> Result<(), ProgramError> {
        let entry = self.kernel.entry();
        let require =
            |holds: bool, expected: String, found: String| if holds { Ok(()) } else { Err(mistake(entry, expected, found)) };
        let is_here = *on == self.kernel.program.0.device
            && self.arguments.iter().all(|one| one.device.is_none_or(|device| device == on));
        require(
            is_here,
            "tensors of the device that it is on, and a stream of that,".into(),
            "another's".into(),
        )?;
        let takes = &entry.parameters;
        let fits = takes.len() == self.arguments.len()
            && takes.iter().zip(&self.arguments).all(|(takes, one)| one.offered.fits(*takes));
        require(fits, in_order(takes), in_order(self.arguments.iter().map(|one| &one.offered)))?;
        let geometry = self.geometry;
        if let Err(expected) = geometry.is_possible() {
            return require(false, expected.to_owned(), format!("{geometry:?}"));
        }
        require(
            self.shared <= MOST_SHARED,
            format!("at most {MOST_SHARED} bytes of shared memory"),
            format!("{}", self.shared),
        )
    }
}

impl Trusted<Launch<'_>> {
    /// Enqueues the kernel. It returns before the device has done it. What is in memory that is at home on the other stream must have been waited for
    /// ([`Device::wait`]), as for any kernel.
    ///
    /// # Errors
    /// When the kernel does not take the arguments, or the device is not that of the kernel and the tensors, or has not so many threads, registers or bytes: nothing
    /// is enqueued then. Or the device has failed.
    pub fn enqueue(self, on: Enqueue<'_>) -> Result<(), ProgramError> {
        let launch = self.into_inner();
        launch.check(on.device())?;
        let bytes: Vec<&ArgumentBytes> = launch.arguments.iter().map(|argument| &argument.bytes).collect();
        let done = on.enqueue(&launch.kernel.function, launch.geometry, launch.shared, &bytes)?;
        done.map_err(|(code, name)| {
            mistake(
                launch.kernel.entry(),
                "no more threads, registers and shared memory than the device has".to_owned(),
                format!("{name} ({code}) for {:?} and {} bytes", launch.geometry, launch.shared),
            )
        })
    }
}

/// A list as errors have it; no list is "nothing".
fn in_order<T: fmt::Display>(all: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    if words.is_empty() {
        "no argument".to_owned()
    } else {
        format!("({})", words.join(", "))
    }
}

fn mistake(entry: &Entry, expected: String, found: String) -> ProgramError {
    ProgramError::Launch {
        kernel: entry.name.clone(),
        expected,
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_fits_what_ptx_says_of_it() {
        let all = [
            Takes::Address,
            Takes::Integer(8),
            Takes::Integer(4),
            Takes::Float(8),
            Takes::Float(4),
            Takes::Bits(8),
            Takes::Bits(4),
            Takes::Structure(8),
            Takes::Integer(2),
        ];
        let fits = |offered: Offered| all.map(|takes| u8::from(offered.fits(takes)));
        assert_eq!(fits(Offered::Address), [1, 1, 0, 0, 0, 1, 0, 0, 0]);
        for wide in [u64::OFFERED, i64::OFFERED] {
            assert_eq!(fits(wide), [0, 1, 0, 0, 0, 1, 0, 0, 0]);
        }
        for narrow in [u32::OFFERED, i32::OFFERED] {
            assert_eq!(fits(narrow), [0, 0, 1, 0, 0, 0, 1, 0, 0]);
        }
        assert_eq!(fits(f64::OFFERED), [0, 0, 0, 1, 0, 1, 0, 0, 0]);
        assert_eq!(fits(f32::OFFERED), [0, 0, 0, 0, 1, 0, 1, 0, 0]);
        assert_eq!(fits(i16::OFFERED), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!(
            bool::OFFERED.fits(Takes::Integer(1))
                && u8::OFFERED.fits(Takes::Bits(1))
                && !u8::OFFERED.fits(Takes::Structure(1))
        );
        assert_eq!(fits(Offered::Structure(8)), [0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert!(!Offered::Structure(16).fits(Takes::Structure(8)));
    }
}
