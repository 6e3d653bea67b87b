//! A link between two processes of one host: frames in memory that both have mapped, and a socket to wake each other by. The receiver adds
//! straight from the memory that the sender has written. Obeys the same rules as a QUIC stream.
//!
//! An end that has to wait looks again for a moment, since the other is often about to be ready, and then sleeps: on a host with few
//! cores the other end may need this one's.

mod bell;
mod region;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Instant;

use tokio::net::UnixStream;
use tokio::task::yield_now;

pub(crate) use region::Slot;

use super::frame::FrameHeader;
use super::{LinkError, ended};
use crate::limits::LOOK_AGAIN;
use bell::{Bell, Gone};
use region::{Reader, Region, Senseless, State, Writer};

/// Memory that is not used as a link yet. Unmapped when it, or the link made of it, is dropped.
#[derive(Debug)]
pub struct SharedMemory(Region);

/// The sending end.
#[derive(Debug)]
pub struct SharedMemorySender {
    writer: Writer,
    bell: Bell,
    finished: bool,
}

/// The receiving end.
#[derive(Debug)]
pub struct SharedMemoryReceiver {
    reader: Reader,
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
        let writer = &self.writer;
        let has_room = || {
            if writer.is_refused() {
                return Err(LinkError::Refused);
            }
            Ok(writer.has_room()?)
        };
        wait(&self.bell, has_room, |sleeps| writer.sleeps(sleeps), LinkError::Refused).await?;
        let filled = |payload: &mut [u8]| {
            fill(payload);
            halfway();
        };
        if self.writer.write(&header.array(), header.payload_bytes as usize, filled) {
            self.bell.ring();
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) {
        self.end(State::Finished);
    }

    fn end(&mut self, state: State) {
        if !std::mem::replace(&mut self.finished, true) && self.writer.end(state) {
            self.bell.ring();
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
        if self.reader.wakes() {
            self.bell.ring();
        }
        let reader = &self.reader;
        let has_frame = || {
            // What was written before the end counts.
            let state = reader.state();
            match (reader.has_frame()?, state) {
                (true, _) => Ok(true),
                (false, State::Open) => Ok(false),
                (false, State::Finished) => Err(ended(expected)),
                (false, State::Reset) => Err(LinkError::Reset),
            }
        };
        wait(&self.bell, has_frame, |sleeps| reader.sleeps(sleeps), LinkError::Reset).await?;
        expected.check(&self.reader.header())?;
        Ok(self.reader.payload(expected.payload_bytes as usize))
    }
}

impl Drop for SharedMemoryReceiver {
    fn drop(&mut self) {
        if self.reader.end() {
            self.bell.ring();
        }
    }
}

/// Waits until `ready`. If the other end is gone before, that is the error `gone`.
async fn wait(
    bell: &Bell,
    ready: impl Fn() -> Result<bool, LinkError>,
    sleeps: impl Fn(bool),
    gone: LinkError,
) -> Result<(), LinkError> {
    let began = Instant::now();
    while !ready()? {
        if began.elapsed() < LOOK_AGAIN {
            // Where ranks share a processor, the one that this one waits for has its turn; and then this rank's other links.
            thread::yield_now();
            yield_now().await;
            continue;
        }
        sleeps(true);
        // It may have become so before the other end could know that this one sleeps.
        let heard = if ready()? { Ok(()) } else { bell.heard().await };
        sleeps(false);
        if heard == Err(Gone) {
            // What it had done before is done.
            return if ready()? { Ok(()) } else { Err(gone) };
        }
    }
    Ok(())
}

impl From<Senseless> for LinkError {
    fn from(Senseless: Senseless) -> Self {
        Self::Counts
    }
}
