//! What a job trains on, by name and hash: two hosts with other files must not train together, and are told which part differs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_DATA_NAME_BYTES, MAX_DATA_PARTS};

/// The hash of data: blake3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DataHash([u8; 32]);

const CONTEXT: &str = "sardana data v1";

impl DataHash {
    /// Of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Self::hasher();
        hasher.update(bytes);
        Self::finish(&hasher)
    }

    /// With these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Of several hashes with names, in this order.
    #[must_use]
    pub fn of_named<'a>(named: impl IntoIterator<Item = (&'a [u8], Self)>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("sardana named data v1");
        for (name, Self(hash)) in named {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name);
            hasher.update(&hash);
        }
        Self::finish(&hasher)
    }

    /// What such a hash begins with, for bytes that come in pieces.
    #[must_use]
    pub fn hasher() -> blake3::Hasher {
        blake3::Hasher::new_derive_key(CONTEXT)
    }

    /// Of what `hasher` has seen.
    #[must_use]
    pub fn finish(hasher: &blake3::Hasher) -> Self {
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for DataHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for DataHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// One part of data: a file, neighbouring files, or something that is done to samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DataPart {
    /// What people know it by.
    pub name: String,
    /// Of its bytes.
    pub hash: DataHash,
}

/// What makes the samples of a job what they are. Empty where the program does not say; then only their number is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DataFingerprint {
    parts: Vec<DataPart>,
}

/// A fingerprint with more parts, or longer names, than may be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected at most {MAX_DATA_PARTS} parts of data, with names of at most {MAX_DATA_NAME_BYTES} bytes; found {parts}, the longest name of \
     {longest} bytes"
)]
pub struct DataFingerprintError {
    /// How many parts.
    pub parts: usize,
    /// Bytes of the longest name.
    pub longest: usize,
}

impl DataFingerprint {
    /// Of these parts, in this order.
    ///
    /// # Errors
    /// When they are too many, or have names that are too long.
    pub fn new(parts: Vec<DataPart>) -> Result<Self, DataFingerprintError> {
        let fingerprint = Self { parts };
        fingerprint.check()?;
        Ok(fingerprint)
    }

    /// Whether it is one that may be told; one that was told may not be.
    ///
    /// # Errors
    /// When its parts are too many, or have names that are too long.
    pub fn check(&self) -> Result<(), DataFingerprintError> {
        let parts = self.parts.len();
        let longest = self.parts.iter().map(|part| part.name.len()).max().unwrap_or(0);
        if parts <= MAX_DATA_PARTS && longest <= MAX_DATA_NAME_BYTES {
            Ok(())
        } else {
            Err(DataFingerprintError { parts, longest })
        }
    }

    /// The parts.
    #[must_use]
    pub fn parts(&self) -> &[DataPart] {
        &self.parts
    }

    /// The parts, to keep.
    #[must_use]
    pub fn into_parts(self) -> Vec<DataPart> {
        self.parts
    }

    /// One hash over all of it.
    #[must_use]
    pub fn hash(&self) -> DataHash {
        DataHash::of_named(self.parts.iter().map(|part| (part.name.as_bytes(), part.hash)))
    }

    /// The first part in which two differ, as each of them has it.
    #[must_use]
    pub fn difference<'a>(&'a self, other: &'a Self) -> Option<(Option<&'a DataPart>, Option<&'a DataPart>)> {
        let most = self.parts.len().max(other.parts.len());
        let both = (0..most).map(|at| (self.parts.get(at), other.parts.get(at)));
        both.into_iter().find(|(one, other)| one != other)
    }
}
