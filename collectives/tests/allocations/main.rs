//! What a ring and its links allocate once the first steps are over: nothing, but for what QUIC itself needs for its packets. And what links hold.
//! A process of its own, since all its allocations are counted.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod frames;
mod held;
#[path = "../rings/loopback.rs"]
mod loopback;
mod steps;

use std::sync::{Mutex, MutexGuard, PoisonError};

use dhat::{HeapStats, Profiler};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Counts what this process allocates, for one test at a time.
struct Counting {
    _profiler: Profiler,
    _alone: MutexGuard<'static, ()>,
}

impl Counting {
    fn begin() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            _profiler: Profiler::builder().testing().build(),
            _alone: alone,
        }
    }

    /// Blocks that were allocated so far.
    fn blocks(&self) -> u64 {
        HeapStats::get().total_blocks
    }

    /// Bytes that are allocated now.
    fn bytes(&self) -> u64 {
        HeapStats::get().curr_bytes as u64
    }
}
