//! Kernels of a program's own: CUDA C that NVRTC compiles as the program runs, or PTX that was compiled before, and typed launches of them. Must not know what
//! they compute.
//!
//! ```no_run
//! use sardana_cuda::device::{Device, DeviceTensor, Stream};
//! use sardana_cuda::geometry;
//! use sardana_cuda::program::{Options, Program, Trusted};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let source = r#"
//!     extern "C" __global__ void scale(float* out, const float* values, float by, unsigned long long length) {
//!         unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
//!         for (unsigned long long i = first; i < length; i += (unsigned long long)gridDim.x * blockDim.x)
//!             out[i] = values[i] * by;
//!     }
//! "#;
//! let device = Device::open(0)?;
//! let scale = Program::compile(&device, "scale.cu", source, &Options::new())?.kernel("scale")?;
//! let values = DeviceTensor::from_slice(&device, Stream::Compute, &[1.0_f32, 2.0, 3.0])?;
//! let mut out = DeviceTensor::<f32>::unset(&device, Stream::Compute, 3)?;
//! if let Some(geometry) = geometry::elements(3) {
//!     let launch = scale.launch(geometry).write(out.view_mut()).read(values.view()).value(2.0_f32).value(3_u64);
//!     // SAFETY: of this length it reads all elements of `values`, and writes as many of `out`.
//!     unsafe { Trusted::new(launch) }.enqueue(device.on(Stream::Compute))?;
//! }
//! assert_eq!(out.to_vec()?, [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```
//!
//! **Bits.** A kernel whose result must not depend on the device or on the compiler's version uses no atomics of floating-point numbers, and none but additions,
//! products, quotients, roots and `fmaf`, each of which IEEE 754 fixes: `expf`, `tanhf` and so on have a last bit that another version may have another one of.
//! [`Options`] has nothing contracted unless it is told to.

mod cache;
mod compiler;
mod error;
mod includes;
mod launch;
mod log;
mod ptx;
mod source;

use std::sync::Arc;

use cudarc::driver::CudaModule;

pub use error::{CompileError, CompilerAbsent, ProgramError};
pub use launch::{Launch, LoadedKernel, Scalar};
pub use ptx::Takes;
pub use source::Options;

pub use crate::raw::launch::Trusted;

use crate::device::Device;
use crate::raw::nvrtc::Input;
use cache::Place;
use compiler::Compiler;
use ptx::Entry;
use source::require;

/// Most bytes of PTX.
const MOST_PTX_BYTES: usize = crate::raw::nvrtc::MOST_PTX;

/// A file of kernels on a device. Clones are the same one. Its code is there until the last of them, and of its kernels, is gone; that one waits until
/// the device has done what was enqueued.
#[derive(Debug, Clone)]
pub struct Program(Arc<Loaded>);

#[derive(Debug)]
struct Loaded {
    device: Device,
    name: String,
    kernels: Vec<Entry>,
    origin: Origin,
    module: Arc<CudaModule>,
}

/// Where a program's PTX comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// From who made the program.
    Given,
    /// From the folder in which PTX is kept.
    Kept,
    /// From the compiler; from now on it is kept.
    Compiled,
    /// From the compiler, and it is not kept: because the options say so, no folder is known, or for this reason.
    CompiledOnly(Option<String>),
}

impl Program {
    /// Compiles CUDA C for the device, or finds what the same compiler has made of the same source for such a device before. `name` is that of the file in
    /// messages of the compiler. It takes some 0.1 s, and none if it is found.
    ///
    /// # Errors
    /// When there is no NVRTC, the source is none that it takes, or the driver does not take what it makes.
    pub fn compile(device: &Device, name: &str, source: &str, options: &Options) -> Result<Self, ProgramError> {
        let compiler = Compiler::of_this_machine()?;
        let architecture = compiler.architecture(device.capability()?)?;
        let input = options.input(name, source, architecture)?;
        let place = place(compiler, source, options, &input);
        if let Some(ptx) = place.as_ref().ok().and_then(Place::read) {
            return Self::load(device, name, &ptx, || Origin::Kept);
        }
        let ptx = compiler.compile(&input)?;
        let flags = || {
            input
                .flags
                .iter()
                .map(|flag| flag.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" ")
        };
        require(
            !ptx.trim().is_empty(),
            || format!("flags with which NVRTC makes PTX of `{name}`"),
            || format!("that it makes none with {}", flags()),
        )?;
        Self::load(device, name, &ptx, || {
            let kept = place.and_then(|place| place.write(&ptx).map_err(|error| Some(error.to_string())));
            kept.map_or_else(Origin::CompiledOnly, |()| Origin::Compiled)
        })
    }

    /// Loads PTX, which the driver makes code of: compiled before, for this device's architecture or an older one, by a compiler that is no newer than
    /// the driver. `name` is what errors call it.
    ///
    /// # Errors
    /// When it is no PTX, has no kernels, or the driver does not take it.
    pub fn from_ptx(device: &Device, name: &str, ptx: &str) -> Result<Self, ProgramError> {
        Self::load(device, name, ptx, || Origin::Given)
    }

    /// `origin` is asked once it is loaded.
    fn load(device: &Device, name: &str, ptx: &str, origin: impl FnOnce() -> Origin) -> Result<Self, ProgramError> {
        let most = || format!("PTX of at most {MOST_PTX_BYTES} bytes");
        require(ptx.len() <= MOST_PTX_BYTES, most, || format!("{}", ptx.len()))?;
        let zero = ptx.bytes().position(|byte| byte == 0);
        require(
            zero.is_none(),
            || "PTX without a zero byte".into(),
            || format!("one at byte {}", zero.unwrap_or(0)),
        )?;
        let kernels = ptx::entries(ptx).map_err(|found| ProgramError::Input {
            expected: format!("PTX of kernels whose parameters can be read in `{name}`"),
            found,
        })?;
        require(
            !kernels.is_empty(),
            || format!("a kernel in `{name}`, declared `__global__`"),
            || "none".into(),
        )?;
        let module = match device.load(ptx)? {
            Ok(module) => module,
            Err((code, words)) => {
                return Err(ProgramError::Refused {
                    program: name.to_owned(),
                    code,
                    name: words,
                    log: device.why_refused(ptx)?,
                });
            }
        };
        Ok(Self(Arc::new(Loaded {
            device: device.clone(),
            name: name.to_owned(),
            kernels,
            origin: origin(),
            module,
        })))
    }

    /// The kernel of this name. One that is not declared `extern "C"` has the name that the compiler gives it.
    ///
    /// # Errors
    /// When there is none, or the driver does not give it.
    pub fn kernel(&self, name: &str) -> Result<LoadedKernel, ProgramError> {
        let Some(number) = self.0.kernels.iter().position(|kernel| kernel.name == name) else {
            return Err(ProgramError::Unknown {
                program: self.0.name.clone(),
                asked: name.to_owned(),
                kernels: self.kernels().map(str::to_owned).collect(),
            });
        };
        LoadedKernel::of(self, number)
    }

    /// The names of its kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.0.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// Where its PTX comes from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// The device that it is on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.0.device
    }
}

/// Where the PTX of a source is kept, or why it is not.
fn place(compiler: &Compiler, source: &str, options: &Options, input: &Input) -> Result<Place, Option<String>> {
    let folder = options.folder(source)?;
    let build = compiler
        .build()
        .ok_or_else(|| "it is not known which file NVRTC is".to_owned())?;
    Place::open(&folder, source::key(input, build)).map_err(|error| Some(error.to_string()))
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // Code must stay until it has run. That the device has failed is what its next call says.
        let _ = self.device.synchronize();
    }
}
