//! A link within one process: a bounded channel of frames. Obeys the same rules as a QUIC stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::frame::{FrameHeader, HEADER_BYTES, HeaderField};
use super::{LinkError, ended};
use crate::limits::QUEUED_CHUNKS;

/// The sending end.
#[derive(Debug)]
pub struct InProcessSender {
    frames: mpsc::Sender<(Bytes, Bytes)>,
    finished: Arc<AtomicBool>,
}

/// The receiving end.
#[derive(Debug)]
pub struct InProcessReceiver {
    frames: mpsc::Receiver<(Bytes, Bytes)>,
    finished: Arc<AtomicBool>,
}

pub(super) fn pair() -> (InProcessSender, InProcessReceiver) {
    let (sender, receiver) = mpsc::channel(QUEUED_CHUNKS);
    let finished = Arc::new(AtomicBool::new(false));
    let sender = InProcessSender {
        frames: sender,
        finished: Arc::clone(&finished),
    };
    (
        sender,
        InProcessReceiver {
            frames: receiver,
            finished,
        },
    )
}

impl InProcessSender {
    pub(super) async fn send(&mut self, header: Bytes, payload: Bytes) -> Result<(), LinkError> {
        if self.finished.load(Ordering::Acquire) {
            return Err(LinkError::Closed);
        }
        self.frames.send((header, payload)).await.map_err(|_| LinkError::Refused)
    }

    /// The end itself is the drop of the sender; this says that it is a good one.
    pub(super) fn finish(&mut self) {
        self.finished.store(true, Ordering::Release);
    }
}

impl InProcessReceiver {
    pub(super) async fn receive(&mut self, expected: &FrameHeader) -> Result<BytesMut, LinkError> {
        let Some((header, payload)) = self.frames.recv().await else {
            let finished = self.finished.load(Ordering::Acquire);
            return Err(if finished { ended(expected) } else { LinkError::Reset });
        };
        let header: &[u8; HEADER_BYTES] = header[..].try_into().expect("a header is sent as it was encoded");
        expected.check(header)?;
        if payload.len() != expected.payload_bytes as usize {
            return Err(LinkError::Unexpected {
                field: HeaderField::PayloadBytes,
                expected: u64::from(expected.payload_bytes),
                found: payload.len() as u64,
            });
        }
        // Usually nothing else holds the payload, and it is taken over without a copy.
        Ok(payload.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..])))
    }
}
