//! What a kernel is launched with. Knows neither the kernel nor how it runs.

use bytemuck::NoUninit;

use crate::memory::Address;

/// One launch: the kernel's name, how many blocks, how many threads in each, and the seed of their order.
#[derive(Clone, Debug)]
pub struct Launch {
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) seed: u64,
}

impl Launch {
    /// A launch in which blocks and threads go by their numbers.
    #[must_use]
    pub fn new(kernel: &str, grid: [u32; 3], block: [u32; 3]) -> Self {
        let kernel = kernel.to_owned();
        Self {
            kernel,
            grid,
            block,
            seed: 0,
        }
    }

    /// The same in the order of a seed; 0 is that of the numbers.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

/// The value of one parameter, as the bytes that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument(Vec<u8>);

impl Argument {
    /// A structure that is passed by value.
    #[must_use]
    pub fn value<T: NoUninit>(value: &T) -> Self {
        Self(bytemuck::bytes_of(value).to_vec())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

macro_rules! from {
    ($($type:ty),*) => {$(
        impl From<$type> for Argument {
            fn from(value: $type) -> Self {
                Self::value(&value)
            }
        }
    )*};
}

from!(u32, u64, f32, f64);

impl From<Address> for Argument {
    fn from(address: Address) -> Self {
        Self::value(&address.get())
    }
}
