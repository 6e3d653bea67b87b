//! Streams of frames in one direction between two ranks, over QUIC or within a process. Knows frames, not what they sum to.
//!
//! A link gives what it is handed to the transport for good: payloads are owned [`Bytes`], never a gradient's or a sum's
//! buffer, so nothing that is still on its way can be rewritten, not even after an abort.
//!
//! A sender that is dropped before [`LinkSender::finish`] resets its stream: a torn stream never looks like a good end.

pub mod frame;
mod in_process;
mod quic;

use bytes::{Bytes, BytesMut};

pub use in_process::{InProcessReceiver, InProcessSender};
pub use quic::{QuicReceiver, QuicSender};

use frame::{FrameHeader, HeaderField};

/// The sending end of a link.
#[derive(Debug)]
pub enum LinkSender {
    /// A QUIC stream.
    Quic(QuicSender),
    /// A bounded channel within this process.
    InProcess(InProcessSender),
}

/// The receiving end of a link.
#[derive(Debug)]
pub enum LinkReceiver {
    /// A QUIC stream.
    Quic(QuicReceiver),
    /// A bounded channel within this process.
    InProcess(InProcessReceiver),
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
    /// A link over a QUIC stream, of which nothing but the link's own hello has been written.
    #[must_use]
    pub const fn quic(stream: quinn::SendStream) -> Self {
        Self::Quic(QuicSender::new(stream))
    }

    /// Sends one frame. Waits while the peer is behind.
    ///
    /// # Errors
    /// See [`LinkError`].
    ///
    /// # Panics
    /// When the payload is not as long as the header says.
    pub async fn send(&mut self, header: &FrameHeader, payload: Bytes) -> Result<(), LinkError> {
        check(header, &payload);
        match self {
            Self::Quic(sender) => sender.write(&mut [header.encode(), payload]).await,
            Self::InProcess(sender) => sender.send(header.encode(), payload).await,
        }
    }

    /// Like [`Self::send`], and calls `halfway` when the header and half of the payload are with the transport. (Within a process
    /// a frame is not divided: nothing is there yet.)
    ///
    /// # Errors
    /// See [`LinkError`].
    ///
    /// # Panics
    /// When the payload is not as long as the header says.
    pub async fn send_in_halves(
        &mut self,
        header: &FrameHeader,
        mut payload: Bytes,
        halfway: impl FnOnce(),
    ) -> Result<(), LinkError> {
        check(header, &payload);
        match self {
            Self::Quic(sender) => {
                let second = payload.split_off(payload.len() / 2);
                sender.write(&mut [header.encode(), payload]).await?;
                halfway();
                sender.write(&mut [second]).await
            }
            Self::InProcess(sender) => {
                halfway();
                sender.send(header.encode(), payload).await
            }
        }
    }

    /// Says that the link ends well after what has been sent. Nothing may be sent afterwards.
    pub fn finish(&mut self) {
        match self {
            Self::Quic(sender) => sender.finish(),
            Self::InProcess(sender) => sender.finish(),
        }
    }

    /// Waits until the peer's transport has everything, or is gone.
    pub async fn delivered(&mut self) {
        match self {
            Self::Quic(sender) => sender.delivered().await,
            // What is in the channel stays there without its sender.
            Self::InProcess(_) => {}
        }
    }
}

impl LinkReceiver {
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
    pub async fn receive(&mut self, expected: &FrameHeader) -> Result<BytesMut, LinkError> {
        match self {
            Self::Quic(receiver) => receiver.receive(expected).await,
            Self::InProcess(receiver) => receiver.receive(expected).await,
        }
    }
}

fn check(header: &FrameHeader, payload: &Bytes) {
    assert_eq!(
        header.payload_bytes as usize,
        payload.len(),
        "a frame's header says how long its payload is"
    );
}

fn ended(expected: &FrameHeader) -> LinkError {
    LinkError::Ended(Box::new(*expected))
}
