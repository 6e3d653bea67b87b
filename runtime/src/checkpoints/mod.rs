//! Directories of checkpoints while no job has them open: what is in them, whether it is whole, and how it gets elsewhere.
//!
//! The program's `sardana checkpoints` is a thin shell over this. All calls block for as long as the disks take; nothing here but
//! [`mirror`] knows of a network, and nothing of what a person sees.
//!
//! - [`Checkpoints::open`] a directory, and others that may hold what is missing there (a job spreads pieces over its hosts);
//! - [`Checkpoints::list`], [`Checkpoints::find`], [`Checkpoints::show`]: what is there;
//! - [`Checkpoints::verify`] reads every byte (CKPT-2);
//! - [`Checkpoints::export`] and [`Checkpoints::import`]: safetensors files, for other programs;
//! - [`Checkpoints::copy`] to another directory, [`Checkpoints::prune`] what is old;
//! - [`mirror`]: the same in object storage.

#[cfg(any(test, feature = "fuzzing"))]
mod bare;
mod copy;
mod directory;
mod export;
mod find;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod import;
mod layout;
mod list;
pub mod mirror;
mod prune;
mod safetensors;
mod show;
mod verify;

pub use copy::{Copied, CopyError};
pub use directory::{Checkpoints, Directory, OpenError, UnreadManifest, differ};
pub use export::{ExportError, Exported};
pub use find::{FindError, Wanted, Which, short, short_id};
#[cfg(feature = "fuzzing")]
pub use fuzz::{description, tensors};
pub use import::{ImportError, Imported, Like};
pub use layout::{LayoutError, PieceError};
pub use list::{Completeness, Entry, Listing};
pub use prune::{PruneError, Pruned, Pruning};
pub use safetensors::FileError;
pub use show::Details;
pub use verify::{Checked, Healed, Verification};

pub use sardana_protocol::checkpoint::{DepotId, Every, Keep, Manifest, ManifestId, ManifestKey, PieceHash, PolicyError};
pub use sardana_protocol::state::{Dtype, StateHash, TensorSpec};
pub use sardana_storage::store::{Collected, Finding, Progress, Usage};
