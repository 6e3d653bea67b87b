//! Checkpoints: what they consist of, what it is called, which depots keep it, when one is due and how long it is kept.

mod manifest;
mod names;
pub mod placement;
mod policy;

pub use manifest::{Condition, Description, Head, Manifest, Part, Placing};
pub use names::{DepotAddress, DepotId, ManifestKey};

pub use crate::hash::{ManifestId, PieceHash};
pub use policy::{Every, Keep, PolicyError};
