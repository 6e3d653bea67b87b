//! Which sample is decoded next, which shards are held, and when the memory is full. No threads and no decoding.

use std::collections::VecDeque;

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
    /// By place: most come at the end and go at the beginning.
    shards: VecDeque<Waiting<T>>,
    /// Those that have samples to be given out, by place: one in most cases.
    open: Vec<Place>,
    /// Memory of shards that wait no more, for others: all of it, so that none is allocated where as many have waited before.
    spent: Vec<Room<T>>,
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

/// The samples of a shard that waits: those that are decoded.
type Samples<T> = Vec<Option<Result<T, DataError>>>;

/// The memory of a shard that waits: of the numbers of its samples, and of the samples.
type Room<T> = (Vec<u64>, Samples<T>);

/// A shard that waits or is being decoded.
#[derive(Debug)]
struct Waiting<T> {
    shard: Shard,
    round: u64,
    samples: Samples<T>,
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
            shards: VecDeque::new(),
            open: Vec::new(),
            spent: Vec::new(),
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

    /// How many shards wait or are being decoded.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.shards.len()
    }

    /// From now on these shards are needed, and no others.
    pub(super) fn plan(&mut self, coming: Coming) {
        let goes_on = |old: &Coming| old.shards() == coming.shards() && old.step() <= coming.step();
        let goes_on = self.coming.as_ref().is_some_and(goes_on);
        if goes_on && self.coming.as_ref().is_some_and(|old| old.end() == coming.end()) {
            // As after nearly every step: only what is past is looked at, since a great many may wait.
            while self.shards.front().is_some_and(|first| first.shard.step() < coming.step())
                && let Some(past) = self.shards.pop_front()
            {
                self.let_go(past);
            }
        } else {
            let held = &mut self.held;
            self.shards.retain(|waiting| {
                let needed = coming.has(waiting.shard.step(), waiting.shard.index());
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
        match self.find(place) {
            Ok(at) if self.shards[at].shard == *shard => {}
            found => {
                // Of another job's data order: nothing of it can be used.
                if let Some(stale) = found.ok().and_then(|at| self.shards.remove(at)) {
                    self.let_go(stale);
                }
                self.begin(place, |numbers| shard.clone_in(numbers));
            }
        }
        self.needed = Some(place);
    }

    /// Where the shard of this place is, or belongs.
    fn find(&self, place: Place) -> Result<usize, usize> {
        self.shards
            .binary_search_by_key(&place, |waiting| self::place(&waiting.shard))
    }

    /// Begins the shard of this place, made in the memory that `shard` is given, which is not there yet. One without samples is not waited for.
    fn begin(&mut self, place: Place, shard: impl FnOnce(Vec<u64>) -> Shard) {
        let (numbers, mut samples) = self.spent.pop().unwrap_or_default();
        let shard = shard(numbers);
        if shard.is_empty() {
            return self.spent.push((shard.into_room(), samples));
        }
        let missing = shard.samples().len();
        samples.resize_with(missing, || None);
        self.rounds += 1;
        let waiting = Waiting {
            shard,
            round: self.rounds,
            samples,
            given: 0,
            missing,
            bytes: 0,
        };
        let at = self.shards.partition_point(|other| self::place(&other.shard) < place);
        self.shards.insert(at, waiting);
        let at = self.open.partition_point(|other| *other < place);
        self.open.insert(at, place);
    }

    /// This shard waits no more: its memory is for others.
    fn let_go(&mut self, waiting: Waiting<T>) {
        let Waiting {
            shard,
            mut samples,
            bytes,
            ..
        } = waiting;
        self.held -= bytes;
        self.open.retain(|open| *open != place(&shard));
        samples.clear();
        self.spent.push((shard.into_room(), samples));
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
            // Nothing of it is allocated.
            let coming = self.coming.clone()?;
            let (step, shard) = coming.place_from(self.next.0, self.next.1)?;
            self.next = (step, shard + 1);
            if self.find((step, shard)).is_err() {
                self.begin((step, shard), |numbers| coming.shard_in(step, shard, numbers));
            }
        }
    }

    fn give(&mut self, place: Place) -> Option<Ticket> {
        let ticket = self.find(place).ok().and_then(|at| self.shards[at].ticket());
        match &ticket {
            Some(_) => self.away += 1,
            None => self.open.retain(|open| *open != place),
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
        let found = self.find(ticket.place).ok().map(|at| &mut self.shards[at]);
        if let Some(waiting) = found.filter(|waiting| waiting.round == ticket.round) {
            waiting.samples[ticket.at] = Some(sample);
            waiting.missing -= 1;
            waiting.bytes += bytes;
            self.held += bytes;
        }
    }

    /// Adds all samples of `shard` to `to`, or those before one that cannot be read, once they are there.
    pub(super) fn take(&mut self, shard: &Shard, to: &mut Vec<T>) -> Option<Result<(), DataError>> {
        let place = place(shard);
        let at = self.find(place).ok()?;
        if self.shards[at].missing > 0 {
            return None;
        }
        let mut waiting = self.shards.remove(at)?;
        let mut samples = waiting.samples.drain(..).flatten();
        let taken = samples.try_for_each(|sample| sample.map(|sample| to.push(sample)));
        drop(samples);
        self.let_go(waiting);
        if self.needed == Some(place) {
            self.needed = None;
        }
        // What was taken is not decoded ahead once more.
        if self.coming.as_ref().is_some_and(|coming| coming.has(place.0, place.1)) {
            self.next = self.next.max((place.0, place.1 + 1));
        }
        Some(taken)
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
