//! Everything that one checkpoint says of itself.

use std::time::SystemTime;

use sardana_protocol::checkpoint::{Manifest, ManifestKey};
use sardana_protocol::state::{StateHash, TensorSpec};

use super::directory::{Checkpoints, UnreadManifest};
use super::layout::LayoutError;
use super::list::Completeness;

/// Everything that a checkpoint says of itself.
#[derive(Debug, Clone)]
pub struct Details {
    /// The step and the id of the checkpoint.
    pub key: ManifestKey,
    /// When its manifest was written.
    pub committed: Option<SystemTime>,
    /// What its manifest says.
    pub manifest: Manifest,
    /// Its tensors in the state's order, and the hash of its state; or why they are not known.
    pub state: Result<(Vec<TensorSpec>, StateHash), LayoutError>,
    /// Whether it is whole, as far as can be told without reading it.
    pub completeness: Completeness,
}

impl Checkpoints {
    /// Everything that a checkpoint says of itself.
    ///
    /// # Errors
    /// When its manifest cannot be read.
    pub fn show(&self, key: ManifestKey) -> Result<Details, UnreadManifest> {
        let manifest = self.main().manifest(key)?;
        let state = self.layout(&manifest).map(|layout| {
            let hash = layout.state_hash(&manifest);
            (layout.tensors.into_iter().map(|tensor| tensor.spec).collect(), hash)
        });
        let entry = self.list().entries.into_iter().find(|entry| entry.key == key);
        let (committed, completeness) = match entry {
            Some(entry) => (entry.committed, entry.completeness),
            // It was there a moment ago.
            None => (None, Completeness::Harmed("it was deleted meanwhile".to_owned())),
        };
        Ok(Details {
            key,
            committed,
            manifest,
            state,
            completeness,
        })
    }
}
