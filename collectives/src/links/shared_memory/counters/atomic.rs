//! An integer that both ends see: the processor's, or in a test the model checker's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the ends do with it.
pub(in super::super) trait Atomic<T> {
    fn load(&self, ordering: Ordering) -> T;
    fn store(&self, value: T, ordering: Ordering);
    fn swap(&self, value: T, ordering: Ordering) -> T;
}

impl Atomic<u64> for AtomicU64 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        self.load(ordering)
    }

    #[inline]
    fn store(&self, value: u64, ordering: Ordering) {
        self.store(value, ordering);
    }

    #[inline]
    fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        self.swap(value, ordering)
    }
}

impl Atomic<u32> for AtomicU32 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u32 {
        self.load(ordering)
    }

    #[inline]
    fn store(&self, value: u32, ordering: Ordering) {
        self.store(value, ordering);
    }

    #[inline]
    fn swap(&self, value: u32, ordering: Ordering) -> u32 {
        self.swap(value, ordering)
    }
}
