//! A link over one QUIC stream in one direction. Knows nothing of connections but that they can be lost.

use bytes::{Bytes, BytesMut};
use quinn::{ReadError, ReadExactError, RecvStream, SendStream, VarInt, WriteError};

use super::frame::{FrameHeader, HEADER_BYTES};
use super::{LinkError, ended};

/// The code of a stream that was given up.
const ABORTED: VarInt = VarInt::from_u32(1);

/// The sending end.
#[derive(Debug)]
pub struct QuicSender {
    stream: SendStream,
    finished: bool,
}

/// The receiving end. Dropped, it tells the peer to stop.
#[derive(Debug)]
pub struct QuicReceiver {
    stream: RecvStream,
}

impl QuicSender {
    pub(super) const fn new(stream: SendStream) -> Self {
        Self { stream, finished: false }
    }

    pub(super) async fn write(&mut self, parts: &mut [Bytes]) -> Result<(), LinkError> {
        self.stream.write_all_chunks(parts).await.map_err(|error| match error {
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
        Self { stream }
    }

    pub(super) async fn receive(&mut self, expected: &FrameHeader) -> Result<BytesMut, LinkError> {
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header, expected).await?;
        expected.check(&header)?;
        let mut payload = BytesMut::zeroed(expected.payload_bytes as usize);
        self.read(&mut payload, expected).await?;
        Ok(payload)
    }

    async fn read(&mut self, bytes: &mut [u8], expected: &FrameHeader) -> Result<(), LinkError> {
        self.stream.read_exact(bytes).await.map_err(|error| match error {
            ReadExactError::FinishedEarly(_) => ended(expected),
            ReadExactError::ReadError(ReadError::Reset(_)) => LinkError::Reset,
            ReadExactError::ReadError(ReadError::ConnectionLost(source)) => LinkError::Lost(source),
            ReadExactError::ReadError(
                ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected,
            ) => LinkError::Closed,
        })
    }
}
