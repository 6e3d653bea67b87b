//! Streams of frames in one direction between two ranks: over QUIC, through memory that two processes of one host share, or within a process.
//! Knows frames, not what they sum to.
//!
//! A payload is written where the transport takes it from, and read where the transport has put it. That memory is the link's, so nothing that is still on
//! its way can be rewritten, not even after an abort. Or it is read where it lies, in [pages](crate::pages) of a gradient or a sum: their owner does not
//! write there before it has been read.
//!
//! A sender that is dropped before [`LinkSender::finish`] resets its stream: a torn stream never looks like a good end.
//!
//! An end that never has to wait lets the other tasks of its thread go on all the same, heartbeats among them: a step of 1 GiB whose memory is touched for the
//! first time takes seconds.

mod backlog;
mod error;
pub mod frame;
mod in_process;
mod meter;
mod pool;
mod quic;
#[cfg(target_os = "linux")]
mod shared_memory;

#[cfg(target_os = "linux")]
use std::io;

use sardana_protocol::messages::LinkKind;

pub use error::LinkError;
pub use in_process::{InProcessReceiver, InProcessSender};
pub use meter::Meter;
pub use quic::{QuicReceiver, QuicSender};
#[cfg(target_os = "linux")]
pub use shared_memory::{SharedMemory, SharedMemoryReceiver, SharedMemorySender, descriptors};

use backlog::Backlog;
use frame::FrameHeader;

use crate::borrowed::Borrowed;
use crate::pages::InPlace;
use crate::runs::Runs;
use crate::yielding::Turn;

/// The sending end of a link.
#[derive(Debug)]
pub struct LinkSender {
    end: SendingEnd,
    meter: Meter,
    turn: Turn,
}

/// The receiving end of a link.
#[derive(Debug)]
pub struct LinkReceiver {
    end: ReceivingEnd,
    meter: Meter,
    turn: Turn,
}

#[derive(Debug)]
enum SendingEnd {
    /// A QUIC stream.
    Quic(QuicSender),
    /// A bounded channel within this process.
    InProcess(InProcessSender),
    /// Memory that another process of this host has as well.
    #[cfg(target_os = "linux")]
    SharedMemory(SharedMemorySender),
}

#[derive(Debug)]
enum ReceivingEnd {
    /// A QUIC stream.
    Quic(QuicReceiver),
    /// A bounded channel within this process.
    InProcess(InProcessReceiver),
    /// Memory that another process of this host has as well.
    #[cfg(target_os = "linux")]
    SharedMemory(SharedMemoryReceiver),
}

/// What a frame carries, to be read where the link has it. Let go of it before the next one is received.
#[derive(Debug)]
pub struct Payload<'a>(PayloadIn<'a>);

/// Where a payload lies.
#[derive(Debug)]
enum PayloadIn<'a> {
    /// In memory of the link's.
    Memory(&'a [u8]),
    /// As it came from the network.
    Backlog(&'a mut Backlog),
    /// In memory that the sender has written.
    #[cfg(target_os = "linux")]
    Slot(shared_memory::Slot<'a>),
}

/// What came where its receiver may want it for longer.
#[derive(Debug)]
pub(crate) enum Received<'a> {
    /// As any payload.
    Payload(Payload<'a>),
    /// In memory of the sender's, for as long as the receiver wants.
    Borrowed(Borrowed),
}

impl Runs for Payload<'_> {
    fn left(&self) -> usize {
        match &self.0 {
            PayloadIn::Memory(bytes) => bytes.left(),
            PayloadIn::Backlog(backlog) => backlog.left(),
            #[cfg(target_os = "linux")]
            PayloadIn::Slot(slot) => slot.left(),
        }
    }

    fn run(&mut self, most: usize, element: usize) -> &[u8] {
        match &mut self.0 {
            PayloadIn::Memory(bytes) => bytes.run(most, element),
            PayloadIn::Backlog(backlog) => backlog.run(most, element),
            #[cfg(target_os = "linux")]
            PayloadIn::Slot(slot) => slot.run(most, element),
        }
    }
}

/// A link within this process, for tests and for ranks that share one.
#[must_use]
pub fn in_process() -> (LinkSender, LinkReceiver) {
    let (sender, receiver) = in_process::pair();
    (SendingEnd::InProcess(sender).into(), ReceivingEnd::InProcess(receiver).into())
}

/// A link through memory as two processes of a host share it, of which both ends are here: for tests and measurements. Within a runtime of tokio.
///
/// # Errors
/// When the system gives no memory, or no socket.
#[cfg(target_os = "linux")]
pub fn shared_memory_in_process() -> io::Result<(LinkSender, LinkReceiver)> {
    let (sender, receiver) = shared_memory::pair()?;
    Ok((
        SendingEnd::SharedMemory(sender).into(),
        ReceivingEnd::SharedMemory(receiver).into(),
    ))
}

impl LinkSender {
    /// A link through memory that the other end, at the other side of the socket, has mapped as well.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn shared_memory(memory: SharedMemory, socket: tokio::net::UnixStream) -> Self {
        SendingEnd::SharedMemory(SharedMemorySender::new(memory, socket)).into()
    }

    /// A link over a QUIC stream, of which nothing but the link's own hello has been written.
    #[must_use]
    pub fn quic(stream: quinn::SendStream) -> Self {
        SendingEnd::Quic(QuicSender::new(stream)).into()
    }

    /// What its bytes pass through.
    #[must_use]
    pub const fn kind(&self) -> LinkKind {
        match &self.end {
            SendingEnd::Quic(_) => LinkKind::Quic,
            SendingEnd::InProcess(_) => LinkKind::InProcess,
            #[cfg(target_os = "linux")]
            SendingEnd::SharedMemory(_) => LinkKind::SharedMemory,
        }
    }

    /// What it has sent: with the transport, not necessarily with the peer.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Sends one frame, whose payload `fill` writes: all of it, since what was there before is anything. Waits while the peer is behind.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn send(&mut self, header: &FrameHeader, fill: impl FnOnce(&mut [u8])) -> Result<(), LinkError> {
        self.turn.passes().await;
        match &mut self.end {
            SendingEnd::Quic(sender) => sender.send(header, fill).await,
            SendingEnd::InProcess(sender) => sender.send(header, fill).await,
            #[cfg(target_os = "linux")]
            SendingEnd::SharedMemory(sender) => sender.send(header, fill, || ()).await,
        }?;
        self.meter.passed(header);
        Ok(())
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
        self.turn.passes().await;
        match &mut self.end {
            SendingEnd::Quic(sender) => sender.send_in_halves(header, fill, halfway).await,
            SendingEnd::InProcess(sender) => {
                halfway();
                sender.send(header, fill).await
            }
            #[cfg(target_os = "linux")]
            SendingEnd::SharedMemory(sender) => sender.send(header, fill, halfway).await,
        }?;
        self.meter.passed(header);
        Ok(())
    }

    /// Sends one frame, whose payload is these bytes: the other end, or QUIC, reads them where they lie, if it can, and they are copied otherwise. Calls `halfway`,
    /// if there is one, as [`Self::send_in_halves`] does.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn send_in_place(
        &mut self,
        header: &FrameHeader,
        payload: InPlace<'_>,
        halfway: Option<impl FnOnce()>,
    ) -> Result<(), LinkError> {
        self.turn.passes().await;
        let in_place = match &mut self.end {
            SendingEnd::Quic(sender) => sender.send_in_place(header, payload, halfway).await?,
            // The other end has a payload until the next one comes: so what it was given could not be written again where it lies.
            SendingEnd::InProcess(sender) => {
                if let Some(halfway) = halfway {
                    halfway();
                }
                let copy = |out: &mut [u8]| out.copy_from_slice(payload.bytes());
                sender.send(header, copy).await.map(|()| false)?
            }
            #[cfg(target_os = "linux")]
            SendingEnd::SharedMemory(sender) => {
                let halfway = || halfway.map_or((), |halfway| halfway());
                sender.send_in_place(header, payload, halfway).await?
            }
        };
        if in_place {
            self.meter.in_place(payload.bytes().len());
        }
        self.meter.passed(header);
        Ok(())
    }

    /// Says that the link ends well after what has been sent. Nothing may be sent afterwards.
    pub fn finish(&mut self) {
        match &mut self.end {
            SendingEnd::Quic(sender) => sender.finish(),
            SendingEnd::InProcess(sender) => sender.finish(),
            #[cfg(target_os = "linux")]
            SendingEnd::SharedMemory(sender) => sender.finish(),
        }
    }

    /// Waits until the peer's transport has everything, or is gone.
    pub async fn delivered(&mut self) {
        match &mut self.end {
            SendingEnd::Quic(sender) => sender.delivered().await,
            // What is in the channel stays there without its sender.
            SendingEnd::InProcess(_) => {}
            // So it is with memory that the receiver has mapped.
            #[cfg(target_os = "linux")]
            SendingEnd::SharedMemory(_) => {}
        }
    }
}

impl LinkReceiver {
    /// Tells the other end that nothing will be read.
    pub fn refuse(self) {
        match self.end {
            ReceivingEnd::Quic(receiver) => receiver.refuse(),
            // Their ends see it when this one is dropped.
            ReceivingEnd::InProcess(_) => {}
            #[cfg(target_os = "linux")]
            ReceivingEnd::SharedMemory(_) => {}
        }
    }

    /// A link through memory that the other end, at the other side of the socket, has mapped as well.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn shared_memory(memory: SharedMemory, socket: tokio::net::UnixStream) -> Self {
        ReceivingEnd::SharedMemory(SharedMemoryReceiver::new(memory, socket)).into()
    }

    /// A link over a QUIC stream, of which nothing but the link's own hello has been read.
    #[must_use]
    pub fn quic(stream: quinn::RecvStream) -> Self {
        ReceivingEnd::Quic(QuicReceiver::new(stream)).into()
    }

    /// What its bytes pass through.
    #[must_use]
    pub const fn kind(&self) -> LinkKind {
        match &self.end {
            ReceivingEnd::Quic(_) => LinkKind::Quic,
            ReceivingEnd::InProcess(_) => LinkKind::InProcess,
            #[cfg(target_os = "linux")]
            ReceivingEnd::SharedMemory(_) => LinkKind::SharedMemory,
        }
    }

    /// What it has received.
    #[must_use]
    pub const fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Receives the frame that the plan says comes next. A header that differs is refused before its payload is read or any
    /// memory is set aside for it (GEN-3). A receiver that was abandoned in here must not be used again.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn receive(&mut self, expected: &FrameHeader) -> Result<Payload<'_>, LinkError> {
        self.turn.passes().await;
        let payload = match &mut self.end {
            ReceivingEnd::Quic(receiver) => receiver.receive(expected).await.map(PayloadIn::Backlog),
            ReceivingEnd::InProcess(receiver) => receiver.receive(expected).await.map(PayloadIn::Memory),
            #[cfg(target_os = "linux")]
            ReceivingEnd::SharedMemory(receiver) => receiver.receive(expected).await.map(PayloadIn::Slot),
        }?;
        self.meter.passed(expected);
        Ok(Payload(payload))
    }

    /// The same, of a frame whose payload may be borrowed where the sender has it, if that [lends](InPlace::lent) it.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub(crate) async fn borrow(&mut self, expected: &FrameHeader) -> Result<Received<'_>, LinkError> {
        self.turn.passes().await;
        let payload = match &mut self.end {
            ReceivingEnd::Quic(receiver) => PayloadIn::Backlog(receiver.receive(expected).await?),
            ReceivingEnd::InProcess(receiver) => PayloadIn::Memory(receiver.receive(expected).await?),
            #[cfg(target_os = "linux")]
            ReceivingEnd::SharedMemory(receiver) => match receiver.borrow(expected).await? {
                shared_memory::Received::Slot(slot) => PayloadIn::Slot(slot),
                shared_memory::Received::Borrowed(borrowed) => {
                    self.meter.passed(expected);
                    return Ok(Received::Borrowed(borrowed));
                }
            },
        };
        self.meter.passed(expected);
        Ok(Received::Payload(Payload(payload)))
    }
}

impl From<SendingEnd> for LinkSender {
    fn from(end: SendingEnd) -> Self {
        let (meter, turn) = (Meter::default(), Turn::default());
        Self { end, meter, turn }
    }
}

impl From<ReceivingEnd> for LinkReceiver {
    fn from(end: ReceivingEnd) -> Self {
        let (meter, turn) = (Meter::default(), Turn::default());
        Self { end, meter, turn }
    }
}

fn ended(expected: &FrameHeader) -> LinkError {
    LinkError::Ended(Box::new(*expected))
}
