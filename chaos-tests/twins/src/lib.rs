//! A twin of a GPU on the host, for tests alone: it compiles CUDA C with the machine's C++ compiler and runs it, so that a kernel is checked where there
//! is no GPU. Knows no kernel, and nothing of Sardana.
//!
//! - [`Source`]: the text of kernels; [`Twin`]: the same, compiled and loaded. One launch at a time.
//! - [`Memory`]: the device's memory, in buffers with guard zones around them.
//! - [`Launch`]: which kernel, with which grid, with which parameters, and from which seed: the order of blocks, and that in which the threads of a
//!   block go on after a barrier or a shuffle, are drawn from it.
//!
//! - [`Driver`]: all of these behind the interface of CUDA's own driver, for programs that call that: lazy streams in a seeded order.
//!   [`DriverFiles::with_nccl`]: and NCCL beside it.
//!
//! A launch that goes wrong is a [`Fault`], and says which thread did what. Found are accesses outside of every buffer, writes to what is only read,
//! reads of what is not set (in buffers, and in shared memory, which is poisoned before each block), races between blocks and within one, barriers
//! that some threads do not reach, addresses that are not aligned, shifts by too many bits. Races, bounds and what is not set are looked at on each
//! access, so that they are found whatever the seed is. Atomics and functions whose last bit differs between devices do not compile.
//!
//! Not found is what depends on time, on the memory model beyond barriers, or on how the device's compiler rounds: a test of the PTX sees to that.
//!
//! ```
//! use sardana_twins::{Compiler, Launch, Memory, Source};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let Some(compiler) = Compiler::find() else {
//!     println!("skipped: no C++ compiler that can make twins is found");
//!     return Ok(());
//! };
//! let text = r#"
//!     extern "C" __global__ void double_all(float* values, unsigned length) {
//!         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
//!         if (i < length) values[i] = values[i] + values[i];
//!     }
//! "#;
//! let twin = compiler.compile(&Source::new("double.cu", text, &["double_all"]))?;
//! let mut memory = Memory::new();
//! let values = memory.holding(&[1.0_f32, 2.0, 3.0]);
//! let launch = Launch::new("double_all", [2, 1, 1], [2, 1, 1]).seed(7);
//! twin.launch(&launch, &mut memory, &[values.into(), 3_u32.into()])?;
//! assert_eq!(memory.read::<f32>(values, 3), [2.0, 4.0, 6.0]);
//!
//! // One element more than there are.
//! let fault = twin.launch(&launch, &mut memory, &[values.into(), 4_u32.into()]).unwrap_err();
//! assert!(fault.to_string().contains("outside of every buffer"), "{fault}");
//! # Ok(())
//! # }
//! ```

mod argument;
mod compiler;
mod driver;
mod library;
mod memory;
mod nccl;
mod nvml;
mod source;

pub use argument::{Argument, Launch};
pub use compiler::{CompileError, Compiler};
pub use driver::{Count, Driver, DriverFiles, Left, Planted, Session};
pub use library::{Fault, Twin};
pub use memory::{Address, Memory};
pub use nccl::NCCL_CALLS;
pub use source::Source;
