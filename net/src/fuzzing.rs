//! Lends the decoders of this crate to a fuzzer: bytes in, and a panic where something is wrong. Each part has its own beside what it decodes.

use std::fmt::Debug;

use sardana_protocol::codec::{decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value in these bytes, if there is one, is the same when it is written and read again.
///
/// # Panics
/// When it is not.
pub fn message<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8], limit: usize) -> Option<T> {
    let value = decode::<T>(bytes, limit).ok()?;
    let written = encode(&value, limit).expect("what was read can be written, and is no longer than it was");
    let again = decode::<T>(&written, limit).expect("what was written can be read");
    // Not the values: a number that is none is not equal to itself.
    assert_eq!(written, encode(&again, limit).expect("it can be written"), "{value:?}");
    Some(value)
}

pub use crate::enrol::{fuzz as uses, key_files, keyring};
pub use crate::trust::fuzz as certificates;
