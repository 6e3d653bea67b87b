//! Payloads that a receiver reads where the sender has them: in pages, whose descriptors pass the socket once each. Both ends count them, and remember the
//! last few.
//!
//! A receiver has a payload until it has read its frame; or, if the sender lends it, until it returns it: it [borrows](crate::borrowed) that for as long as it needs it.

use std::array;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::bell::Bell;
use super::counters::Memory;
use super::region::Region;
use crate::borrowed::{Account, Borrowed, COLUMNS, Entry, Owner};
use crate::limits::SEEN_PAGES;
use crate::pages::{InPlace, Pages, Reader, SeenPages};

/// Where a payload lies, as a frame says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which pages of those that have passed, counted from 1 on.
    pub(super) pages: u64,
    /// Its first byte there.
    pub(super) at: u64,
    /// Whether the receiver may borrow it, and returns it in any case.
    pub(super) lent: bool,
}

/// The pages that a sender has passed.
#[derive(Debug)]
pub(super) struct Passed {
    memory: Region,
    numbers: VecDeque<u64>,
    count: u64,
    reader: Arc<dyn Reader>,
    /// By columns of its account.
    borrowers: Box<[Arc<dyn Reader>; COLUMNS]>,
}

/// The pages that a receiver was passed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pages: VecDeque<Arc<SeenPages>>,
    count: u64,
}

/// The other end, as long as it may read what it was shown.
#[derive(Debug)]
struct Receiver {
    memory: Region,
    bell: Arc<Bell>,
    /// In which column of its account it returns what it was shown. None if it has that until it has read it.
    returns: Option<usize>,
}

/// The end of which this one borrows.
#[derive(Debug)]
struct Sender {
    memory: Region,
    /// Open as long as something is borrowed: once it is closed the other end takes all for returned.
    _bell: Arc<Bell>,
}

/// An account of what is borrowed of the other end of a link, by the numbers of its frames.
pub(super) fn account(memory: Region, bell: Arc<Bell>) -> Arc<Account> {
    Account::with(Sender { memory, _bell: bell })
}

impl Passed {
    /// None yet.
    pub(super) fn new(memory: Region, bell: Arc<Bell>) -> Self {
        let receiver = |returns| -> Arc<dyn Reader> {
            Arc::new(Receiver {
                memory: memory.clone(),
                bell: Arc::clone(&bell),
                returns,
            })
        };
        Self {
            numbers: VecDeque::new(),
            count: 0,
            reader: receiver(None),
            borrowers: Box::new(array::from_fn(|column| receiver(Some(column)))),
            memory,
        }
    }

    /// Whether the other end was shown something in the pages of these bytes lately.
    pub(super) fn knows(&self, bytes: InPlace<'_>) -> bool {
        bytes.place().is_some_and(|(pages, _)| self.find(pages).is_some())
    }

    /// Where the other end finds bytes that frame number `frame` carries, counted from 0 on. None if it cannot see them: they are copied then.
    pub(super) fn show(&mut self, bytes: InPlace<'_>, frame: u64, bell: &Bell) -> Option<Place> {
        let (pages, at) = bytes.place().filter(|_| !self.memory.asks_for_copies())?;
        let number = self.find(pages).or_else(|| self.pass(pages, bell))?;
        let lent = bytes.is_lent();
        let receiver = if lent { &self.borrowers[column(number)] } else { &self.reader };
        pages.show(receiver, frame + 1);
        Some(Place {
            pages: number,
            at: at as u64,
            lent,
        })
    }

    /// How many pages it has passed.
    #[cfg(test)]
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    fn find(&self, pages: &Pages) -> Option<u64> {
        let ago = self.numbers.iter().rev().position(|&number| number == pages.number())?;
        Some(self.count - ago as u64)
    }

    fn pass(&mut self, pages: &Pages, bell: &Bell) -> Option<u64> {
        bell.pass(pages.file()).ok()?;
        self.numbers.push_back(pages.number());
        if self.numbers.len() > SEEN_PAGES {
            self.numbers.pop_front();
        }
        self.count += 1;
        Some(self.count)
    }
}

impl Seen {
    /// So many bytes at a place that the other end has named.
    pub(super) fn bytes(&mut self, place: Place, bytes: usize, bell: &Bell) -> io::Result<&[u8]> {
        let (pages, at) = self.find(place, bell)?;
        let found = at.checked_add(bytes).and_then(|end| pages.get(at..end));
        found.ok_or_else(|| beyond(pages))
    }

    /// The same, borrowed with frame number `frame`.
    pub(super) fn borrow(
        &mut self,
        (place, bytes): (Place, usize),
        bell: &Bell,
        (account, frame): (&Arc<Account>, u64),
    ) -> io::Result<Borrowed> {
        let (pages, at) = self.find(place, bell)?;
        let entry = Entry {
            column: column(place.pages),
            number: frame,
        };
        let found = account.borrow(entry, pages, at, bytes);
        found.ok_or_else(|| beyond(pages))
    }

    fn find(&mut self, place: Place, bell: &Bell) -> io::Result<(&Arc<SeenPages>, usize)> {
        // Each frame brings one descriptor at most.
        if self.count + 1 == place.pages {
            let memory = bell
                .descriptor()
                .ok_or_else(|| io::Error::other("a frame lies in memory of which no descriptor came"))?;
            self.pages.push_back(Arc::new(SeenPages::open(&memory.into())?));
            if self.pages.len() > SEEN_PAGES {
                self.pages.pop_front();
            }
            self.count += 1;
        }
        let ago = self.count.checked_sub(place.pages).and_then(|ago| usize::try_from(ago).ok());
        let pages = ago.and_then(|ago| self.pages.iter().rev().nth(ago));
        let pages = pages.ok_or_else(|| io::Error::other("a frame lies in memory that has not passed, or long ago"))?;
        let at = usize::try_from(place.at).map_err(|_| beyond(pages))?;
        Ok((pages, at))
    }
}

/// In which column of an account what is borrowed in these pages stands.
fn column(pages: u64) -> usize {
    usize::try_from(pages % COLUMNS as u64).expect("there are few columns")
}

fn beyond(pages: &SeenPages) -> io::Error {
    io::Error::other(format!("a frame lies beyond the {} bytes of its memory", pages.len()))
}

impl Reader for Receiver {
    fn has_read(&self, shown: u64) -> bool {
        let has = match self.returns {
            None => self.memory.counters().read().is_none_or(|read| read >= shown),
            // Also of a receiver that reads no more frames.
            Some(column) => self.memory.returned(column) >= shown,
        };
        has || self.bell.is_alone()
    }
}

impl Owner for Sender {
    fn returned(&self, before: Entry) {
        self.memory.have_returned(before.column, before.number);
    }
}
