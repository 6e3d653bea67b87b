//! A link between two processes of one host: frames in memory that both have mapped, and a socket to wake each other by. The receiver adds
//! straight from the memory that the sender has written. Obeys the same rules as a QUIC stream.
//!
//! An end that has to wait looks again for a moment, since the other is often about to be ready, and then sleeps: on a host with few
//! cores the other end may need this one's.

mod bell;
mod counters;
mod region;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;

use tokio::net::UnixStream;

pub(crate) use region::Slot;

use super::frame::FrameHeader;
use super::{LinkError, ended};
use bell::Bell;
use counters::{Over, Reader, State, Writer};
use region::Region;

/// Memory that is not used as a link yet. Unmapped when it, or the link made of it, is dropped.
#[derive(Debug)]
pub struct SharedMemory(Region);

/// The sending end.
#[derive(Debug)]
pub struct SharedMemorySender {
    writer: Writer<Region>,
    bell: Bell,
    finished: bool,
}

/// The receiving end.
#[derive(Debug)]
pub struct SharedMemoryReceiver {
    reader: Reader<Region>,
    bell: Bell,
}

impl SharedMemory {
    /// New memory, and a descriptor of it for the other end.
    ///
    /// # Errors
    /// When the system gives none: use QUIC.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let (region, memory) = Region::create()?;
        Ok((Self(region), memory))
    }

    /// Maps the memory that the other end has made.
    ///
    /// # Errors
    /// When it is of another length, or could be taken away, or the system does not map it: use QUIC.
    pub fn open(memory: &OwnedFd) -> io::Result<Self> {
        Region::open(memory).map(Self)
    }
}

impl SharedMemorySender {
    pub(super) fn new(SharedMemory(region): SharedMemory, socket: UnixStream) -> Self {
        Self {
            writer: Writer::new(region),
            bell: Bell::new(socket),
            finished: false,
        }
    }

    pub(super) async fn send(
        &mut self,
        header: &FrameHeader,
        fill: impl FnOnce(&mut [u8]),
        halfway: impl FnOnce(),
    ) -> Result<(), LinkError> {
        if self.finished {
            return Err(LinkError::Closed);
        }
        self.writer.room(&self.bell).await.map_err(|over| failed(over, header))?;
        let filled = |payload: &mut [u8]| {
            fill(payload);
            halfway();
        };
        self.writer.write(&header.encode(), header.payload_bytes as usize, filled);
        self.writer.count(&self.bell);
        Ok(())
    }

    pub(super) fn finish(&mut self) {
        self.end(State::Finished);
    }

    fn end(&mut self, state: State) {
        if !std::mem::replace(&mut self.finished, true) {
            self.writer.end(state, &self.bell);
        }
    }
}

impl Drop for SharedMemorySender {
    fn drop(&mut self) {
        self.end(State::Reset);
    }
}

impl SharedMemoryReceiver {
    pub(super) fn new(SharedMemory(region): SharedMemory, socket: UnixStream) -> Self {
        Self {
            reader: Reader::new(region),
            bell: Bell::new(socket),
        }
    }

    pub(super) async fn receive(&mut self, expected: &FrameHeader) -> Result<Slot<'_>, LinkError> {
        self.reader.frame(&self.bell).await.map_err(|over| failed(over, expected))?;
        expected.check(&self.reader.header())?;
        Ok(self.reader.payload(expected.payload_bytes as usize))
    }
}

impl Drop for SharedMemoryReceiver {
    fn drop(&mut self) {
        self.reader.end(&self.bell);
    }
}

/// Why `frame` did not pass.
fn failed(over: Over, frame: &FrameHeader) -> LinkError {
    match over {
        Over::Finished => ended(frame),
        Over::Reset => LinkError::Reset,
        Over::Refused => LinkError::Refused,
        Over::Senseless => LinkError::Counts,
    }
}
