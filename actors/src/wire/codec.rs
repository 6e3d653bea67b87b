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

use super::frame::FrameError;
use super::limits::{CONTROL_FRAME_BYTES, HELLO_FRAME_BYTES, LARGEST_LIMIT};

/// A number of one byte on the wire counts up to 16 bytes against bincode's limit, which is on what the numbers fill in memory.
const CLAIMED_PER_BYTE: usize = 16;

/// The bytes of `value`, without a frame's header.
///
/// # Errors
/// [`FrameError::TooLong`] when they are more than `limit`, [`FrameError::Unencodable`] when the type cannot be encoded.
pub fn encode<T: Serialize + ?Sized>(value: &T, limit: usize) -> Result<Vec<u8>, FrameError> {
    encode_after(Vec::new(), value, limit)
}

/// Puts the bytes of `value` after `head`; `limit` is on the value's bytes.
pub(super) fn encode_after<T: Serialize + ?Sized>(head: Vec<u8>, value: &T, limit: usize) -> Result<Vec<u8>, FrameError> {
    let mut writer = Bounded {
        room: limit.min(LARGEST_LIMIT),
        length: 0,
        bytes: head,
    };
    let limit = writer.room;
    bincode::serde::encode_into_writer(value, &mut writer, standard()).map_err(|error| FrameError::Unencodable {
        reason: error.to_string(),
    })?;
    if writer.length > limit {
        return Err(FrameError::TooLong {
            length: writer.length,
            limit,
        });
    }
    Ok(writer.bytes)
}

/// The value whose bytes are exactly `bytes`.
///
/// # Errors
/// [`FrameError::TooLong`] when they are more than `limit`, [`FrameError::Malformed`] when they are no such value,
/// [`FrameError::Trailing`] when they are more than it.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], limit: usize) -> Result<T, FrameError> {
    let limit = limit.min(LARGEST_LIMIT);
    if bytes.len() > limit {
        return Err(FrameError::TooLong {
            length: bytes.len(),
            limit,
        });
    }
    // bincode's limit is part of a type, so there are three; the smallest that these bytes can need is taken.
    let decoded = if bytes.len() <= HELLO_FRAME_BYTES {
        decode_within::<T, { CLAIMED_PER_BYTE * HELLO_FRAME_BYTES }>(bytes)
    } else if bytes.len() <= CONTROL_FRAME_BYTES {
        decode_within::<T, { CLAIMED_PER_BYTE * CONTROL_FRAME_BYTES }>(bytes)
    } else {
        decode_within::<T, { CLAIMED_PER_BYTE * LARGEST_LIMIT }>(bytes)
    };
    let (value, used) = decoded.map_err(|error| FrameError::Malformed {
        reason: error.to_string(),
    })?;
    match bytes.len() - used {
        0 => Ok(value),
        extra => Err(FrameError::Trailing { extra }),
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
