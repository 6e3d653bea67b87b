//! A link between two processes of one host: frames in memory that both have mapped, and a socket to wake each other by. The receiver adds
//! straight from the memory that the sender has written; and where a payload lies in [pages](crate::pages) that it can see, it is read there, so that the
//! sender writes nothing. What the receiver is to have for longer it may [borrow](crate::borrowed) there, so that it writes nothing either. Obeys the same rules as a QUIC stream.
//!
//! An end that has to wait looks again for a moment, since the other is often about to be ready, and then sleeps: on a host with few
//! cores the other end may need this one's.

mod bell;
mod counters;
pub mod descriptors;
mod in_place;
mod region;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::net::UnixStream;

pub(crate) use region::Slot;

use super::frame::FrameHeader;
use super::{LinkError, ended};
use crate::borrowed::{Account, Borrowed};
use crate::pages::{InPlace, is_blind};
use bell::Bell;
use counters::{Memory, Over, Reader, State, Writer};
use in_place::{Passed, Seen, account};
use region::{Lies, Region};

/// Memory that is not used as a link yet. Unmapped when it, or the link made of it, is dropped.
#[derive(Debug)]
pub struct SharedMemory(Region);

/// The sending end.
#[derive(Debug)]
pub struct SharedMemorySender {
    writer: Writer<Region>,
    bell: Arc<Bell>,
    passed: Passed,
    finished: bool,
}

/// The receiving end.
#[derive(Debug)]
pub struct SharedMemoryReceiver {
    reader: Reader<Region>,
    bell: Arc<Bell>,
    seen: Seen,
    account: Arc<Account>,
}

/// A payload that was received.
#[derive(Debug)]
pub(crate) enum Received<'a> {
    /// In the slot.
    Slot(Slot<'a>),
    /// Where the sender has it, for as long as this end wants.
    Borrowed(Borrowed),
}

/// Both ends, each with a mapping of its own, as two processes have them.
pub(super) fn pair() -> io::Result<(SharedMemorySender, SharedMemoryReceiver)> {
    let (own, memory) = SharedMemory::create()?;
    let other = SharedMemory::open(&memory)?;
    let (here, there) = UnixStream::pair()?;
    Ok((SharedMemorySender::new(own, here), SharedMemoryReceiver::new(other, there)))
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
        let region = Region::open(memory)?;
        if is_blind() {
            region.ask_for_copies();
        }
        Ok(Self(region))
    }
}

impl SharedMemorySender {
    pub(super) fn new(SharedMemory(region): SharedMemory, socket: UnixStream) -> Self {
        let bell = Arc::new(Bell::new(socket));
        Self {
            passed: Passed::new(region.clone(), Arc::clone(&bell)),
            writer: Writer::new(region),
            bell,
            finished: false,
        }
    }

    pub(super) async fn send(
        &mut self,
        header: &FrameHeader,
        fill: impl FnOnce(&mut [u8]),
        halfway: impl FnOnce(),
    ) -> Result<(), LinkError> {
        self.room(header, Region::FRAMES).await?;
        self.writer
            .free_slot(&*self.bell)
            .await
            .map_err(|over| failed(over, header))?;
        let filled = |payload: &mut [u8]| {
            fill(payload);
            halfway();
        };
        self.writer.write(&header.encode(), header.payload_bytes as usize, filled);
        self.writer.count(&*self.bell);
        Ok(())
    }

    /// Sends a frame whose payload is read where it lies, if the other end can see that, and is copied otherwise. Whether it is in place.
    pub(super) async fn send_in_place(
        &mut self,
        header: &FrameHeader,
        payload: InPlace<'_>,
        halfway: impl FnOnce(),
    ) -> Result<bool, LinkError> {
        // Memory that the other end has not seen, or that is wanted back soon, is not under way in more frames than there are slots.
        let many = self.passed.knows(payload) && !payload.is_in_turn();
        self.room(header, if many { Region::FRAMES } else { Region::SLOTS }).await?;
        let Some(place) = self.passed.show(payload, self.writer.next(), &self.bell) else {
            let copy = |out: &mut [u8]| out.copy_from_slice(payload.bytes());
            return self.send(header, copy, halfway).await.map(|()| false);
        };
        self.writer.refer(&header.encode(), place);
        halfway();
        self.writer.count(&*self.bell);
        Ok(true)
    }

    /// Waits until there is room for a frame beside less than `most` others.
    async fn room(&self, header: &FrameHeader, most: u64) -> Result<(), LinkError> {
        if self.finished {
            return Err(LinkError::Closed);
        }
        let room = self.writer.room(most, &*self.bell).await;
        room.map_err(|over| failed(over, header))
    }

    pub(super) fn finish(&mut self) {
        self.end(State::Finished);
    }

    fn end(&mut self, state: State) {
        if !std::mem::replace(&mut self.finished, true) {
            self.writer.end(state, &*self.bell);
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
        let bell = Arc::new(Bell::with_descriptors(socket));
        Self {
            account: account(region.clone(), Arc::clone(&bell)),
            reader: Reader::new(region),
            bell,
            seen: Seen::default(),
        }
    }

    pub(super) async fn receive(&mut self, expected: &FrameHeader) -> Result<Slot<'_>, LinkError> {
        let (reader, lies) = self.payload(expected).await?;
        Ok(reader.payload(lies))
    }

    /// Receives a frame whose payload this end may borrow, if the sender lends it.
    pub(super) async fn borrow(&mut self, expected: &FrameHeader) -> Result<Received<'_>, LinkError> {
        let (reader, lies) = self.payload(expected).await?;
        Ok(match lies {
            Lies::Lent(borrowed) => {
                reader.count();
                Received::Borrowed(borrowed)
            }
            Lies::Here(_) | Lies::There(_) => Received::Slot(reader.payload(lies)),
        })
    }

    /// Waits for a frame, which the reader is at, and says where its payload lies.
    async fn payload(&mut self, expected: &FrameHeader) -> Result<(&mut Reader<Region>, Lies<'_>), LinkError> {
        self.reader.frame(&*self.bell).await.map_err(|over| failed(over, expected))?;
        expected.check(&self.reader.header())?;
        let bytes = expected.payload_bytes as usize;
        let lies = match self.reader.place() {
            None => Lies::Here(bytes),
            Some(place) if place.lent => {
                let as_number = (&self.account, self.reader.next());
                let borrowed = self.seen.borrow((place, bytes), &self.bell, as_number);
                Lies::Lent(borrowed.map_err(not_seen)?)
            }
            Some(place) => Lies::There(self.seen.bytes(place, bytes, &self.bell).map_err(not_seen)?),
        };
        Ok((&mut self.reader, lies))
    }
}

impl Drop for SharedMemoryReceiver {
    fn drop(&mut self) {
        self.reader.end(&*self.bell);
    }
}

fn not_seen(reason: io::Error) -> LinkError {
    LinkError::NotSeen(Arc::new(reason))
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
