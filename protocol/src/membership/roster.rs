//! The workers that the coordinator knows, and where each stands. What is asked with every message is counted when a place changes, and not
//! looked for among all.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::net::SocketAddr;
use std::ops::Deref;
use std::time::Duration;

use super::Arrival;
use super::balancing::Measured;
use super::contradicting::Ahead;
use super::links::LinksTold;
use super::silence::{Pulse, Work};
use crate::memory::GradientMemory;
use crate::messages::{HostHash, Standing, Tally};
use crate::state::StateHash;
use crate::words::{Generation, Pace, Rank, Step, WorkerId};

/// One worker.
#[derive(Debug, Clone)]
pub(super) struct Record {
    /// Order of arrival.
    pub(super) arrival: u64,
    pub(super) address: SocketAddr,
    pub(super) capacity: u32,
    pub(super) memory: GradientMemory,
    /// Which workers it can share memory with.
    pub(super) host_hash: Option<HostHash>,
    /// Whether its gradients lie on a device.
    pub(super) on_device: bool,
    /// When its links last showed that it cannot.
    pub(super) cannot_share: Option<Duration>,
    /// How fast it is, once it has told.
    pub(super) measured: Option<Measured>,
    /// Its rank in the last generation that was formed with it.
    pub(super) rank: Option<Rank>,
    place: Place,
    /// Since when it is to leave, if it is.
    leaving: Option<Duration>,
    /// Gradients computed, as last told.
    pub(super) computed: u64,
    /// When it last said something.
    pub(super) heard: Duration,
    /// Since when its process stands still, if its agent sees that.
    pub(super) stopped: Option<Duration>,
    pub(super) pulse: Pulse,
    /// What it has computed, as last told.
    pub(super) work: Work,
    /// What has passed its links, as last told.
    pub(super) links: LinksTold,
    /// When it was last asked something that it has not answered yet.
    pub(super) asked: Duration,
    /// Whether it says that it is further than any other can be.
    pub(super) ahead: Option<Ahead>,
    /// Whether it has finished though the job was not to end.
    pub(super) stopped_unasked: bool,
}

/// What a worker is doing, as far as the coordinator knows.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// It has promised to accept nothing old and waits for a `Form`.
    Quiet(Standing),
    /// It was sent a `Form`, or came while training.
    Called,
    /// Its links are made.
    Ready,
    /// It has applied the last update.
    Finished(Ending),
    /// It is no member yet, and comes to the state while the others train.
    Joining(Standing),
    /// The trailer that switched to this generation has left it out; it goes once no member needs it any more.
    Left(Generation, Standing),
}

/// What a worker ended with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ending {
    pub(super) step: Step,
    pub(super) hash: StateHash,
    pub(super) results: Vec<(String, f64)>,
    /// Gradients it had computed of a step that the job did not come to: it stopped where others were missing.
    pub(super) in_vain: u32,
}

impl Ending {
    pub(super) fn of(step: Step, hash: StateHash, results: Vec<(String, f64)>, tally: Tally) -> Self {
        let in_vain = tally.computed_in(step);
        Self {
            step,
            hash,
            results,
            in_vain,
        }
    }

    /// Equal to the bit (NaN included).
    pub(super) fn same_bits<'a>(&'a self, other: &'a Self) -> bool {
        let bits = |ending: &'a Self| ending.results.iter().map(|(name, value)| (name, value.to_bits()));
        self.step == other.step && self.hash == other.hash && bits(self).eq(bits(other))
    }
}

impl Record {
    /// Of the worker that comes as the `number`th.
    pub(super) fn new(arrival: &Arrival, number: u64, place: Place, now: Duration) -> Self {
        Self {
            arrival: number,
            address: arrival.address,
            capacity: arrival.capacity,
            memory: arrival.memory,
            host_hash: arrival.host_hash,
            on_device: arrival.on_device,
            cannot_share: None,
            measured: None,
            rank: None,
            place,
            leaving: None,
            computed: arrival.introduction.standing.tally.total,
            heard: now,
            pulse: Pulse::default(),
            work: Work::at(now),
            links: LinksTold::default(),
            asked: now,
            ahead: None,
            stopped: None,
            stopped_unasked: false,
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Since when it is to leave, if it is.
    pub(super) fn leaving(&self) -> Option<Duration> {
        self.leaving
    }

    pub(super) fn quiet(&self) -> Option<&Standing> {
        match &self.place {
            Place::Quiet(standing) => Some(standing),
            Place::Called | Place::Ready | Place::Finished(_) | Place::Joining(_) | Place::Left(..) => None,
        }
    }

    pub(super) fn ending(&self) -> Option<&Ending> {
        match &self.place {
            Place::Finished(ending) => Some(ending),
            Place::Quiet(_) | Place::Called | Place::Ready | Place::Joining(_) | Place::Left(..) => None,
        }
    }

    /// Whether it is no member yet, and comes to the state while the others train.
    pub(super) fn joins(&self) -> bool {
        matches!(self.place, Place::Joining(_))
    }

    /// Whether it must halt before another generation is formed.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.place, Place::Called | Place::Ready | Place::Finished(_))
    }

    /// Where it stands, if it stands still.
    pub(super) fn standing(&self) -> Option<&Standing> {
        match &self.place {
            Place::Quiet(standing) | Place::Left(_, standing) | Place::Joining(standing) => Some(standing),
            Place::Called | Place::Ready | Place::Finished(_) => None,
        }
    }

    /// What it has computed, if it stands still.
    pub(super) fn tally(&self) -> Option<Tally> {
        self.standing().map(|standing| standing.tally)
    }

    /// How fast it computes, if it has told.
    pub(super) fn pace(&self) -> Option<Pace> {
        self.measured.map(Measured::pace)
    }

    pub(super) fn is_called(&self) -> bool {
        matches!(self.place, Place::Called)
    }

    /// Survivors keep their order, newcomers follow in order of arrival.
    pub(super) fn order(&self, worker: WorkerId) -> (bool, Option<Rank>, u64, WorkerId) {
        (self.rank.is_none(), self.rank, self.arrival, worker)
    }
}

/// All workers that are known. The records are looked at as in any map; places change only here, so that how many there are of each kind is
/// known.
#[derive(Debug, Default)]
pub(super) struct Roster {
    records: BTreeMap<WorkerId, Record>,
    census: Census,
    quiet: BTreeSet<WorkerId>,
    joining: BTreeSet<WorkerId>,
    leaving: BTreeSet<WorkerId>,
    /// With the states at which steps workers have finished, and how many with each.
    ends: BTreeMap<Step, usize>,
    /// Whether a worker came, went, or changed its place since that was asked last.
    has_changed: bool,
    #[cfg(test)]
    visited: std::cell::Cell<usize>,
}

/// How many there are of some kinds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) quiet: usize,
    pub(super) busy: usize,
    pub(super) called: usize,
    pub(super) finished: usize,
    /// Shards that the quiet workers can be given, whichever of them is the first: which may be more.
    pub(super) room: u64,
}

impl Census {
    fn add(&mut self, record: &Record) {
        let quiet = record.quiet().is_some();
        self.quiet += usize::from(quiet);
        self.busy += usize::from(record.is_busy());
        self.called += usize::from(record.is_called());
        self.finished += usize::from(record.ending().is_some());
        self.room += if quiet {
            u64::from(record.capacity.min(record.memory.pieces()))
        } else {
            0
        };
    }

    fn take(&mut self, record: &Record) {
        let mut of_it = Self::default();
        of_it.add(record);
        self.quiet -= of_it.quiet;
        self.busy -= of_it.busy;
        self.called -= of_it.called;
        self.finished -= of_it.finished;
        self.room -= of_it.room;
    }
}

impl Deref for Roster {
    type Target = BTreeMap<WorkerId, Record>;

    fn deref(&self) -> &Self::Target {
        self.visit(1);
        &self.records
    }
}

impl Roster {
    /// So many records are looked at.
    fn visit(&self, records: usize) {
        #[cfg(test)]
        self.visited.set(self.visited.get() + records);
        #[cfg(not(test))]
        let _ = records;
    }

    /// How many records were looked at, since this was asked last.
    #[cfg(test)]
    pub(super) fn take_visited(&self) -> usize {
        self.visited.take()
    }

    pub(super) fn census(&self) -> Census {
        self.census
    }

    pub(super) fn iter(&self) -> btree_map::Iter<'_, WorkerId, Record> {
        self.visit(self.records.len());
        self.records.iter()
    }

    pub(super) fn keys(&self) -> btree_map::Keys<'_, WorkerId, Record> {
        self.visit(self.records.len());
        self.records.keys()
    }

    pub(super) fn values(&self) -> btree_map::Values<'_, WorkerId, Record> {
        self.visit(self.records.len());
        self.records.values()
    }

    fn among<'a>(&'a self, some: &'a BTreeSet<WorkerId>) -> impl Iterator<Item = (WorkerId, &'a Record)> {
        some.iter().filter_map(|&worker| {
            self.visit(1);
            Some((worker, self.records.get(&worker)?))
        })
    }

    /// The workers that have halted, or have nothing to halt.
    pub(super) fn quiet(&self) -> impl Iterator<Item = (WorkerId, &Record)> {
        self.among(&self.quiet)
    }

    /// The joiners.
    pub(super) fn joining(&self) -> impl Iterator<Item = (WorkerId, &Record)> {
        self.among(&self.joining)
    }

    /// The workers that are to leave.
    pub(super) fn leaving(&self) -> impl Iterator<Item = (WorkerId, &Record)> {
        self.among(&self.leaving)
    }

    pub(super) fn are_some_leaving(&self) -> bool {
        self.are_leaving(1)
    }

    /// Whether at least so many leave; without a look at any.
    pub(super) fn are_leaving(&self, least: usize) -> bool {
        self.leaving.len() >= least
    }

    fn count(&mut self, record: &Record) {
        self.has_changed = true;
        self.census.add(record);
        if let Some(ending) = record.ending() {
            *self.ends.entry(ending.step).or_default() += 1;
        }
    }

    fn discount(&mut self, record: &Record) {
        self.has_changed = true;
        self.census.take(record);
        if let Some(ending) = record.ending()
            && let Some(many) = self.ends.get_mut(&ending.step)
        {
            *many -= 1;
            self.ends.retain(|_, many| *many > 0);
        }
    }

    /// With the states at which steps workers have finished.
    pub(super) fn ends(&self) -> impl Iterator<Item = Step> {
        self.ends.keys().copied()
    }

    /// Whether a worker came, went, or changed its place since this was asked last.
    pub(super) fn is_news(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// A record, but for its place.
    pub(super) fn get_mut(&mut self, worker: &WorkerId) -> Option<&mut Record> {
        self.records.get_mut(worker)
    }

    /// All records, but for their places.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Record> {
        self.visit(self.records.len());
        self.records.values_mut()
    }

    pub(super) fn insert(&mut self, worker: WorkerId, record: Record) {
        self.remove(&worker);
        self.count(&record);
        self.list(worker, &record);
        self.records.insert(worker, record);
    }

    pub(super) fn remove(&mut self, worker: &WorkerId) -> Option<Record> {
        let record = self.records.remove(worker)?;
        self.discount(&record);
        self.quiet.remove(worker);
        self.joining.remove(worker);
        self.leaving.remove(worker);
        Some(record)
    }

    /// From now on `worker` has this place.
    pub(super) fn put(&mut self, worker: WorkerId, place: Place) {
        let Some(mut record) = self.records.remove(&worker) else {
            return;
        };
        self.discount(&record);
        record.place = place;
        self.count(&record);
        self.list(worker, &record);
        self.records.insert(worker, record);
    }

    /// Among those that are looked at without all others, or not.
    fn list(&mut self, worker: WorkerId, record: &Record) {
        for (is_one, list) in [
            (record.quiet().is_some(), &mut self.quiet),
            (record.joins(), &mut self.joining),
        ] {
            if is_one {
                list.insert(worker);
            } else {
                list.remove(&worker);
            }
        }
    }

    /// `worker` is to leave. False if it is not there, or was to leave before.
    pub(super) fn leave(&mut self, worker: WorkerId, now: Duration) -> bool {
        let Some(record) = self.records.get_mut(&worker).filter(|record| record.leaving.is_none()) else {
            return false;
        };
        record.leaving = Some(now);
        self.leaving.insert(worker);
        true
    }
}
