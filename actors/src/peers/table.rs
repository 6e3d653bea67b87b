//! Where links and the rings that wait for them meet, whichever comes first.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sardana_collectives::links::LinkReceiver;
use sardana_protocol::limits::MAX_LIVES_AHEAD;
use sardana_protocol::plan::HopId;
use sardana_protocol::words::{Generation, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::limits::{MAX_GENERATIONS_AHEAD, MAX_PARKED, NEAR_PARKED, PARKED_FOR};

/// Which of a generation's plans a link belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Slot {
    First,
    Steady,
}

/// Names one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct LinkKey {
    pub(super) generation: Generation,
    pub(super) slot: Slot,
    pub(super) hop: HopId,
}

/// What a stream is refused with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    Taken,
    Parked,
    /// Its generation is over (GEN-3).
    Old,
    /// Another worker should have sent it.
    WrongSender,
    /// Its generation will never come.
    TooFarAhead,
    TooMany,
}

#[derive(Debug, Default)]
pub(super) struct LinkTable {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    oldest: Generation,
    waiting: BTreeMap<LinkKey, (WorkerId, oneshot::Sender<LinkReceiver>)>,
    /// By sender, so that no peer can take the place of another's link.
    parked: BTreeMap<WorkerId, BTreeMap<LinkKey, Parked>>,
}

/// A link that is not expected yet.
#[derive(Debug)]
struct Parked {
    link: LinkReceiver,
    since: Instant,
}

impl Inner {
    /// Only those links stay parked that `may` be expected.
    fn retain(&mut self, may: impl Fn(&LinkKey, &Parked) -> bool) {
        self.parked.retain(|_, links| {
            links.retain(|key, link| may(key, link));
            !links.is_empty()
        });
    }

    fn take(&mut self, key: LinkKey, from: WorkerId) -> Option<LinkReceiver> {
        let links = self.parked.get_mut(&from)?;
        let link = links.remove(&key);
        if links.is_empty() {
            self.parked.remove(&from);
        }
        link.map(|parked| parked.link)
    }
}

/// Whether `generation` may come after `oldest`, in the same life of the coordinator or in a later one.
fn can_come(generation: Generation, oldest: Generation) -> bool {
    let lives = generation.incarnation().get().saturating_sub(oldest.incarnation().get());
    let from = if lives == 0 { oldest.count() } else { 0 };
    lives <= MAX_LIVES_AHEAD && generation.count().saturating_sub(from) <= MAX_GENERATIONS_AHEAD
}

impl LinkTable {
    /// Whether one more link through memory may come from `from`: it is waited for, or few are kept.
    pub(super) fn has_room(&self, key: LinkKey, from: WorkerId) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.retain(|_, link| link.since.elapsed() < PARKED_FOR);
        let expected = inner.waiting.get(&key).is_some_and(|(sender, _)| *sender == from);
        expected || inner.parked.get(&from).is_none_or(|links| links.len() < NEAR_PARKED)
    }

    /// Refuses what is older than `generation`. A task that waits for such a link is told by the end of its channel.
    pub(super) fn fence(&self, generation: Generation) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.oldest = inner.oldest.max(generation);
        let oldest = inner.oldest;
        inner.waiting.retain(|key, _| key.generation >= oldest);
        inner.retain(|key, _| key.generation >= oldest && can_come(key.generation, oldest));
    }

    /// Waits for a link from `from`. The channel ends at once if that cannot come any more.
    pub(super) fn expect(&self, key: LinkKey, from: WorkerId) -> oneshot::Receiver<LinkReceiver> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.take(key, from) {
            Some(link) => {
                // The receiver is in this very function.
                let _ = sender.send(link);
            }
            None if key.generation >= inner.oldest => {
                inner.waiting.insert(key, (from, sender));
            }
            None => {}
        }
        receiver
    }

    /// A link has come from `from`; it is kept until this worker expects it, unless that cannot be any more, or takes too long.
    pub(super) fn arrive(&self, key: LinkKey, from: WorkerId, link: LinkReceiver) -> Arrival {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.retain(|_, link| link.since.elapsed() < PARKED_FOR);
        let arrival = if key.generation < inner.oldest {
            Arrival::Old
        } else if !can_come(key.generation, inner.oldest) {
            Arrival::TooFarAhead
        } else if let Some((expected, waiting)) = inner.waiting.remove(&key) {
            if expected == from {
                let _ = waiting.send(link);
                return Arrival::Taken;
            }
            inner.waiting.insert(key, (expected, waiting));
            Arrival::WrongSender
        } else if inner.parked.get(&from).is_some_and(|links| links.len() >= MAX_PARKED) {
            Arrival::TooMany
        } else {
            let since = Instant::now();
            inner.parked.entry(from).or_default().insert(key, Parked { link, since });
            return Arrival::Parked;
        };
        link.refuse();
        arrival
    }
}

#[cfg(test)]
impl LinkTable {
    pub(super) fn parked(&self) -> usize {
        self.inner.lock().unwrap().parked.values().map(BTreeMap::len).sum()
    }

    pub(super) fn waiting(&self) -> usize {
        self.inner.lock().unwrap().waiting.len()
    }
}
