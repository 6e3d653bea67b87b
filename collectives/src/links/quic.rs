//! A link over one QUIC stream in one direction. Knows nothing of connections but that they can be lost.

use bytes::Bytes;
use quinn::{ReadError, ReadExactError, RecvStream, SendStream, VarInt, WriteError};

use super::frame::{FrameHeader, HEADER_BYTES};
use super::pool::Pool;
use super::{LinkError, ended};

/// The code of a stream that was given up.
const ABORTED: VarInt = VarInt::from_u32(1);

/// The sending end.
#[derive(Debug)]
pub struct QuicSender {
    stream: SendStream,
    frames: Pool,
    finished: bool,
}

/// The receiving end. Dropped, it tells the peer to stop.
#[derive(Debug)]
pub struct QuicReceiver {
    stream: RecvStream,
    payload: Vec<u8>,
}

impl QuicSender {
    pub(super) fn new(stream: SendStream) -> Self {
        Self {
            stream,
            frames: Pool::default(),
            finished: false,
        }
    }

    pub(super) async fn send(&mut self, header: &FrameHeader, fill: impl FnOnce(&mut [u8])) -> Result<(), LinkError> {
        let frame = self.frame(header, fill);
        self.write(frame).await
    }

    pub(super) async fn send_in_halves(
        &mut self,
        header: &FrameHeader,
        fill: impl FnOnce(&mut [u8]),
        halfway: impl FnOnce(),
    ) -> Result<(), LinkError> {
        let mut frame = self.frame(header, fill);
        let second = frame.split_off(HEADER_BYTES + header.payload_bytes as usize / 2);
        self.write(frame).await?;
        halfway();
        self.write(second).await
    }

    /// Header and payload in one memory: so no header has any of its own.
    fn frame(&mut self, header: &FrameHeader, fill: impl FnOnce(&mut [u8])) -> Bytes {
        self.frames.filled(HEADER_BYTES + header.payload_bytes as usize, |frame| {
            let (head, payload) = frame.split_at_mut(HEADER_BYTES);
            head.copy_from_slice(&header.encode());
            fill(payload);
        })
    }

    async fn write(&mut self, part: Bytes) -> Result<(), LinkError> {
        self.stream.write_chunk(part).await.map_err(|error| match error {
            WriteError::Stopped(_) => LinkError::Refused,
            WriteError::ConnectionLost(source) => LinkError::Lost(source),
            WriteError::ClosedStream | WriteError::ZeroRttRejected => LinkError::Closed,
        })
    }

    pub(super) fn finish(&mut self) {
        // It fails only for a stream that is finished, reset or stopped, where there is nothing to say any more.
        self.finished = self.stream.finish().is_ok() || self.finished;
    }

    pub(super) async fn delivered(&mut self) {
        // However it ends, there is nothing more to wait for.
        let _ = self.stream.stopped().await;
    }
}

impl Drop for QuicSender {
    /// quinn would end the stream as if all were well.
    fn drop(&mut self) {
        if !self.finished {
            // It fails only for a stream that is closed already.
            let _ = self.stream.reset(ABORTED);
        }
    }
}

impl QuicReceiver {
    pub(super) const fn new(stream: RecvStream) -> Self {
        let payload = Vec::new();
        Self { stream, payload }
    }

    pub(super) fn refuse(mut self) {
        // The stream may have ended already, which is as good.
        let _ = self.stream.stop(ABORTED);
    }

    pub(super) async fn receive(&mut self, expected: &FrameHeader) -> Result<&[u8], LinkError> {
        let broke = |error| broken(error, expected);
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).await.map_err(broke)?;
        expected.check(&header)?;
        self.payload.resize(expected.payload_bytes as usize, 0);
        self.stream.read_exact(&mut self.payload).await.map_err(broke)?;
        Ok(&self.payload)
    }
}

fn broken(error: ReadExactError, expected: &FrameHeader) -> LinkError {
    match error {
        ReadExactError::FinishedEarly(_) => ended(expected),
        ReadExactError::ReadError(ReadError::Reset(_)) => LinkError::Reset,
        ReadExactError::ReadError(ReadError::ConnectionLost(source)) => LinkError::Lost(source),
        ReadExactError::ReadError(ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected) => {
            LinkError::Closed
        }
    }
}
