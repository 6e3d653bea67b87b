//! Data sets in the formats that people have. Each is a feature of this crate by its own name, so that a program builds what it reads.
//!
//! All of them read by number, believe no length before it is bounded, and say of a damaged file which it is, where, and what was
//! expected there.

#[cfg(feature = "cifar10")]
pub mod cifar10;
#[cfg(feature = "csv")]
pub mod csv;
#[cfg(any(feature = "npy", feature = "safetensors"))]
mod element;
#[cfg(any(feature = "csv", feature = "npy", feature = "safetensors"))]
mod excerpt;
#[cfg(feature = "image-folder")]
pub mod image_folder;
#[cfg(feature = "mnist")]
pub mod mnist;
#[cfg(feature = "npy")]
pub mod npy;
#[cfg(any(feature = "cifar10", feature = "npy", feature = "safetensors"))]
mod positioned;
#[cfg(any(feature = "npy", feature = "safetensors"))]
mod rows;
#[cfg(feature = "safetensors")]
pub mod safetensors;
#[cfg(feature = "tfrecords")]
pub mod tfrecords;
#[cfg(test)]
#[cfg(all(feature = "image-folder", feature = "mnist"))]
mod torchvision_tests;

#[cfg(any(feature = "npy", feature = "safetensors"))]
pub use element::Element;

/// Which part of a data set that is published in two: what to train on, or what to test on.
#[cfg(any(feature = "cifar10", feature = "mnist"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// What to train on.
    Train,
    /// What is held out, to test on.
    Test,
}
