//! Why a link ends before its time.

use std::io;
use std::sync::Arc;

use super::frame::{FrameHeader, HeaderField};

/// Why a link cannot go on. In every case the generation cannot go on either: the caller reports which worker the link led to, keeps
/// its gradients, and waits for the next generation.
#[derive(Clone, Debug, thiserror::Error)]
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
    /// The peer sent a frame whose payload lies in memory of its own that cannot be read.
    #[error("the peer has a frame's payload where it cannot be read: {0}: wait for the next generation")]
    NotSeen(Arc<io::Error>),
    /// The peer's count of frames in shared memory cannot be.
    #[error("the peer has counted frames in shared memory that cannot be: wait for the next generation")]
    Counts,
    /// The link was used after an error or its end: a mistake of the caller.
    #[error("the link was used after its end: make new links for the next generation")]
    Closed,
}
