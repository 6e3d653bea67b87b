//! A link over one QUIC stream in one direction. Knows nothing of connections but that they can be lost.

use std::mem::take;

use bytes::Bytes;
use quinn::{ReadError, RecvStream, SendStream, VarInt, WriteError};

use super::backlog::Backlog;
use super::frame::{FrameHeader, HEADER_BYTES};
use super::pool::Pool;
use super::{LinkError, ended};
use crate::limits::RUNS_AT_ONCE;
use crate::pages::InPlace;

/// The code of a stream that was given up.
const ABORTED: VarInt = VarInt::from_u32(1);

/// The sending end.
#[derive(Debug)]
pub struct QuicSender {
    stream: SendStream,
    frames: Pool,
    /// Headers of frames whose payloads lie elsewhere.
    headers: Pool,
    finished: bool,
}

/// The receiving end. Dropped, it tells the peer to stop.
#[derive(Debug)]
pub struct QuicReceiver {
    stream: RecvStream,
    came: Box<[Bytes; RUNS_AT_ONCE]>,
    backlog: Backlog,
}

impl QuicSender {
    pub(super) fn new(stream: SendStream) -> Self {
        Self {
            stream,
            frames: Pool::default(),
            headers: Pool::default(),
            finished: false,
        }
    }

    pub(super) async fn send(&mut self, header: &FrameHeader, fill: impl FnOnce(&mut [u8])) -> Result<(), LinkError> {
        let frame = self.frame(header, fill);
        self.write(&mut [frame]).await
    }

    pub(super) async fn send_in_halves(
        &mut self,
        header: &FrameHeader,
        fill: impl FnOnce(&mut [u8]),
        halfway: impl FnOnce(),
    ) -> Result<(), LinkError> {
        let mut frame = self.frame(header, fill);
        let second = frame.split_off(HEADER_BYTES + header.payload_bytes as usize / 2);
        self.write(&mut [frame]).await?;
        halfway();
        self.write(&mut [second]).await
    }

    /// Sends a frame whose payload is these bytes, from where they lie if that is in pages: these are held until the peer has acknowledged them. Whether they are.
    pub(super) async fn send_in_place(
        &mut self,
        header: &FrameHeader,
        payload: InPlace<'_>,
        halfway: Option<impl FnOnce()>,
    ) -> Result<bool, LinkError> {
        let copy = |out: &mut [u8]| out.copy_from_slice(payload.bytes());
        match (payload.held(), halfway) {
            (None, None) => self.send(header, copy).await?,
            (None, Some(halfway)) => self.send_in_halves(header, copy, halfway).await?,
            (Some(held), None) => {
                let head = self.header(header);
                self.write(&mut [head, held]).await?;
                return Ok(true);
            }
            (Some(mut second), Some(halfway)) => {
                let first = second.split_to(second.len() / 2);
                let head = self.header(header);
                self.write(&mut [head, first]).await?;
                halfway();
                self.write(&mut [second]).await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Header and payload in one memory: so no header has any of its own.
    fn frame(&mut self, header: &FrameHeader, fill: impl FnOnce(&mut [u8])) -> Bytes {
        self.frames.filled(HEADER_BYTES + header.payload_bytes as usize, |frame| {
            let (head, payload) = frame.split_at_mut(HEADER_BYTES);
            head.copy_from_slice(&header.encode());
            fill(payload);
        })
    }

    fn header(&mut self, header: &FrameHeader) -> Bytes {
        self.headers
            .filled(HEADER_BYTES, |bytes| bytes.copy_from_slice(&header.encode()))
    }

    async fn write(&mut self, parts: &mut [Bytes]) -> Result<(), LinkError> {
        self.stream.write_all_chunks(parts).await.map_err(|error| match error {
            WriteError::Stopped(_) => LinkError::Refused,
            WriteError::ConnectionLost(source) => LinkError::Lost(source),
            WriteError::ClosedStream | WriteError::ZeroRttRejected => LinkError::Closed,
        })
    }

    pub(super) fn finish(&mut self) {
        // It fails only for a stream that is finished, reset or stopped, where there is nothing to say any more.
        self.finished = self.stream.finish().is_ok() || self.finished;
        // Nothing is written there any more.
        self.frames = Pool::default();
        self.headers = Pool::default();
    }

    pub(super) async fn delivered(&mut self) {
        // However it ends, there is nothing more to wait for. Of a connection that is lost nothing is ever acknowledged: what is held for it is let go of.
        if self.stream.stopped().await.is_err() {
            let _ = self.stream.reset(ABORTED);
        }
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
    pub(super) fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            came: Box::default(),
            backlog: Backlog::default(),
        }
    }

    pub(super) fn refuse(mut self) {
        // The stream may have ended already, which is as good.
        let _ = self.stream.stop(ABORTED);
    }

    /// A frame is taken from the connection as it came, with no more of the next one than lies in the same packet. Nothing of its payload is
    /// looked at before its header is the expected one.
    pub(super) async fn receive(&mut self, expected: &FrameHeader) -> Result<&mut Backlog, LinkError> {
        let payload = expected.payload_bytes as usize;
        self.backlog.end_frame();
        while !self.backlog.has(HEADER_BYTES) {
            self.take_in(expected, HEADER_BYTES + payload).await?;
        }
        expected.check(&self.backlog.header())?;
        while !self.backlog.has(payload) {
            self.take_in(expected, payload).await?;
        }
        self.backlog.begin(payload);
        Ok(&mut self.backlog)
    }

    /// Takes in what has come, or else what comes next, of the next `bytes` bytes.
    async fn take_in(&mut self, expected: &FrameHeader, bytes: usize) -> Result<(), LinkError> {
        let runs = self.backlog.runs_until(bytes).clamp(1, RUNS_AT_ONCE);
        let came = self.stream.read_chunks(&mut self.came[..runs]).await.map_err(broken)?;
        let came = came.ok_or_else(|| ended(expected))?;
        self.came[..came].iter_mut().for_each(|run| self.backlog.push(take(run)));
        Ok(())
    }
}

fn broken(error: ReadError) -> LinkError {
    match error {
        ReadError::Reset(_) => LinkError::Reset,
        ReadError::ConnectionLost(source) => LinkError::Lost(source),
        ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => LinkError::Closed,
    }
}
