//! Where link streams and the rings that wait for them meet, whichever comes first.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use quinn::RecvStream;
use sardana_protocol::plan::HopId;
use sardana_protocol::words::{Generation, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::limits::MAX_PARKED;

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
    TooMany,
}

#[derive(Debug, Default)]
pub(super) struct LinkTable {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    oldest: Generation,
    waiting: BTreeMap<LinkKey, (WorkerId, oneshot::Sender<RecvStream>)>,
    /// By sender, so that nobody can take the place of another's link.
    parked: BTreeMap<(LinkKey, WorkerId), RecvStream>,
}

impl LinkTable {
    /// Refuses what is older than `generation`. Whoever waits for such a link is told by the end of its channel.
    pub(super) fn fence(&self, generation: Generation) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.oldest = inner.oldest.max(generation);
        let oldest = inner.oldest;
        inner.waiting.retain(|key, _| key.generation >= oldest);
        inner.parked.retain(|(key, _), _| key.generation >= oldest);
    }

    /// Waits for a link from `from`. The channel ends at once if that cannot come any more.
    pub(super) fn expect(&self, key: LinkKey, from: WorkerId) -> oneshot::Receiver<RecvStream> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.parked.remove(&(key, from)) {
            Some(stream) => {
                // The receiver is in this very function.
                let _ = sender.send(stream);
            }
            None if key.generation >= inner.oldest => {
                inner.waiting.insert(key, (from, sender));
            }
            None => {}
        }
        receiver
    }

    /// A link has come from `from`; it is kept until somebody expects it, unless that cannot be any more.
    pub(super) fn arrive(&self, key: LinkKey, from: WorkerId, mut stream: RecvStream) -> Arrival {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let arrival = if key.generation < inner.oldest {
            Arrival::Old
        } else if let Some((expected, waiting)) = inner.waiting.remove(&key) {
            if expected == from {
                let _ = waiting.send(stream);
                return Arrival::Taken;
            }
            inner.waiting.insert(key, (expected, waiting));
            Arrival::WrongSender
        } else if inner.parked.len() >= MAX_PARKED {
            Arrival::TooMany
        } else {
            inner.parked.insert((key, from), stream);
            return Arrival::Parked;
        };
        // The stream may have ended already, which is as good.
        let _ = stream.stop(1_u32.into());
        arrival
    }
}

#[cfg(test)]
impl LinkTable {
    pub(super) fn parked(&self) -> usize {
        self.inner.lock().unwrap().parked.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.inner.lock().unwrap().waiting.len()
    }
}
