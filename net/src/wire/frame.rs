//! Frames on streams: the header, and reading and writing it with and without an async runtime.

use std::io;

use quinn::{ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, WriteError};
use sardana_protocol::codec::{CodecError, LARGEST_LIMIT, decode, encode_after};
use sardana_protocol::limits::WIRE_VERSION;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::quic::explain;

const HEADER_BYTES: usize = 8;

/// Why a frame could not be written or read. After any of these the stream is out of step: the caller gives up the connection.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer runs another release. Give up until both are the same.
    #[error(
        "the peer speaks wire version {theirs}, expected {ours}; run the same release of sardana in every process of the job"
    )]
    Version {
        /// What this process speaks.
        ours: u16,
        /// What the frame says.
        theirs: u16,
    },
    /// The header is none. Give up: the peer is no sardana process or is broken.
    #[error(
        "expected a frame header with a zero in bytes 2 and 3, found {reserved:#06x}; the stream carries no sardana frames"
    )]
    Header {
        /// What is where the zero should be.
        reserved: u16,
    },
    /// The payload is longer than the two ends agreed on, or no such message. On writing: make the message smaller. On reading: give up.
    #[error(transparent)]
    Payload(#[from] CodecError),
    /// The stream ended inside a frame. The peer died or gave up while it wrote.
    #[error("the stream ended inside a frame: expected {expected} bytes, found {found}")]
    Truncated {
        /// Bytes that should have come.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// The connection is gone. Treat the peer as lost.
    #[error("the connection is lost: {}", explain(.0))]
    Connection(#[source] ConnectionError),
    /// The stream was ended by one side while the connection lives. Treat the peer as lost.
    #[error("the stream is closed: {reason}")]
    Stream {
        /// By which end, and how.
        reason: String,
    },
    /// The pipe failed. Treat the process at its other end as lost.
    #[error("the pipe failed: {0}")]
    Io(#[from] io::Error),
}

/// Writes one frame with `value`, at most `limit` payload bytes.
///
/// Not cancellation-safe: dropped half-way, the stream is out of step and must be reset.
///
/// # Errors
/// When the value is too long, or the stream or connection is gone.
pub async fn write_frame<T: Serialize>(stream: &mut SendStream, value: &T, limit: usize) -> Result<(), FrameError> {
    let frame = framed(value, limit)?;
    Ok(stream.write_all(&frame).await?)
}

/// Reads one frame of at most `limit` payload bytes; none if the peer has finished the stream between two frames.
///
/// Not cancellation-safe: dropped half-way, the stream is out of step and must be stopped.
///
/// # Errors
/// When the frame is of another version, too long, cut off or no `T`, or when the stream or connection is gone.
pub async fn read_frame<T: DeserializeOwned>(stream: &mut RecvStream, limit: usize) -> Result<Option<T>, FrameError> {
    let mut header = [0; HEADER_BYTES];
    match stream.read_exact(&mut header).await {
        Ok(()) => {}
        Err(ReadExactError::FinishedEarly(0)) => return Ok(None),
        Err(error) => return Err(cut_off(error, HEADER_BYTES)),
    }
    let length = payload_bytes(header, limit)?;
    let mut payload = vec![0; length];
    stream
        .read_exact(&mut payload)
        .await
        .map_err(|error| cut_off(error, length))?;
    Ok(Some(decode(&payload, limit)?))
}

/// Like [`write_frame`], into a pipe. Flushes.
///
/// # Errors
/// When the value is too long or the pipe fails.
pub fn write_frame_blocking<T: Serialize>(pipe: &mut impl io::Write, value: &T, limit: usize) -> Result<(), FrameError> {
    pipe.write_all(&framed(value, limit)?)?;
    Ok(pipe.flush()?)
}

/// Like [`read_frame`], from a pipe. Reads not one byte more than the frame.
///
/// # Errors
/// When the frame is of another version, too long, cut off or no `T`, or when the pipe fails.
pub fn read_frame_blocking<T: DeserializeOwned>(pipe: &mut impl io::Read, limit: usize) -> Result<Option<T>, FrameError> {
    let mut header = [0; HEADER_BYTES];
    match fill(pipe, &mut header)? {
        0 => return Ok(None),
        HEADER_BYTES => {}
        found => {
            return Err(FrameError::Truncated {
                expected: HEADER_BYTES,
                found,
            });
        }
    }
    let length = payload_bytes(header, limit)?;
    let mut payload = vec![0; length];
    let found = fill(pipe, &mut payload)?;
    if found < length {
        return Err(FrameError::Truncated { expected: length, found });
    }
    Ok(Some(decode(&payload, limit)?))
}

/// Header and payload as one buffer, so that they leave in one write.
///
/// # Errors
/// When the value is too long.
///
/// # Panics
/// Never: the codec's own limit fits the header.
pub fn framed<T: Serialize>(value: &T, limit: usize) -> Result<Vec<u8>, FrameError> {
    let mut frame = encode_after(vec![0; HEADER_BYTES], value, limit)?;
    let length = u32::try_from(frame.len() - HEADER_BYTES).expect("LARGEST_LIMIT fits a u32");
    frame[0..2].copy_from_slice(&WIRE_VERSION.to_le_bytes());
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// The payload's length that a header announces, if it may be believed.
fn payload_bytes(header: [u8; HEADER_BYTES], limit: usize) -> Result<usize, FrameError> {
    let [version_low, version_high, reserved_low, reserved_high, length @ ..] = header;
    let theirs = u16::from_le_bytes([version_low, version_high]);
    let reserved = u16::from_le_bytes([reserved_low, reserved_high]);
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    let limit = limit.min(LARGEST_LIMIT);
    if theirs != WIRE_VERSION {
        Err(FrameError::Version {
            ours: WIRE_VERSION,
            theirs,
        })
    } else if reserved != 0 {
        Err(FrameError::Header { reserved })
    } else if length > limit {
        Err(CodecError::TooLong { length, limit }.into())
    } else {
        Ok(length)
    }
}

/// Reads until `bytes` are full or the pipe ends; says how many came.
fn fill(pipe: &mut impl io::Read, bytes: &mut [u8]) -> Result<usize, io::Error> {
    let mut found = 0;
    while found < bytes.len() {
        match pipe.read(&mut bytes[found..]) {
            Ok(0) => break,
            Ok(more) => found += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn cut_off(error: ReadExactError, expected: usize) -> FrameError {
    match error {
        ReadExactError::FinishedEarly(found) => FrameError::Truncated { expected, found },
        ReadExactError::ReadError(ReadError::ConnectionLost(error)) => FrameError::Connection(error),
        ReadExactError::ReadError(error) => FrameError::Stream {
            reason: error.to_string(),
        },
    }
}

impl From<WriteError> for FrameError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConnectionLost(error) => Self::Connection(error),
            WriteError::Stopped(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected => Self::Stream {
                reason: error.to_string(),
            },
        }
    }
}
