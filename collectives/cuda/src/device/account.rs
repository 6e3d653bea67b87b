//! How much memory was asked for, is held, and was refused. Pure: must not know what gives the memory.

/// What is known of one kind of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes held now.
    pub held: u64,
    /// The most that were ever held.
    pub peak: u64,
    /// Bytes asked for so far, refused ones included.
    pub asked: u64,
    /// Requests refused so far.
    pub refused: u64,
    /// Bytes of those.
    pub refused_bytes: u64,
}

/// One kind of memory, within a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    limit: u64,
    found: MemoryUse,
}

/// A request goes beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BeyondLimit {
    pub(super) held: u64,
    pub(super) left: u64,
}

impl Account {
    pub(super) const fn new(limit: u64) -> Self {
        let found = MemoryUse {
            held: 0,
            peak: 0,
            asked: 0,
            refused: 0,
            refused_bytes: 0,
        };
        Self { limit, found }
    }

    pub(super) const fn found(&self) -> MemoryUse {
        self.found
    }

    /// Bytes that may still be taken.
    pub(super) const fn left(&self) -> u64 {
        self.limit - self.found.held
    }

    /// Takes so many bytes. A caller that cannot get them after all calls [`Self::refuse`].
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), BeyondLimit> {
        let found = &mut self.found;
        found.asked = found.asked.saturating_add(bytes);
        let left = self.limit - found.held;
        if bytes > left {
            found.refused += 1;
            found.refused_bytes = found.refused_bytes.saturating_add(bytes);
            return Err(BeyondLimit { held: found.held, left });
        }
        found.held += bytes;
        found.peak = found.peak.max(found.held);
        Ok(())
    }

    /// Bytes that were taken could not be had.
    pub(super) fn refuse(&mut self, bytes: u64) {
        self.give(bytes);
        self.found.refused += 1;
        self.found.refused_bytes = self.found.refused_bytes.saturating_add(bytes);
    }

    /// Bytes that were taken are not needed any more.
    pub(super) fn give(&mut self, bytes: u64) {
        self.found.held -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_had_again_and_what_is_beyond_the_limit_is_refused_and_counted() {
        let mut account = Account::new(100);
        assert_eq!(account.take(60), Ok(()));
        assert_eq!(account.take(41), Err(BeyondLimit { held: 60, left: 40 }));
        assert_eq!(account.take(40), Ok(()));
        account.give(60);
        assert_eq!(account.take(50), Ok(()));
        account.refuse(50);
        assert_eq!(account.take(u64::MAX), Err(BeyondLimit { held: 40, left: 60 }));
        let expected = MemoryUse {
            held: 40,
            peak: 100,
            asked: u64::MAX,
            refused: 3,
            refused_bytes: u64::MAX,
        };
        assert_eq!(account.found(), expected);
    }
}
