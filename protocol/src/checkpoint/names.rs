//! What manifests and the places that keep pieces are called.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::hash::ManifestId;
use crate::words::{Step, id};

/// A manifest's place among the others: by step, then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ManifestKey {
    /// The state's step.
    pub step: Step,
    /// Its id.
    pub id: ManifestId,
}

impl fmt::Display for ManifestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.id, self.step)
    }
}

id!(
    /// A depot: a checkpoint actor and its store. The id is the store's own, drawn at random when the store was made, and stays the same for
    /// as long as the store does.
    DepotId, "d"
);

/// A depot and where it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepotAddress {
    /// The checkpoint actor.
    pub depot: DepotId,
    /// The id in the certificate that it has at present.
    pub certified: u64,
    /// Its address.
    pub address: SocketAddr,
}
