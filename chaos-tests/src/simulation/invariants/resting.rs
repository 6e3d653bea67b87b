//! LIVE-1: what is said comes to rest. Messages that call for one another for ever, without time going on, would fill the memory long before a bound of time is over.

use std::time::Duration;

use super::{Held, Law};

/// More than ten times as many events as the largest clusters have had in a second.
const MOST: u64 = 50_000;

/// So many events of one second are looked at together.
const CHUNK: u64 = 1 << 13;

/// What happens within one virtual second.
#[derive(Debug, Default)]
pub(crate) struct Second {
    number: u64,
    events: u64,
}

impl Second {
    /// One more event, at this time. How many there were in a second that is over, or are so far in one of very many.
    pub(crate) fn counts(&mut self, now: Duration) -> Option<u64> {
        let (number, before) = (now.as_secs(), self.events);
        if number == self.number {
            self.events += 1;
            return self.events.is_multiple_of(CHUNK).then_some(self.events);
        }
        *self = Self { number, events: 1 };
        Some(before)
    }
}

impl Law {
    /// So many events happened within one second, of so many workers.
    pub(crate) fn comes_to_rest(&mut self, events: u64, workers: usize) -> Held {
        self.check("LIVE-1, coming to rest", events <= MOST, || {
            format!("at most {MOST} events are expected within a second, and there are {events} of {workers} workers")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether so many events in each second are let pass, for some seconds.
    fn pass(in_each: u64) -> bool {
        let (mut law, mut second) = (Law::default(), Second::default());
        let times = (0..4).flat_map(|number| (0..in_each).map(move |_| Duration::from_secs(number)));
        let mut held = times
            .filter_map(|now| second.counts(now))
            .map(|events| law.comes_to_rest(events, 3));
        held.all(|held| held.is_ok())
    }

    #[test]
    fn what_does_not_come_to_rest_is_seen_before_its_second_is_over() {
        assert!(pass(MOST));
        assert!(!pass(MOST + CHUNK));
        let mut second = Second::default();
        let seen = (0..).find(|_| second.counts(Duration::ZERO).is_some_and(|events| events > MOST));
        assert!(seen.is_some_and(|events: u64| events <= MOST + CHUNK));
    }
}
