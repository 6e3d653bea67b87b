//! Which sample is decoded next, which shards are held, and when the memory is full. No threads and no decoding.

use std::collections::{BTreeMap, BTreeSet};

use sardana_protocol::words::Step;

use crate::{Coming, DataError, SampleRandom, Shard};

/// A shard of a step.
type Place = (Step, u32);

/// One sample to be decoded.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    place: Place,
    at: usize,
    /// Which of several tries of this shard it is of.
    round: u64,
    pub(super) sample: u64,
    pub(super) random: SampleRandom,
}

/// The shards that wait or are being decoded.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// Bytes that may wait.
    most: usize,
    held: usize,
    /// What the next samples are reckoned at.
    sizes: Sizes,
    /// Samples given out and not back.
    away: usize,
    coming: Option<Coming>,
    /// Where the next shard of `coming` is looked for.
    next: Place,
    shards: BTreeMap<Place, Waiting<T>>,
    /// Those that have samples to be given out.
    open: BTreeSet<Place>,
    /// The shard that the training thread waits for: memory does not matter to it.
    needed: Option<Place>,
    rounds: u64,
    over: bool,
}

/// How large the samples are that were decoded last. Where their sizes differ, as those of pictures do, a small one must not let the
/// decoders begin more large ones than the memory has room for.
#[derive(Debug, Default)]
struct Sizes {
    /// The largest of the last [`Sizes::COUNT`] or fewer.
    recent: usize,
    /// How many these are.
    count: u32,
    /// The largest of as many before them.
    before: usize,
}

impl Sizes {
    /// A single large sample is remembered for as many others at least, and for twice as many at most.
    const COUNT: u32 = 256;

    fn add(&mut self, bytes: usize) {
        if self.count == Self::COUNT {
            *self = Self {
                before: self.recent,
                ..Self::default()
            };
        }
        self.recent = self.recent.max(bytes);
        self.count += 1;
    }

    /// 0 before the first.
    const fn largest(&self) -> usize {
        if self.recent > self.before { self.recent } else { self.before }
    }
}

/// A shard that waits or is being decoded.
#[derive(Debug)]
struct Waiting<T> {
    shard: Shard,
    round: u64,
    samples: Vec<Option<Result<T, DataError>>>,
    /// Samples before this one are given out.
    given: usize,
    missing: usize,
    bytes: usize,
}

impl<T> Queue<T> {
    /// With room for `most` bytes that wait.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            held: 0,
            sizes: Sizes::default(),
            away: 0,
            coming: None,
            next: (Step::ZERO, 0),
            shards: BTreeMap::new(),
            open: BTreeSet::new(),
            needed: None,
            rounds: 0,
            over: false,
        }
    }

    /// From now on so many bytes may wait.
    pub(super) fn hold_at_most(&mut self, bytes: usize) {
        self.most = bytes;
    }

    pub(super) const fn most_bytes(&self) -> usize {
        self.most
    }

    /// Nothing more is decoded.
    pub(super) fn end(&mut self) {
        self.over = true;
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.held
    }

    /// From now on these shards are needed, and no others.
    pub(super) fn plan(&mut self, coming: Coming) {
        let goes_on = |old: &Coming| old.shards() == coming.shards() && old.step() <= coming.step();
        let goes_on = self.coming.as_ref().is_some_and(goes_on);
        if goes_on && self.coming.as_ref().is_some_and(|old| old.end() == coming.end()) {
            // As after nearly every step: only what is past is looked at, since a great many may wait.
            while let Some(first) = self.shards.first_entry().filter(|first| first.key().0 < coming.step()) {
                self.held -= first.remove().bytes;
            }
            while self.open.first().is_some_and(|first| first.0 < coming.step()) {
                self.open.pop_first();
            }
        } else {
            let held = &mut self.held;
            self.shards.retain(|&(step, shard), waiting| {
                let needed = coming.has(step, shard);
                *held -= if needed { 0 } else { waiting.bytes };
                needed
            });
            self.open.retain(|&(step, shard)| coming.has(step, shard));
        }
        if !goes_on || self.next.0 < coming.step() {
            // Of the step under way some shards may be computed already: those that are not will be asked for.
            self.next = (coming.step().next(), 0);
        }
        self.coming = Some(coming);
    }

    /// This shard is needed now, whatever is planned and however much is held.
    pub(super) fn need(&mut self, shard: &Shard) {
        let place = place(shard);
        if self.shards.get(&place).is_some_and(|waiting| waiting.shard != *shard) {
            // Of another job's data order: nothing of it can be used.
            let stale = self.shards.remove(&place);
            self.held -= stale.map_or(0, |waiting| waiting.bytes);
        }
        if !self.shards.contains_key(&place) {
            self.begin(shard.clone());
        }
        self.needed = Some(place);
    }

    fn begin(&mut self, shard: Shard) {
        self.rounds += 1;
        let (place, count) = (place(&shard), shard.samples().len());
        let waiting = Waiting {
            round: self.rounds,
            samples: (0..count).map(|_| None).collect(),
            given: 0,
            missing: count,
            bytes: 0,
            shard,
        };
        self.shards.insert(place, waiting);
        self.open.insert(place);
    }

    /// The next sample of `shard`, if one is left to be given out.
    pub(super) fn ticket_of(&mut self, shard: &Shard) -> Option<Ticket> {
        self.give(place(shard))
    }

    /// The next sample to be decoded: of the shard that is waited for, or, while there is memory, of those that come.
    pub(super) fn ticket(&mut self) -> Option<Ticket> {
        if let Some(ticket) = self.needed.and_then(|place| self.give(place)) {
            return Some(ticket);
        }
        loop {
            let largest = self.sizes.largest();
            let reckoned = self.held + (self.away + 1) * largest;
            // The first sample says how large they are.
            if reckoned > self.most || (largest == 0 && self.away > 0) {
                return None;
            }
            if let Some(&first) = self.open.first() {
                match self.give(first) {
                    Some(ticket) => return Some(ticket),
                    None => continue,
                }
            }
            let (step, shard) = self.next;
            let next = self.coming.as_ref()?.from(step, shard)?;
            self.next = (next.step(), next.index() + 1);
            if !self.shards.contains_key(&place(&next)) {
                self.begin(next);
            }
        }
    }

    fn give(&mut self, place: Place) -> Option<Ticket> {
        let ticket = self.shards.get_mut(&place).and_then(Waiting::ticket);
        match &ticket {
            Some(_) => self.away += 1,
            None => {
                self.open.remove(&place);
            }
        }
        ticket
    }

    /// A sample is decoded, or cannot be.
    pub(super) fn done(&mut self, ticket: &Ticket, sample: Result<T, DataError>, bytes: usize) {
        // What is kept of a sample beside what it holds itself.
        let bytes = bytes + size_of::<Option<Result<T, DataError>>>() + size_of::<u64>();
        self.away -= 1;
        self.sizes.add(bytes);
        // Its shard may have been dropped meanwhile, or be tried anew.
        let waiting = self
            .shards
            .get_mut(&ticket.place)
            .filter(|waiting| waiting.round == ticket.round);
        if let Some(waiting) = waiting {
            waiting.samples[ticket.at] = Some(sample);
            waiting.missing -= 1;
            waiting.bytes += bytes;
            self.held += bytes;
        }
    }

    /// All samples of `shard`, once they are there.
    pub(super) fn take(&mut self, shard: &Shard) -> Option<impl Iterator<Item = Result<T, DataError>> + use<T>> {
        let place = place(shard);
        if self.shards.get(&place)?.missing > 0 {
            return None;
        }
        let waiting = self.shards.remove(&place)?;
        self.open.remove(&place);
        self.held -= waiting.bytes;
        if self.needed == Some(place) {
            self.needed = None;
        }
        // What was taken is not decoded ahead once more.
        if self.coming.as_ref().is_some_and(|coming| coming.has(place.0, place.1)) {
            self.next = self.next.max((place.0, place.1 + 1));
        }
        Some(waiting.samples.into_iter().flatten())
    }
}

fn place(shard: &Shard) -> Place {
    (shard.step(), shard.index())
}

impl<T> Waiting<T> {
    fn ticket(&mut self) -> Option<Ticket> {
        let at = self.given;
        let &sample = self.shard.samples().get(at)?;
        self.given += 1;
        Some(Ticket {
            place: place(&self.shard),
            at,
            round: self.round,
            sample,
            random: self.shard.sample_random(at),
        })
    }
}
