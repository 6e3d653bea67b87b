//! Memory that is mapped into this process, and what else was told of it: such as a GPU's driver, which copies from there and to there by itself from then on.
//! Knows not what lies there.

use std::any::Any;
use std::sync::OnceLock;
use std::{fmt, io};

use memmap2::{MmapOptions, MmapRaw};

/// Memory at one place, until the end of this value.
pub struct Mapping {
    /// Ends before the memory does.
    told: OnceLock<Option<Box<dyn Any + Send + Sync>>>,
    map: MmapRaw,
    may_be_written: bool,
}

impl Mapping {
    /// What is mapped, and whether this process may write there.
    pub(crate) const fn new(map: MmapRaw, may_be_written: bool) -> Self {
        let told = OnceLock::new();
        Self {
            told,
            map,
            may_be_written,
        }
    }

    /// Memory of this process alone, all zeros at first.
    ///
    /// # Errors
    /// When the system gives none: use a vector, as where memory is interpreted and not mapped.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        if cfg!(miri) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let map = MmapOptions::new().len(bytes).map_anon()?;
        Ok(Self::new(map.into(), true))
    }

    /// Where it begins.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// How many bytes it has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    /// Whether this process may write there. Else another one of the host does.
    #[must_use]
    pub const fn may_be_written(&self) -> bool {
        self.may_be_written
    }

    /// Tells something else of this memory, the first time, by `tell`; what that gives ends right before the memory does. Whether it was told, now or
    /// before: not if `tell` gave nothing the first time, or something of another type was told.
    pub fn tell<T: Any + Send + Sync>(&self, tell: impl FnOnce() -> Option<T>) -> bool {
        let told = self.told.get_or_init(|| tell().map(|told| Box::new(told) as _));
        told.as_ref().is_some_and(|told| told.is::<T>())
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("bytes", &self.bytes())
            .field("told", &self.told.get().is_some_and(Option::is_some))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    struct Told(Arc<AtomicU32>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_told_is_told_once_and_ends_with_the_memory() {
        let (mapping, ended) = (Mapping::anonymous(100_000).unwrap(), Arc::new(AtomicU32::new(0)));
        let told = |_| mapping.tell(|| Some(Told(Arc::clone(&ended))));
        assert_eq!([(), ()].map(told), [true; 2]);
        assert!(!mapping.tell(|| Some(5_u8)), "something else was told");
        assert_eq!((ended.load(Ordering::Relaxed), Arc::strong_count(&ended)), (0, 2), "once");
        drop(mapping);
        assert_eq!(ended.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_does_not_take_it_is_not_asked_again() {
        let mapping = Mapping::anonymous(1).unwrap();
        assert!(!mapping.tell(|| None::<u8>));
        assert!(!mapping.tell(|| -> Option<u8> { unreachable!("it was asked") }));
    }
}
