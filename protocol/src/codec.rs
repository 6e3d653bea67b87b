//! Values as bincode bytes, bounded in both directions.
//!
//! Types that are decoded must not be recursive and must hold no lists of zero-sized elements: a few bytes of either can cost
//! a stack or minutes. A length inside a value reserves at most what bincode's limit allows for a text, and at most 1 MiB (serde's
//! own bound) for a list.

use bincode::config::standard;
use bincode::enc::write::Writer;
use bincode::error::{DecodeError, EncodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No caller sets a higher limit than this: bulk data travels in links, not in messages. Holds the longest description of a state's
/// tensors, which a file or a depot gives.
pub const LARGEST_LIMIT: usize = 8 << 20;

/// Up to here a value is small: what a stranger says. What so few bytes may claim of memory is bounded more tightly.
pub const SMALL_BYTES: usize = 56 << 10;

/// Up to here a value is of medium length: what a greeted peer says.
pub const MEDIUM_BYTES: usize = 256 << 10;

/// A number of one byte on the wire counts up to 16 bytes against bincode's limit, which is on what the numbers fill in memory.
const CLAIMED_PER_BYTE: usize = 16;

/// Why a value could not be put into bytes, or bytes are no such value. The caller gives up what they came from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Longer than it may be. On writing: make the value smaller. On reading: give up.
    #[error("a message of {length} bytes, expected at most {limit}; refused")]
    TooLong {
        /// The value's length.
        length: usize,
        /// The most it may be.
        limit: usize,
    },
    /// The bytes are no such value. Give up: what wrote them is broken, or they are damaged.
    #[error("the bytes are not the message expected here: {reason}")]
    Malformed {
        /// What the decoder said.
        reason: String,
    },
    /// The bytes go on after the value. Give up: what wrote them is broken.
    #[error("{extra} bytes follow the message; expected none")]
    Trailing {
        /// How many.
        extra: usize,
    },
    /// The value cannot be put into bytes: a mistake in this program.
    #[error("a message cannot be encoded: {reason}")]
    Unencodable {
        /// What the encoder said.
        reason: String,
    },
}

/// The bytes of `value`.
///
/// # Errors
/// [`CodecError::TooLong`] when they are more than `limit`, [`CodecError::Unencodable`] when the type cannot be encoded.
pub fn encode<T: Serialize + ?Sized>(value: &T, limit: usize) -> Result<Vec<u8>, CodecError> {
    encode_after(Vec::new(), value, limit)
}

/// `head`, followed by the bytes of `value`; `limit` is on the value's bytes.
///
/// # Errors
/// As [`encode`].
pub fn encode_after<T: Serialize + ?Sized>(head: Vec<u8>, value: &T, limit: usize) -> Result<Vec<u8>, CodecError> {
    let mut writer = Bounded {
        room: limit.min(LARGEST_LIMIT),
        length: 0,
        bytes: head,
    };
    let limit = writer.room;
    bincode::serde::encode_into_writer(value, &mut writer, standard()).map_err(|error| CodecError::Unencodable {
        reason: error.to_string(),
    })?;
    if writer.length > limit {
        return Err(CodecError::TooLong {
            length: writer.length,
            limit,
        });
    }
    Ok(writer.bytes)
}

/// The value whose bytes are exactly `bytes`.
///
/// # Errors
/// [`CodecError::TooLong`] when they are more than `limit`, [`CodecError::Malformed`] when they are no such value,
/// [`CodecError::Trailing`] when they are more than it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, CodecError> {
    let limit = limit.min(LARGEST_LIMIT);
    if bytes.len() > limit {
        return Err(CodecError::TooLong {
            length: bytes.len(),
            limit,
        });
    }
    // bincode's limit is part of a type, so there are three; the smallest that these bytes can need is taken.
    let decoded = if bytes.len() <= SMALL_BYTES {
        decode_within::<T, { CLAIMED_PER_BYTE * SMALL_BYTES }>(bytes)
    } else if bytes.len() <= MEDIUM_BYTES {
        decode_within::<T, { CLAIMED_PER_BYTE * MEDIUM_BYTES }>(bytes)
    } else {
        decode_within::<T, { CLAIMED_PER_BYTE * LARGEST_LIMIT }>(bytes)
    };
    let (value, used) = decoded.map_err(|error| CodecError::Malformed {
        reason: error.to_string(),
    })?;
    match bytes.len() - used {
        0 => Ok(value),
        extra => Err(CodecError::Trailing { extra }),
    }
}

fn decode_within<T: DeserializeOwned, const CLAIM: usize>(bytes: &[u8]) -> Result<(T, usize), DecodeError> {
    bincode::serde::decode_from_slice(bytes, standard().with_limit::<CLAIM>())
}

/// Stores up to `room` bytes and only counts the rest, so that a value too long costs no memory and its length is known.
struct Bounded {
    room: usize,
    length: usize,
    bytes: Vec<u8>,
}

impl Writer for Bounded {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.length = self.length.saturating_add(bytes.len());
        if self.length <= self.room {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }
}
