//! Mirrors: full copies of checkpoints in object storage, which outlives all hosts.
//!
//! - [`MirrorUrl`]: where a mirror is; [`Mirror`]: what is done with it.
//! - [`Mirror::upload`] and [`Mirror::fetch`]: a checkpoint gets there, and back; [`Mirror::bring_newest`]: back before a job begins.
//! - [`Mirror::list`], [`Mirror::show`], [`Mirror::verify`], [`Mirror::prune`]: as with a directory.
//!
//! ```text
//! URL/v1/manifests/STEP-ID.manifest   a manifest, as stores keep it; put last: only with it the checkpoint is there
//!    /v1/packs/NAME                   pieces, one after the other; NAME is the hash of theirs
//!    /v1/marks/…                      which processes are at work: one that prunes gives way to one that uploads, and the other way round
//! ```
//!
//! Pieces are too small to be an object each, so neighbours are packed: in the manifest's order, up to 16 MiB. Where a pack ends follows
//! from the tensors' sizes alone. So a process with the manifest and the description of the tensors knows the name, the length and the
//! contents of each pack, and needs no index; a pack of which nothing has changed is there already under its name, and an upload that was
//! interrupted goes on by itself. Each piece is compared with its hash when it is read, at either end (CKPT-2).
//!
//! A description's pieces are packs of one each, of which the length is not known before, but bounded.
//!
//! Without the feature `mirror` all of this is there, but for the bucket: none can be opened. Must not know of a job that runs.

mod bring;
#[cfg(feature = "mirror")]
mod bucket;
#[cfg(not(feature = "mirror"))]
#[path = "no_bucket.rs"]
mod bucket;
mod error;
mod fetch;
mod lanes;
mod limits;
mod marks;
mod objects;
mod retain;
mod survey;
mod upload;
mod url;

use std::fmt;

use std::time::SystemTime;

use bucket::Bucket;
use sardana_storage::private::Missing;

pub use bring::Brought;
pub use error::{BringError, FetchError, MirrorError, ObjectError, RetainError, UploadError};
pub use retain::{Expiry, Freed};
pub use upload::{Belief, Pieces, Sent};
pub use url::{MirrorUrl, MirrorUrlError};

/// A mirror. Copies are the same.
#[derive(Debug, Clone)]
pub struct Mirror {
    bucket: Bucket,
    url: String,
    /// By this number its own marks are known.
    id: u64,
    /// How many objects are under way at the same time.
    lanes: usize,
}

/// An object in a list of the bucket's.
#[derive(Debug, Clone)]
struct Listed {
    /// The name without the folder.
    name: String,
    bytes: u64,
    /// As the store's clock says.
    modified: SystemTime,
}

impl Mirror {
    /// The mirror at `url`. A folder must be there; nothing is asked of a network yet. Credentials, and where the store is, come from the
    /// environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`).
    ///
    /// # Errors
    /// See [`MirrorError`].
    pub fn open(url: &MirrorUrl) -> Result<Self, MirrorError> {
        Self::new(Bucket::open(url, Missing::Refuse)?, url)
    }

    /// The same; makes a folder that is not there. A bucket is never made.
    ///
    /// # Errors
    /// See [`MirrorError`].
    pub fn open_or_make(url: &MirrorUrl) -> Result<Self, MirrorError> {
        Self::new(Bucket::open(url, Missing::Create)?, url)
    }

    fn new(bucket: Bucket, url: &MirrorUrl) -> Result<Self, MirrorError> {
        let url = url.to_string();
        match getrandom::u64() {
            Ok(id) => Ok(Self {
                bucket,
                url,
                id,
                lanes: limits::LANES,
            }),
            Err(error) => Err(MirrorError::Unusable {
                url,
                reason: format!("the system gives no random numbers: {error}"),
            }),
        }
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}
