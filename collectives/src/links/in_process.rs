//! A link within one process: a bounded channel of frames. Obeys the same rules as a QUIC stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::frame::{FrameHeader, HEADER_BYTES};
use super::pool::Pool;
use super::{LinkError, ended};
use crate::limits::QUEUED_CHUNKS;

/// The sending end.
#[derive(Debug)]
pub struct InProcessSender {
    frames: mpsc::Sender<Frame>,
    payloads: Pool,
    finished: Arc<AtomicBool>,
}

/// The receiving end.
#[derive(Debug)]
pub struct InProcessReceiver {
    frames: mpsc::Receiver<Frame>,
    payload: Bytes,
    finished: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Frame {
    header: [u8; HEADER_BYTES],
    payload: Bytes,
}

pub(super) fn pair() -> (InProcessSender, InProcessReceiver) {
    let (sender, receiver) = mpsc::channel(QUEUED_CHUNKS);
    let finished = Arc::new(AtomicBool::new(false));
    let sender = InProcessSender {
        frames: sender,
        payloads: Pool::default(),
        finished: Arc::clone(&finished),
    };
    (
        sender,
        InProcessReceiver {
            frames: receiver,
            payload: Bytes::new(),
            finished,
        },
    )
}

impl InProcessSender {
    pub(super) async fn send(&mut self, header: &FrameHeader, fill: impl FnOnce(&mut [u8])) -> Result<(), LinkError> {
        if self.finished.load(Ordering::Acquire) {
            return Err(LinkError::Closed);
        }
        let frame = Frame {
            header: header.encode(),
            payload: self.payloads.filled(header.payload_bytes as usize, fill),
        };
        self.frames.send(frame).await.map_err(|_| LinkError::Refused)
    }

    /// The end itself is the drop of the sender; this says that it is a good one.
    pub(super) fn finish(&mut self) {
        self.finished.store(true, Ordering::Release);
    }
}

impl InProcessReceiver {
    pub(super) async fn receive(&mut self, expected: &FrameHeader) -> Result<&[u8], LinkError> {
        let Some(Frame { header, payload }) = self.frames.recv().await else {
            let finished = self.finished.load(Ordering::Acquire);
            return Err(if finished { ended(expected) } else { LinkError::Reset });
        };
        expected.check(&header)?;
        self.payload = payload;
        Ok(&self.payload)
    }
}
