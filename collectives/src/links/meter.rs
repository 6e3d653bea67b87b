//! How many bytes have passed one end of a link. Knows no transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{FrameHeader, HEADER_BYTES};

/// Bytes of whole frames, headers and payloads, that this end has handed to its transport or had from it. The link counts; a holder of a clone
/// looks on, also after the link is gone.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicU64,
    in_place: AtomicU64,
}

impl Meter {
    /// How many bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// How many of them this end has sent without a copy: the other end, or QUIC, reads them where they lie.
    #[must_use]
    pub fn bytes_in_place(&self) -> u64 {
        self.0.in_place.load(Ordering::Relaxed)
    }

    /// One more frame, with its header and all of its payload, has passed. Nothing else is ordered by it.
    pub(super) fn passed(&self, header: &FrameHeader) {
        let bytes = HEADER_BYTES as u64 + u64::from(header.payload_bytes);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes of its payload were not copied.
    pub(super) fn in_place(&self, bytes: usize) {
        self.0.in_place.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
