//! A bounded number of places for clients that have yet to show what they come for. When all are taken, the client that has stood longest
//! makes way for a newcomer: so to hold places costs a stranger something each second, and keeps out no client that is quick. Must not know
//! what is done at a place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How many places there are.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Most places of all names together.
    pub most: usize,
    /// Most places of one name.
    pub each: usize,
    /// No place makes way sooner for a name that would then have as many: otherwise a crowd of honest clients would push each other
    /// out, and none would be served.
    pub fair_time: Duration,
    /// A client that was asked to make way takes a while to leave. With so many that do, newcomers are turned away instead.
    pub leaving: usize,
}

/// The places, and the names that have them.
#[derive(Debug)]
pub struct Places<K: Ord> {
    room: Room,
    taken: Arc<Mutex<Taken<K>>>,
}

#[derive(Debug)]
struct Taken<K> {
    next: u64,
    /// In the order in which they came.
    standing: BTreeMap<u64, Standing<K>>,
    counts: BTreeMap<K, usize>,
    leaving: usize,
}

#[derive(Debug)]
struct Standing<K> {
    name: K,
    since: Instant,
    wanted: Arc<Notify>,
}

/// A place that a client has, until it is dropped.
#[derive(Debug)]
pub struct Place<K: Ord> {
    number: u64,
    wanted: Arc<Notify>,
    taken: Arc<Mutex<Taken<K>>>,
}

impl<K: Ord + Clone> Places<K> {
    /// As many as `room` says, all of them free.
    #[must_use]
    pub fn new(room: Room) -> Self {
        let taken = Taken {
            next: 0,
            standing: BTreeMap::new(),
            counts: BTreeMap::new(),
            leaving: 0,
        };
        Self {
            room,
            taken: Arc::new(Mutex::new(taken)),
        }
    }

    /// A place for `name`. Where none is free, the name with the most places gives up its oldest, if it has more than `name` would have, or
    /// has had a fair time. None if none has to make way.
    pub fn take(&self, name: K) -> Option<Place<K>> {
        let mut taken = lock(&self.taken);
        let own = taken.count(&name);
        if own >= self.room.each {
            taken.make_way(self.room, Some(&name), own)?;
        } else if taken.standing.len() >= self.room.most {
            taken.make_way(self.room, None, own)?;
        }
        let (number, wanted) = (taken.next, Arc::new(Notify::new()));
        taken.next += 1;
        *taken.counts.entry(name.clone()).or_default() += 1;
        let standing = Standing {
            name,
            since: Instant::now(),
            wanted: Arc::clone(&wanted),
        };
        taken.standing.insert(number, standing);
        drop(taken);
        Some(Place {
            number,
            wanted,
            taken: Arc::clone(&self.taken),
        })
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        lock(&self.taken).standing.len()
    }

    /// How many are taken under this name.
    pub(crate) fn count(&self, name: &K) -> usize {
        lock(&self.taken).count(name)
    }
}

impl<K: Ord + Clone> Taken<K> {
    fn count(&self, name: &K) -> usize {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The oldest place of `among`, or else of the names that have the most, makes way for a name that has `own` places.
    fn make_way(&mut self, room: Room, among: Option<&K>, own: usize) -> Option<()> {
        let most = match among {
            Some(_) => own,
            None => self.counts.values().copied().max()?,
        };
        let is_one = |name: &K| among.map_or_else(|| self.count(name) == most, |among| among == name);
        let (&oldest, standing) = self.standing.iter().find(|(_, standing)| is_one(&standing.name))?;
        let is_fair = most > own + 1 || standing.since.elapsed() >= room.fair_time;
        if !is_fair || self.leaving >= room.leaving {
            return None;
        }
        let standing = self.remove(oldest)?;
        self.leaving += 1;
        standing.wanted.notify_one();
        Some(())
    }
}

impl<K: Ord> Taken<K> {
    fn remove(&mut self, number: u64) -> Option<Standing<K>> {
        let standing = self.standing.remove(&number)?;
        if let Some(count) = self.counts.get_mut(&standing.name) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&standing.name);
            }
        }
        Some(standing)
    }
}

impl<K: Ord> Place<K> {
    /// Waits until another client needs it.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }
}

impl<K: Ord> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if taken.remove(self.number).is_none() {
            taken.leaving -= 1;
        }
    }
}

fn lock<K>(taken: &Mutex<Taken<K>>) -> MutexGuard<'_, Taken<K>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::time::advance;

    use super::*;

    const FAIR: Duration = Duration::from_secs(1);

    fn places(most: usize, each: usize, leaving: usize) -> Places<&'static str> {
        Places::new(Room {
            most,
            each,
            fair_time: FAIR,
            leaving,
        })
    }

    fn is_wanted(place: &Place<&'static str>) -> bool {
        let mut wanted = pin!(place.wanted());
        wanted.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_makes_way_once_it_has_had_a_fair_time() {
        let places = places(3, 3, 3);
        let held: Vec<_> = (0..3).map(|_| places.take("crowd").unwrap()).collect();
        assert!(places.take("crowd").is_none(), "a crowd does not push itself out");
        advance(FAIR).await;
        let newcomer = places.take("crowd").unwrap();
        assert_eq!(held.iter().map(is_wanted).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(places.taken(), 3);
        drop((held, newcomer));
        assert_eq!((places.taken(), places.count(&"crowd")), (0, 0));
        assert_eq!(lock(&places.taken).leaving, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_most_makes_way_for_another_at_once() {
        let places = places(4, 4, 4);
        let crowd: Vec<_> = (0..4).map(|_| places.take("crowd").unwrap()).collect();
        let one = places.take("one").unwrap();
        let two = places.take("one").unwrap();
        assert_eq!(crowd.iter().map(is_wanted).collect::<Vec<_>>(), [true, true, false, false]);
        assert!(places.take("one").is_none(), "as many each: nobody makes way before its time");
        assert!(!is_wanted(&one) && !is_wanted(&two));
    }

    #[tokio::test(start_paused = true)]
    async fn one_name_has_its_own_share_and_no_more() {
        let places = places(8, 2, 8);
        let held: Vec<_> = (0..2).map(|_| places.take("one").unwrap()).collect();
        assert!(places.take("one").is_none());
        let other = places.take("other").unwrap();
        advance(FAIR).await;
        let newer = places.take("one").unwrap();
        assert_eq!(held.iter().map(is_wanted).collect::<Vec<_>>(), [true, false]);
        assert!(!is_wanted(&other) && !is_wanted(&newer));
    }

    #[tokio::test(start_paused = true)]
    async fn with_too_many_who_leave_nobody_else_has_to() {
        let places = places(1, 1, 2);
        let mut held = vec![places.take("a").unwrap()];
        for _ in 0..2 {
            advance(FAIR).await;
            held.push(places.take("b").unwrap());
        }
        advance(FAIR).await;
        assert!(places.take("c").is_none(), "two leave already");
        held.remove(0);
        assert!(places.take("c").is_some(), "one of them has left");
    }
}
