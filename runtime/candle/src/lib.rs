//! Networks of candle, as they are, that Sardana trains.
//!
//! - [`Builder`]: names a network's tensors and makes their first values, from the job's seed and their names;
//! - [`build`], [`Net`]: a network with its loss, which [`sardana::fit::Fit`] trains; [`loss`]; [`Stack`]: samples as tensors;
//! - [`layers`]: layers for those of candle that are wrong, cannot be seeded, or would let the membership reach the arithmetic;
//! - [`Pass`]: what layers share with their network while it computes.
//!
//! # On a GPU
//!
//! With the feature `cuda` [`build_on`] takes a GPU, and the network's tensors lie in its memory: gradients are added and applied where they lie, by Sardana's kernels
//! on the stream that candle computes on, and values come to the host when they are shown. **It has been built and linked with CUDA 13.0's nvcc and libraries, and
//! has not been run on a GPU yet.** Its tests pass on a twin of one, on which candle's kernels are compiled for the host and cuBLAS is a twin's as well: `.ci/candle`.
//!
//! Building it needs a toolkit of CUDA 13.0 or later and a C++ compiler: nvcc in `PATH`, and the toolkit in `/usr/local/cuda` or where `CUDA_HOME` says, of which the
//! runtime, cuBLAS, cuRAND and NVRTC are linked, and the driver's library or the toolkit's stub of it. `CUDA_COMPUTE_CAP` says for which GPUs candle's kernels are
//! compiled; without it that is the one that `nvidia-smi` finds. 80 is for those of compute capability 8.0 and all later ones; from 90 on candle's build takes the number
//! for that GPU alone, as 90 for Hopper's. A driver reads kernels of an nvcc that is not newer than the driver's own CUDA. [`build_on`] says what does not fit.
//!
//! The program does not start, and its loader says why, where one of these is missing: the driver's `libcuda.so.1`, `libcudart.so.13`, `libcublas.so.13` with
//! `libcublasLt.so.13`, and `libcurand.so.10`; so where there is no GPU, not even on processors: that is for a program without the feature.
//!
//! In fast order, with the feature `nccl`, gradients can be summed over GPUs where they lie: [`Net::summed_where_they_lie`]. What samples take of the GPU's memory on their way
//! through a network is not known unless [`Net::sample_memory`] says it.
//!
//! The layers here are loops of their own on processors; on a GPU they compute the same by operations of candle, slower than kernels of their own would. No bits are
//! those of processors, so all workers of a job in exact order compute on GPUs of one kind: with the same model, driver, cuBLAS, version of candle, and kernels of candle,
//! which depend on the nvcc that the program was built with. A worker tells them (`Network::device`); one whose first update has other bits is refused.
//!
//! One GPU gives the same bits again, as candle 0.11's source says. Its sums, and the gradients of `gather`, `index_select`, `embedding` and convolutions, are added in
//! a fixed order, without atomics. It has one cuBLAS handle on one stream, which multiplies f32 in f32: TF32 is switched off when the network is built
//! (GPUs older than Ampere may multiply f32 in shorter types all the same). Not so:
//! - `Tensor::rand`, `randn`, and candle's own dropout draw from a generator of the process, here as on processors: take [`Dropout`] and [`Pass::random`];
//! - candle's feature `cudnn` chooses the algorithms of convolutions anew: leave it off;
//! - candle's functions for layers of mixtures of experts, and all that is quantised, add by atomics or are not trained;
//! - a device of one's own beside [`Builder::device`], such as `Device::new_cuda`, has another stream, and nothing says what goes first: a gradient from there is refused;
//! - `candle_core::cuda_backend::set_gemm_reduced_precision_f32(true)` after the network is built gives TF32, to all workers of a program alike.
//!
//! A class that the scores do not have, or an index beyond a table, is an error on processors; on a GPU it ends all that the process computes there.

mod builder;
#[cfg(feature = "cuda")]
mod candles_kernels;
#[cfg(test)]
mod checked;
mod initial;
pub mod layers;
pub mod loss;
mod net;
#[cfg(feature = "cuda")]
mod on_gpu;
mod on_host;
mod part;
pub mod pass;
mod place;
mod stack;

pub use builder::{Builder, Running};
pub use layers::{AvgPool2d, BatchNorm2d, Conv2d, Dropout, GroupNorm, LayerNorm, Linear, MaxPool2d};
pub use loss::{CrossEntropy, Loss, SquaredError};
pub use net::{Net, build, build_on};
pub use pass::{Pass, Statistic};
pub use stack::Stack;
