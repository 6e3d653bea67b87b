//! What manifests and the places that keep pieces are called.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::hash::ManifestId;
use crate::words::Step;

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

/// A depot: a checkpoint actor and its store. The id is the store's own and stays the same for as long as the store does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DepotId(u64);

impl DepotId {
    /// The depot with this number, which its store drew at random when it was made.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for DepotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{:016x}", self.0)
    }
}

impl fmt::Debug for DepotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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
