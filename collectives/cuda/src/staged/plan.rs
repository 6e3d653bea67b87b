//! In which order chunks of a running sum come to a device, are added to, and go. Pure: knows no device, no link, and no value.

use std::num::NonZeroUsize;
use std::ops::Range;

/// Where a rank is visited by the running sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// By nothing: its first shard begins the sum.
    First,
    /// By a sum that goes on to another rank.
    Middle,
    /// Last: the sum is finished here, stays on the device, and goes back to the others.
    Closer,
    /// There is no other rank: the sum begins and ends here.
    Alone,
}

/// Where a shard's gradient lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the device's memory.
    Device,
    /// In pinned memory of the host, since the device had no room for it.
    Spilled,
}

/// Of so many shards with gradients of `bytes` bytes each, those that `room` bytes of the device hold stay there; the later ones are spilled.
#[must_use]
pub fn places(shards: usize, bytes: u64, room: u64) -> Vec<Place> {
    let fit = room
        .checked_div(bytes)
        .map_or(shards, |fit| usize::try_from(fit).unwrap_or(usize::MAX));
    let place = |shard| if shard < fit { Place::Device } else { Place::Spilled };
    (0..shards).map(place).collect()
}

/// A rank's part in one sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// Where it comes in the order of ranks.
    pub role: Role,
    /// Its shards, in their order.
    pub shards: Vec<Place>,
    /// Elements of a gradient.
    pub elements: usize,
    /// Elements of a chunk.
    pub chunk: NonZeroUsize,
    /// Chunks that may be under way at once: each has a buffer of pinned memory.
    pub slots: NonZeroUsize,
}

/// What is done next. What concerns the device is enqueued on the stream of copies, in this order; the host goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// From here on the stream of copies waits until this shard's gradient is computed.
    Await {
        /// One on the device.
        shard: usize,
    },
    /// The host waits until the slot is free, and puts these elements of the running sum there, once they have come.
    Receive {
        /// The elements.
        range: Range<usize>,
        /// The buffer.
        slot: usize,
    },
    /// The slot's elements become the sum's.
    Raise {
        /// The elements.
        range: Range<usize>,
        /// The buffer.
        slot: usize,
    },
    /// The sum begins: it becomes what `shards` add up to, all of which are on the device. The first is copied, bit for bit.
    Begin {
        /// The elements.
        range: Range<usize>,
        /// One or more.
        shards: Range<usize>,
    },
    /// The sum begins with a shard that comes up, bit for bit.
    BeginSpilled {
        /// The elements.
        range: Range<usize>,
        /// A spilled one.
        shard: usize,
    },
    /// These shards, all on the device, are added to the sum, one after the other.
    Add {
        /// The elements.
        range: Range<usize>,
        /// One or more.
        shards: Range<usize>,
    },
    /// A shard comes up, and is added to the sum.
    AddSpilled {
        /// The elements.
        range: Range<usize>,
        /// A spilled one.
        shard: usize,
    },
    /// The sum's elements go to the slot.
    Lower {
        /// The elements.
        range: Range<usize>,
        /// The buffer.
        slot: usize,
    },
    /// The host waits until they are there, and sends them on.
    Deliver {
        /// The elements.
        range: Range<usize>,
        /// The buffer.
        slot: usize,
    },
    /// From here on the stream of computing waits for all of this: the gradients may be freed, and a sum that stays may be used.
    Release,
}

impl Visit {
    /// What this rank does when the running sum comes by. Nothing where it has no shard: no sum comes there.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.shards.is_empty() {
            return steps;
        }
        let chunks = self.chunks();
        let sends = self.role != Role::Alone;
        for (number, (range, slot)) in chunks.iter().enumerate() {
            if let Some(before) = number.checked_sub(self.slots.get()).filter(|_| sends) {
                steps.push(deliver(&chunks[before]));
            }
            let first = self.begin(&mut steps, range, *slot, number == 0);
            self.add(&mut steps, range, first, number == 0);
            if sends {
                steps.push(Step::Lower {
                    range: range.clone(),
                    slot: *slot,
                });
            }
        }
        let under_way = chunks.len().saturating_sub(self.slots.get());
        steps.extend(chunks[under_way..].iter().filter(|_| sends).map(deliver));
        steps.push(Step::Release);
        steps
    }

    /// What this rank does with the finished sum, once that comes back: up, and no more. A closer has it.
    #[must_use]
    pub fn landing(&self) -> Vec<Step> {
        let comes = match self.role {
            Role::First | Role::Middle => true,
            Role::Closer | Role::Alone => false,
        };
        let mut steps = Vec::new();
        for (range, slot) in self.chunks().into_iter().filter(|_| comes) {
            steps.push(Step::Receive {
                range: range.clone(),
                slot,
            });
            steps.push(Step::Raise { range, slot });
        }
        steps.push(Step::Release);
        steps
    }

    /// The sum as it comes, or as this rank begins it. Returns the first shard that is still to be added.
    fn begin(&self, steps: &mut Vec<Step>, range: &Range<usize>, slot: usize, is_first_chunk: bool) -> usize {
        let range = range.clone();
        match self.role {
            Role::Middle | Role::Closer => {
                steps.push(Step::Receive {
                    range: range.clone(),
                    slot,
                });
                steps.push(Step::Raise { range, slot });
                0
            }
            Role::First | Role::Alone if self.shards[0] == Place::Spilled => {
                steps.push(Step::BeginSpilled { range, shard: 0 });
                1
            }
            Role::First | Role::Alone => {
                let shards = self.run_from(0);
                self.await_all(steps, &shards, is_first_chunk);
                let next = shards.end;
                steps.push(Step::Begin { range, shards });
                next
            }
        }
    }

    fn add(&self, steps: &mut Vec<Step>, range: &Range<usize>, first: usize, is_first_chunk: bool) {
        let mut shard = first;
        while shard < self.shards.len() {
            let range = range.clone();
            if self.shards[shard] == Place::Spilled {
                steps.push(Step::AddSpilled { range, shard });
                shard += 1;
            } else {
                let shards = self.run_from(shard);
                shard = shards.end;
                self.await_all(steps, &shards, is_first_chunk);
                steps.push(Step::Add { range, shards });
            }
        }
    }

    /// What is awaited once need not be awaited again.
    fn await_all(&self, steps: &mut Vec<Step>, shards: &Range<usize>, is_first_chunk: bool) {
        steps.extend(shards.clone().filter(|_| is_first_chunk).map(|shard| Step::Await { shard }));
    }

    /// From this shard on all that are on the device, up to one that is not.
    fn run_from(&self, first: usize) -> Range<usize> {
        let run = self.shards[first..].iter().take_while(|place| **place == Place::Device);
        first..first + run.count()
    }

    /// The elements in chunks, in turn through the slots.
    fn chunks(&self) -> Vec<(Range<usize>, usize)> {
        let range = |start: usize| start..self.elements.min(start.saturating_add(self.chunk.get()));
        let starts = (0..self.elements).step_by(self.chunk.get()).enumerate();
        starts.map(|(number, start)| (range(start), number % self.slots)).collect()
    }

    /// Bytes that go down to the host and come up from it, for gradients of `gradient` bytes: of the sum as it passes and comes back, and of
    /// shards that are spilled and come up again. Down first.
    #[must_use]
    pub fn bytes(&self, gradient: u64) -> [u64; 2] {
        let spilled = self.shards.iter().filter(|place| **place == Place::Spilled).count() as u64;
        let [down, up] = match self.role {
            Role::First | Role::Closer => [1, 1],
            Role::Middle => [1, 2],
            Role::Alone => [0, 0],
        };
        [(down + spilled) * gradient, (up + spilled) * gradient]
    }
}

fn deliver((range, slot): &(Range<usize>, usize)) -> Step {
    Step::Deliver {
        range: range.clone(),
        slot: *slot,
    }
}
