//! A count of bytes, which shows that a worker gets ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes of states and sums a worker has fetched, copied, loaded or hashed. Every clone counts the same.
#[derive(Debug, Clone, Default)]
pub struct Moved(Arc<AtomicU64>);

impl Moved {
    /// So many more.
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
