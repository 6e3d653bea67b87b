//! Bytes that this process has borrowed from another one of its host: it reads them where their owner has written them, and says when it returns them. Knows
//! not by what it says so.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::SEEN_PAGES;
use crate::mapping::Mapping;
use crate::pages::SeenPages;

/// Bytes that stay as they are until this value is dropped: their owner writes there only after that.
pub(crate) struct Borrowed {
    pages: Arc<SeenPages>,
    at: usize,
    bytes: usize,
    account: Arc<Account>,
    entry: Entry,
}

/// What was borrowed of one owner: by numbers that grow, in columns, each of which is returned by itself.
#[derive(Debug)]
pub(crate) struct Account {
    owner: Box<dyn Owner>,
    open: Mutex<[Open; COLUMNS]>,
}

/// Columns of an account: pages have one each, as far as a link remembers them, so that what is kept long of some does not hold the others.
pub(crate) const COLUMNS: usize = SEEN_PAGES;

/// Where something stands in an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Below [`COLUMNS`].
    pub(crate) column: usize,
    /// More than all before.
    pub(crate) number: u64,
}

/// Of whom something was borrowed. It can be told as long as this value lives, and sees when that is gone.
pub(crate) trait Owner: fmt::Debug + Send + Sync {
    /// All that stand in this column with lower numbers are returned.
    fn returned(&self, before: Entry);
}

/// From the first one on that is not returned: each one's number, and whether it is.
#[derive(Debug, Default)]
struct Open(VecDeque<(u64, bool)>);

impl Account {
    pub(crate) fn with(owner: impl Owner + 'static) -> Arc<Self> {
        Arc::new(Self {
            owner: Box::new(owner),
            open: Mutex::default(),
        })
    }

    /// So many bytes at a place in `pages` are borrowed. None if there are not so many.
    pub(crate) fn borrow(
        self: &Arc<Self>,
        entry: Entry,
        pages: &Arc<SeenPages>,
        at: usize,
        bytes: usize,
    ) -> Option<Borrowed> {
        pages.get(at..at.checked_add(bytes)?)?;
        self.open()[entry.column].0.push_back((entry.number, false));
        Some(Borrowed {
            pages: Arc::clone(pages),
            at,
            bytes,
            account: Arc::clone(self),
            entry,
        })
    }

    fn give_back(&self, Entry { column, number }: Entry) {
        let mut open = self.open();
        // Told while no other can tell less.
        if let Some(number) = open[column].give_back(number) {
            self.owner.returned(Entry { column, number });
        }
    }

    fn open(&self) -> MutexGuard<'_, [Open; COLUMNS]> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Up to which number all are returned now, if that has changed.
    fn give_back(&mut self, number: u64) -> Option<u64> {
        let place = self.0.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        self.0[place].1 = true;
        let mut last = None;
        while let Some(&(number, true)) = self.0.front() {
            last = Some(number + 1);
            self.0.pop_front();
        }
        last
    }
}

impl Borrowed {
    /// Whether one begins in the same pages where the other ends, or neither is borrowed.
    pub(crate) fn lie_together(one: Option<&Self>, next: Option<&Self>) -> bool {
        match (one, next) {
            (Some(one), Some(next)) => Arc::ptr_eq(&one.pages, &next.pages) && one.at + one.bytes == next.at,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// In what this process has mapped them.
    pub(crate) fn mapping(&self) -> &Mapping {
        self.pages.mapping()
    }

    /// So many bytes from `at` on, also beyond these: of those that [lie together](Self::lie_together) with them.
    pub(crate) fn and_what_follows(&self, at: usize, bytes: usize) -> &[u8] {
        &self.pages[self.at + at..][..bytes]
    }
}

impl Deref for Borrowed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages[self.at..self.at + self.bytes]
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.account.give_back(self.entry);
    }
}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Borrowed")
            .field("entry", &self.entry)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_told_is_what_is_returned_up_to_the_first_that_is_not(
            numbers in proptest::collection::btree_set(0..1_000_u64, 1..40),
            seed in any::<u64>(),
        ) {
            let numbers: Vec<u64> = numbers.into_iter().collect();
            let mut open = Open(numbers.iter().map(|&number| (number, false)).collect());
            let mut order = numbers.clone();
            order.sort_by_key(|number| (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut told = 0;
            for (count, &number) in order.iter().enumerate() {
                let now = open.give_back(number);
                prop_assert!(now.is_none_or(|now| now > told), "it only grows");
                told = now.unwrap_or(told);
                let left = &order[count + 1..];
                let first = left.iter().min();
                prop_assert!(first.is_none_or(|&first| told <= first), "{first:?} is not returned, told {told}");
                let before = numbers.iter().filter(|&number| first.is_none_or(|first| number < first));
                prop_assert_eq!(before.max().map_or(0, |last| last + 1), told);
            }
            prop_assert!(open.0.is_empty());
        }
    }
}
