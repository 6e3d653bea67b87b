//! What a rank may do on a link instead of sending the frame that comes next.

use sardana_collectives::links::LinkError;
use sardana_collectives::links::frame::{FrameHeader, HEADER_BYTES, HeaderField};
use sardana_protocol::words::{Generation, Incarnation};

use crate::relay::Onwards;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lie {
    /// Bytes that are no frame. (Shared memory takes only frames: there each number is another one.)
    Garbage,
    /// A frame of the generation before.
    OldGeneration,
    /// A frame of an earlier coordinator's.
    OldIncarnation,
    /// A frame that is a byte shorter than it should be, as it says itself.
    Short,
    /// More bytes than the frame has, or more chunks than a gradient has: on and on, until the link takes no more.
    TooMuch,
    /// An end where a frame should be.
    Ends,
    /// The link is given up, as by a process that dies.
    Resets,
}

impl Lie {
    pub(crate) const ALL: [Self; 7] = [
        Self::Garbage,
        Self::OldGeneration,
        Self::OldIncarnation,
        Self::Short,
        Self::TooMuch,
        Self::Ends,
        Self::Resets,
    ];

    /// Tells it in place of this frame. Returns once the link takes no more, or all is said.
    pub(crate) async fn is_told(self, link: &mut Option<Onwards>, frame: &FrameHeader, payload: &[u8]) {
        let onwards = link.as_mut().unwrap();
        match self {
            Self::Garbage => onwards.garbage(frame).await,
            Self::OldGeneration => {
                let generation = Generation::new(frame.generation.incarnation(), frame.generation.count() - 1);
                onwards.try_frame(&FrameHeader { generation, ..*frame }, payload).await;
            }
            Self::OldIncarnation => {
                let incarnation = Incarnation::new(frame.generation.incarnation().get() - 1);
                let generation = Generation::new(incarnation, frame.generation.count());
                onwards.try_frame(&FrameHeader { generation, ..*frame }, payload).await;
            }
            Self::Short => {
                let payload_bytes = frame.payload_bytes - 1;
                let shorter = &payload[..payload_bytes as usize];
                onwards.try_frame(&FrameHeader { payload_bytes, ..*frame }, shorter).await;
            }
            Self::TooMuch => onwards.flood(frame, payload).await,
            Self::Ends => {
                onwards.finish();
                *link = None;
            }
            Self::Resets => *link = None,
        }
    }

    /// Whether this is what is said of it, where it came in place of this frame, or after it.
    pub(crate) fn is_named(self, error: &LinkError, frame: &FrameHeader) -> bool {
        let other = |field| matches!(error, LinkError::Unexpected { field: found, .. } if *found == field);
        match self {
            // Whatever differs first.
            Self::Garbage | Self::TooMuch => matches!(error, LinkError::Unexpected { .. }),
            Self::OldGeneration => other(HeaderField::Count),
            Self::OldIncarnation => other(HeaderField::Incarnation),
            Self::Short => other(HeaderField::PayloadBytes),
            Self::Ends => matches!(error, LinkError::Ended(expected) if **expected == *frame),
            Self::Resets => matches!(error, LinkError::Reset),
        }
    }

    /// Whether it comes after the frame that is named, and not in its place.
    pub(crate) const fn follows(self) -> bool {
        matches!(self, Self::TooMuch)
    }
}

/// No frame, nor the beginning of one.
pub(crate) const GARBAGE: [u8; 3 * HEADER_BYTES] = [0x5a; 3 * HEADER_BYTES];
