//! Streams of frames in one direction between two ranks: over QUIC, through memory that two processes of one host share, or within a process.
//! Knows frames, not what they sum to.
//!
//! A payload is written where the transport takes it from, and read where the transport has put it. That memory is the link's, never
//! a gradient's or a sum's, so nothing that is still on its way can be rewritten, not even after an abort.
//!
//! A sender that is dropped before [`LinkSender::finish`] resets its stream: a torn stream never looks like a good end.

pub mod frame;
mod in_process;
mod pool;
mod quic;
#[cfg(target_os = "linux")]
mod shared_memory;

use std::ops::Deref;

pub use in_process::{InProcessReceiver, InProcessSender};
pub use quic::{QuicReceiver, QuicSender};
#[cfg(target_os = "linux")]
pub use shared_memory::{SharedMemory, SharedMemoryReceiver, SharedMemorySender};

use frame::{FrameHeader, HeaderField};

/// The sending end of a link.
#[derive(Debug)]
pub enum LinkSender {
    /// A QUIC stream.
    Quic(QuicSender),
    /// A bounded channel within this process.
    InProcess(InProcessSender),
    /// Memory that another process of this host has as well.
    #[cfg(target_os = "linux")]
    SharedMemory(SharedMemorySender),
}

/// The receiving end of a link.
#[derive(Debug)]
pub enum LinkReceiver {
    /// A QUIC stream.
    Quic(QuicReceiver),
    /// A bounded channel within this process.
    InProcess(InProcessReceiver),
    /// Memory that another process of this host has as well.
    #[cfg(target_os = "linux")]
    SharedMemory(SharedMemoryReceiver),
}

/// What a frame carries. Let go of it before the next one is received.
#[derive(Debug)]
pub struct Payload<'a>(PayloadIn<'a>);

/// Where a payload lies.
#[derive(Debug)]
enum PayloadIn<'a> {
    /// In memory of the link's.
    Memory(&'a [u8]),
    /// In memory that the sender has written.
    #[cfg(target_os = "linux")]
    Slot(shared_memory::Slot<'a>),
}

impl Deref for Payload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            PayloadIn::Memory(bytes) => bytes,
            #[cfg(target_os = "linux")]
            PayloadIn::Slot(slot) => slot,
        }
    }
}

/// Why a link cannot go on. In every case the generation cannot go on either: the caller reports which worker the link led to, keeps
/// its gradients, and waits for the next generation.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer ended the link where this frame was expected, or within it.
    #[error("the link ended where {kind} of {generation} {step} was expected: wait for the next generation", kind = .0.kind,
        generation = .0.generation, step = .0.step)]
    Ended(Box<FrameHeader>),
    /// The peer gave the link up.
    #[error("the peer reset the link: wait for the next generation")]
    Reset,
    /// The peer takes no more.
    #[error("the peer stopped reading the link: wait for the next generation")]
    Refused,
    /// The connection under the link is gone.
    #[error("the connection under the link is lost: wait for the next generation")]
    Lost(#[from] quinn::ConnectionError),
    /// The peer sent another frame than the plan says comes next. It was not read (GEN-3).
    #[error(
        "the frame's {field} is {found:#x}, expected {expected:#x}: nothing of it was used, wait for the next generation (GEN-3)"
    )]
    Unexpected {
        /// Where it differs first.
        field: HeaderField,
        /// Its value in the plan.
        expected: u64,
        /// Its value in the frame that came.
        found: u64,
    },
    /// The peer closed a sum with orders of a kind that this version does not know.
    #[error(
        "a trailer is of kind 0 (continue), 1 (stop), 2 (snapshot) or 3 (switch), found {0}: run the same program on all workers"
    )]
    Trailer(u8),
    /// The peer's count of frames in shared memory cannot be.
    #[error("the peer has counted frames in shared memory that cannot be: wait for the next generation")]
    Counts,
    /// The link was used after an error or its end: a mistake of the caller.
    #[error("the link was used after its end: make new links for the next generation")]
    Closed,
}

/// A link within this process, for tests and for ranks that share one.
#[must_use]
pub fn in_process() -> (LinkSender, LinkReceiver) {
    let (sender, receiver) = in_process::pair();
    (LinkSender::InProcess(sender), LinkReceiver::InProcess(receiver))
}

impl LinkSender {
    /// A link through memory that the other end, at the other side of the socket, has mapped as well.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn shared_memory(memory: SharedMemory, socket: tokio::net::UnixStream) -> Self {
        Self::SharedMemory(SharedMemorySender::new(memory, socket))
    }

    /// A link over a QUIC stream, of which nothing but the link's own hello has been written.
    #[must_use]
    pub fn quic(stream: quinn::SendStream) -> Self {
        Self::Quic(QuicSender::new(stream))
    }

    /// Sends one frame, whose payload `fill` writes: all of it, since what was there before is anything. Waits while the peer is behind.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn send(&mut self, header: &FrameHeader, fill: impl FnOnce(&mut [u8])) -> Result<(), LinkError> {
        match self {
            Self::Quic(sender) => sender.send(header, fill).await,
            Self::InProcess(sender) => sender.send(header, fill).await,
            #[cfg(target_os = "linux")]
            Self::SharedMemory(sender) => sender.send(header, fill, || ()).await,
        }
    }

    /// Like [`Self::send`], and calls `halfway` when the header and half of the payload are with the transport. (Within a process, and
    /// in shared memory, a frame is not divided: nothing is there yet.)
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn send_in_halves(
        &mut self,
        header: &FrameHeader,
        fill: impl FnOnce(&mut [u8]),
        halfway: impl FnOnce(),
    ) -> Result<(), LinkError> {
        match self {
            Self::Quic(sender) => sender.send_in_halves(header, fill, halfway).await,
            Self::InProcess(sender) => {
                halfway();
                sender.send(header, fill).await
            }
            #[cfg(target_os = "linux")]
            Self::SharedMemory(sender) => sender.send(header, fill, halfway).await,
        }
    }

    /// Says that the link ends well after what has been sent. Nothing may be sent afterwards.
    pub fn finish(&mut self) {
        match self {
            Self::Quic(sender) => sender.finish(),
            Self::InProcess(sender) => sender.finish(),
            #[cfg(target_os = "linux")]
            Self::SharedMemory(sender) => sender.finish(),
        }
    }

    /// Waits until the peer's transport has everything, or is gone.
    pub async fn delivered(&mut self) {
        match self {
            Self::Quic(sender) => sender.delivered().await,
            // What is in the channel stays there without its sender.
            Self::InProcess(_) => {}
            // So it is with memory that the receiver has mapped.
            #[cfg(target_os = "linux")]
            Self::SharedMemory(_) => {}
        }
    }
}

impl LinkReceiver {
    /// Tells the other end that nothing will be read.
    pub fn refuse(self) {
        match self {
            Self::Quic(receiver) => receiver.refuse(),
            // Their ends see it when this one is dropped.
            Self::InProcess(_) => {}
            #[cfg(target_os = "linux")]
            Self::SharedMemory(_) => {}
        }
    }

    /// A link through memory that the other end, at the other side of the socket, has mapped as well.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn shared_memory(memory: SharedMemory, socket: tokio::net::UnixStream) -> Self {
        Self::SharedMemory(SharedMemoryReceiver::new(memory, socket))
    }

    /// A link over a QUIC stream, of which nothing but the link's own hello has been read.
    #[must_use]
    pub const fn quic(stream: quinn::RecvStream) -> Self {
        Self::Quic(QuicReceiver::new(stream))
    }

    /// Receives the frame that the plan says comes next. A header that differs is refused before its payload is read or any
    /// memory is set aside for it (GEN-3). A receiver that was abandoned in here must not be used again.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn receive(&mut self, expected: &FrameHeader) -> Result<Payload<'_>, LinkError> {
        match self {
            Self::Quic(receiver) => receiver.receive(expected).await.map(PayloadIn::Memory),
            Self::InProcess(receiver) => receiver.receive(expected).await.map(PayloadIn::Memory),
            #[cfg(target_os = "linux")]
            Self::SharedMemory(receiver) => receiver.receive(expected).await.map(PayloadIn::Slot),
        }
        .map(Payload)
    }
}

fn ended(expected: &FrameHeader) -> LinkError {
    LinkError::Ended(Box::new(*expected))
}
