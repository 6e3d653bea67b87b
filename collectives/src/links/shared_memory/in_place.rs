//! Payloads that a receiver reads where the sender has them: in pages, whose descriptors pass the socket once each. Both ends count them, and remember the
//! last few.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::bell::Bell;
use super::counters::Memory;
use super::region::Region;
use crate::limits::SEEN_PAGES;
use crate::pages::{InPlace, Pages, Reader, SeenPages};

/// Where a payload lies, as a frame says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which pages of those that have passed, counted from 1 on.
    pub(super) pages: u64,
    /// Its first byte there.
    pub(super) at: u64,
}

/// The pages that a sender has passed.
#[derive(Debug)]
pub(super) struct Passed {
    memory: Region,
    numbers: VecDeque<u64>,
    count: u64,
    receiver: Arc<dyn Reader>,
}

/// The pages that a receiver was passed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pages: VecDeque<SeenPages>,
    count: u64,
}

/// The other end, as long as it may read what it was shown.
#[derive(Debug)]
struct Receiver {
    memory: Region,
    bell: Arc<Bell>,
}

impl Passed {
    /// None yet.
    pub(super) fn new(memory: Region, bell: Arc<Bell>) -> Self {
        Self {
            numbers: VecDeque::new(),
            count: 0,
            receiver: Arc::new(Receiver {
                memory: memory.clone(),
                bell,
            }),
            memory,
        }
    }

    /// Where the other end finds bytes that frame number `frame` carries, counted from 0 on. None if it cannot see them: they are copied then.
    pub(super) fn show(&mut self, bytes: InPlace<'_>, frame: u64, bell: &Bell) -> Option<Place> {
        let (pages, at) = bytes.place().filter(|_| !self.memory.asks_for_copies())?;
        let number = self.find(pages).or_else(|| self.pass(pages, bell))?;
        pages.show(&self.receiver, frame + 1);
        Some(Place {
            pages: number,
            at: at as u64,
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
        // Each frame brings one descriptor at most.
        if self.count + 1 == place.pages {
            let memory = bell
                .descriptor()
                .ok_or_else(|| io::Error::other("a frame lies in memory of which no descriptor came"))?;
            self.pages.push_back(SeenPages::open(&memory.into())?);
            if self.pages.len() > SEEN_PAGES {
                self.pages.pop_front();
            }
            self.count += 1;
        }
        let ago = self.count.checked_sub(place.pages).and_then(|ago| usize::try_from(ago).ok());
        let pages = ago.and_then(|ago| self.pages.iter().rev().nth(ago));
        let pages = pages.ok_or_else(|| io::Error::other("a frame lies in memory that has not passed, or long ago"))?;
        let at = usize::try_from(place.at).ok();
        let found = at.and_then(|at| pages.get(at..at.checked_add(bytes)?));
        found.ok_or_else(|| io::Error::other(format!("a frame lies beyond the {} bytes of its memory", pages.len())))
    }
}

impl Reader for Receiver {
    fn has_read(&self, shown: u64) -> bool {
        let read = self.memory.counters().read();
        read.is_none_or(|read| read >= shown) || self.bell.is_alone()
    }
}
