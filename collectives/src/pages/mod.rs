//! Memory that other processes of this host can read where it lies: what is shown to them is not copied for them first.
//!
//! Its owner has the only writable mapping there will ever be (the memory is sealed), and writes no byte that another process may be reading: whatever
//! shows pages notes who reads them, and how it is known that they have been read. A transport of the owner's process, which may have to send bytes again,
//! holds their pages instead. A reader that neither goes on nor ends keeps what it was shown: the
//! owner then takes other pages, and these are gone with their last mapping.

#![expect(
    unsafe_code,
    reason = "memory that other processes have as well is mapped, and the compiler does not see them"
)]

mod system;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use memmap2::MmapOptions;
use sardana_protocol::limits::MAX_GRADIENT_BYTES;
use tokio::task::yield_now;

use crate::limits::{MOST_PAGES, RESERVED_AT_ONCE};
use crate::mapping::Mapping;
use system::{check_kept, memory, reserve, seal};

/// Memory with a descriptor, all zeros at first.
pub struct Pages {
    number: u64,
    mapping: Mapping,
    file: File,
    readers: Mutex<Vec<Reading>>,
    _present: Present,
}

/// Memory for pages of which not all is reserved yet.
struct Reserving {
    file: File,
    bytes: usize,
    reserved: usize,
    present: Present,
}

/// One of the pages that there are.
struct Present;

/// The same memory as another process sees it.
pub(crate) struct SeenPages(Mapping);

/// Bytes that stay as they are as long as someone may read them, and the pages in which they lie, if they do.
#[derive(Clone, Copy, Debug)]
pub struct InPlace<'a> {
    bytes: &'a [u8],
    pages: Option<&'a Arc<Pages>>,
    is_lent: bool,
    is_in_turn: bool,
}

/// Bytes in pages, which are held meanwhile.
struct Held {
    pages: Arc<Pages>,
    at: usize,
    bytes: usize,
}

/// What reads pages that it was shown.
pub(crate) trait Reader: fmt::Debug + Send + Sync {
    /// Whether all that it was shown up to `shown` is read, or it reads nothing any more.
    fn has_read(&self, shown: u64) -> bool;
}

/// One reader, and up to where it was shown something here.
struct Reading {
    reader: Arc<dyn Reader>,
    shown: u64,
}

/// This process could not map pages of another one that it was shown, so that from now on it asks for copies: an address space, descriptors and mappings are
/// limited, and a link that failed for that would fail in each generation.
static BLIND: AtomicBool = AtomicBool::new(false);

/// Pages that there are, or are being made, and those that there have been.
static PRESENT: AtomicUsize = AtomicUsize::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);

impl Pages {
    /// New pages for so many bytes.
    ///
    /// # Errors
    /// When the system gives none, or the process has [as many as it may](MOST_PAGES): use memory of its own.
    pub fn create(bytes: usize) -> io::Result<Self> {
        let mut reserving = Reserving::begin(bytes)?;
        while reserving.goes_on()? {}
        reserving.pages()
    }

    /// The same for a task: after [some of the memory](RESERVED_AT_ONCE) the others of its thread go on. A system may clear what it reserves, and take its time for that.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub(crate) async fn create_beside_others(bytes: usize) -> io::Result<Self> {
        let mut reserving = Reserving::begin(bytes)?;
        while reserving.goes_on()? {
            yield_now().await;
        }
        reserving.pages()
    }

    /// Where they begin. Who writes there sees to it that nothing [reads](Self::are_read) it then.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.mapping.start()
    }

    /// How many bytes they have.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// As what this process has mapped them.
    #[must_use]
    pub const fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// What no other pages of this process are called.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// What another process maps.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// They are shown to `reader`, which will have read them once it has read all up to `shown`.
    pub(crate) fn show(&self, reader: &Arc<dyn Reader>, shown: u64) {
        let mut readers = self.readers();
        match readers.iter_mut().find(|reading| Arc::ptr_eq(&reading.reader, reader)) {
            Some(reading) => reading.shown = shown,
            None => {
                readers.retain(|reading| !reading.is_over());
                let reader = Arc::clone(reader);
                readers.push(Reading { reader, shown });
            }
        }
    }

    /// Whether something may still read what it was shown: another process, or a transport of this one that holds them.
    pub fn are_read(self: &mut Arc<Self>) -> bool {
        let is_held = Arc::get_mut(self).is_none();
        let mut readers = self.readers();
        readers.retain(|reading| !reading.is_over());
        is_held || !readers.is_empty()
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Reading>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reserving {
    fn begin(bytes: usize) -> io::Result<Self> {
        let present = Present::one_more()?;
        Ok(Self {
            file: memory(bytes)?,
            bytes,
            reserved: 0,
            present,
        })
    }

    /// Reserves some more. Whether there is more to reserve.
    fn goes_on(&mut self) -> io::Result<bool> {
        let more = RESERVED_AT_ONCE.min(self.bytes - self.reserved);
        reserve(&self.file, self.reserved, more)?;
        self.reserved += more;
        Ok(self.reserved < self.bytes)
    }

    fn pages(self) -> io::Result<Pages> {
        let map = MmapOptions::new().len(self.bytes).map_raw(&self.file)?;
        seal(&self.file)?;
        Ok(Pages {
            number: MADE.fetch_add(1, Ordering::Relaxed),
            mapping: Mapping::new(map, true),
            file: self.file,
            readers: Mutex::default(),
            _present: self.present,
        })
    }
}

impl Present {
    fn one_more() -> io::Result<Self> {
        let one_more = |present| (present < MOST_PAGES).then_some(present + 1);
        let counted = PRESENT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let has = |present| io::Error::other(format!("the process has {present} already"));
        counted.map(|_| Self).map_err(has)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        PRESENT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reading {
    fn is_over(&self) -> bool {
        self.reader.has_read(self.shown)
    }
}

impl SeenPages {
    /// Maps the pages of another process, to be read.
    ///
    /// # Errors
    /// When they could be taken away, are not all there, are more than a gradient may have, or the system does not map them.
    pub(crate) fn open(file: &File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        if bytes > MAX_GRADIENT_BYTES as u64 {
            let most = format!("a gradient has at most {MAX_GRADIENT_BYTES} bytes, found {bytes}");
            return Err(io::Error::other(most));
        }
        check_kept(file)?;
        let map = MmapOptions::new().map_raw_read_only(file);
        map.map(|map| Self(Mapping::new(map, false))).inspect_err(|_| go_blind())
    }

    /// As what this process has mapped them.
    pub(crate) const fn mapping(&self) -> &Mapping {
        &self.0
    }
}

/// From now on this process asks others for copies.
pub(crate) fn go_blind() {
    BLIND.store(true, Ordering::Relaxed);
}

/// Whether it does.
pub(crate) fn is_blind() -> bool {
    BLIND.load(Ordering::Relaxed)
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: they lie within the pages.
        let start = unsafe { self.pages.start().add(self.at) };
        // SAFETY: this value keeps the pages mapped. Their owner writes no byte that was shown in place before each holder has let go of them.
        unsafe { slice::from_raw_parts(start, self.bytes) }
    }
}

impl Deref for SeenPages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: they are sealed against shrinking, so that what is mapped stays, as long as this value does. Their owner leaves alone what it has shown
        // until it is read. That is a worker of the same job and user; if it breaks its word these are numbers of its own choice, which it could have sent
        // as well.
        unsafe { slice::from_raw_parts(self.0.start(), self.0.bytes()) }
    }
}

impl<'a> InPlace<'a> {
    /// Bytes that lie in these pages, or in none. What shows them writes none of them before they [are read](Pages::are_read) no more.
    #[must_use]
    pub const fn new(bytes: &'a [u8], pages: Option<&'a Arc<Pages>>) -> Self {
        Self {
            bytes,
            pages,
            is_lent: false,
            is_in_turn: false,
        }
    }

    /// The same, and another process that reads them may [borrow](crate::borrowed) them: they are read until it returns them. Else they are until it has read the frame in
    /// which it is shown them.
    #[must_use]
    pub(crate) const fn lent(self) -> Self {
        Self { is_lent: true, ..self }
    }

    /// Whether it may.
    pub(crate) const fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// The same, of memory that is used in turn with little else, so that it is wanted back soon: few such bytes are under way at once.
    #[must_use]
    pub(crate) const fn in_turn(self) -> Self {
        Self {
            is_in_turn: true,
            ..self
        }
    }

    /// Whether it is.
    pub(crate) const fn is_in_turn(&self) -> bool {
        self.is_in_turn
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Some of them.
    ///
    /// # Panics
    /// When they are beyond these.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        Self {
            bytes: &self.bytes[range],
            ..*self
        }
    }

    /// The same bytes without a lifetime, if they lie in pages: these are held until the last clone is dropped, and their owner does not write them before.
    pub(crate) fn held(&self) -> Option<Bytes> {
        let (pages, at) = self.place()?;
        Some(Bytes::from_owner(Held {
            pages: Arc::clone(pages),
            at,
            bytes: self.bytes.len(),
        }))
    }

    /// The pages in which they lie, and where.
    pub(crate) fn place(&self) -> Option<(&'a Arc<Pages>, usize)> {
        let pages = self.pages?;
        let at = self.bytes.as_ptr().addr().checked_sub(pages.start().addr())?;
        (at + self.bytes.len() <= pages.bytes()).then_some((pages, at))
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("number", &self.number)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SeenPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SeenPages").field(&self.0).finish()
    }
}
