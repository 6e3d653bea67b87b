//! The glossary as types: one meaning each, private fields, no silent conversion between them.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Values that print for a debugger as they do for people: they are short.
macro_rules! debug_as_display {
    ($($name:ty),+) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        })+
    };
}
pub(crate) use debug_as_display;

/// A number that is drawn at random, and prints in hexadecimal.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(u64);

        impl $name {
            /// The one with this number.
            #[must_use]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:016x}"), self.0)
            }
        }

        $crate::words::debug_as_display!($name);
    };
}
pub(crate) use id;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name($inner);

        impl $name {
            /// The first one.
            pub const ZERO: Self = Self(0);

            /// Names the number `value`.
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The one after this. The last number of the type, which no run reaches, is its own: no peer's word can end this process.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// The one before this; none before the first.
            #[must_use]
            pub fn previous(self) -> Option<Self> {
                self.0.checked_sub(1).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        debug_as_display!($name);
    };
}

number!(
    /// One optimizer update. "State at step s" has had s updates.
    Step(u64), "s"
);
number!(
    /// A worker's place in the ring of one generation, `0..world_size`. Rank 0 is what others call the chief.
    Rank(u32), "r"
);
number!(
    /// One life of the coordinator; it fences every older one.
    Incarnation(u64), "i"
);

impl Rank {
    /// The rank of the member at `index` of a list of members.
    #[must_use]
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// This rank as an index into a list of members.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One agreed membership: which workers, in which order, with which shards, from which step. It only grows (GEN-1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Generation {
    incarnation: Incarnation,
    count: u64,
}

impl Generation {
    /// Before the first generation of any coordinator.
    pub const NONE: Self = Self {
        incarnation: Incarnation::ZERO,
        count: 0,
    };

    /// The generation `count` of the coordinator's life `incarnation`.
    #[must_use]
    pub const fn new(incarnation: Incarnation, count: u64) -> Self {
        Self { incarnation, count }
    }

    /// The coordinator's life that formed it.
    #[must_use]
    pub const fn incarnation(self) -> Incarnation {
        self.incarnation
    }

    /// Its number within that life.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.count
    }

    /// The generation after this one, of the same incarnation. A coordinator counts its own alone, so that 2⁶⁴ are not reached.
    #[must_use]
    pub const fn next(self) -> Self {
        Self {
            incarnation: self.incarnation,
            count: self.count.saturating_add(1),
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}.{}", self.incarnation.get(), self.count)
    }
}

id!(
    /// A process that computes shards. The id is new with every incarnation of the process: the agent, or the person, that starts it draws it
    /// at random.
    WorkerId, "w"
);

/// One training run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId([u8; 16]);

impl JobId {
    /// The job with these bytes, drawn at random when it is started.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bare bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A contiguous range of shards, `start..end`. May be empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct ShardRange {
    start: u32,
    end: u32,
}

/// A shard range whose end lies before its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a shard range cannot end at {end}, before its start {start}")]
pub struct BackwardsRange {
    start: u32,
    end: u32,
}

impl ShardRange {
    /// The shards `start..end`.
    ///
    /// # Panics
    /// When `end < start`. For values that came from outside use `TryFrom`.
    #[must_use]
    pub fn new(start: u32, end: u32) -> Self {
        assert!(start <= end, "a shard range does not run backwards: {start}..{end}");
        Self { start, end }
    }

    /// The one shard `shard`.
    #[must_use]
    pub fn one(shard: u32) -> Self {
        Self::new(shard, shard + 1)
    }

    /// The first shard.
    #[must_use]
    pub const fn start(self) -> u32 {
        self.start
    }

    /// The shard after the last.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.end
    }

    /// How many shards.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.end - self.start
    }

    /// Whether it holds no shard.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether it holds `shard`.
    #[must_use]
    pub const fn contains(self, shard: u32) -> bool {
        self.start <= shard && shard < self.end
    }

    /// Whether it holds every shard of `other`.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// The shards in order.
    #[must_use]
    pub fn iter(self) -> Range<u32> {
        self.start..self.end
    }
}

impl TryFrom<(u32, u32)> for ShardRange {
    type Error = BackwardsRange;

    fn try_from((start, end): (u32, u32)) -> Result<Self, BackwardsRange> {
        if start <= end {
            Ok(Self { start, end })
        } else {
            Err(BackwardsRange { start, end })
        }
    }
}

impl From<ShardRange> for (u32, u32) {
    fn from(range: ShardRange) -> Self {
        (range.start, range.end)
    }
}

impl fmt::Display for ShardRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// How long a worker takes for the gradient of one shard, waiting not counted. In microseconds: what is faster counts as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pace(NonZeroU32);

impl Pace {
    /// So long for each shard; what takes longer than an hour counts as about one.
    #[must_use]
    pub fn new(each: Duration) -> Self {
        let micros = u32::try_from(each.as_micros()).unwrap_or(u32::MAX);
        Self(NonZeroU32::new(micros).unwrap_or(NonZeroU32::MIN))
    }

    /// How long one shard takes.
    #[must_use]
    pub const fn each(self) -> Duration {
        self.of(1)
    }

    /// How long so many shards take.
    #[must_use]
    pub const fn of(self, shards: u32) -> Duration {
        // The product of two u32 fits.
        Duration::from_micros(self.0.get() as u64 * shards as u64)
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} a shard", self.each())
    }
}

debug_as_display!(Generation, JobId, ShardRange, Pace);

/// How many there are, in words: `1 worker`, `2 workers`.
#[must_use]
pub fn count<N: fmt::Display + PartialEq + From<u8>>(number: N, one: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {one}{plural}")
}

/// The first few of these, and how many more there are: a line that named all of them would grow with the job.
#[must_use]
pub fn few<T: fmt::Display>(these: &[T], between: &str) -> String {
    const SHOWN: usize = 8;
    let more = these.len().saturating_sub(SHOWN);
    let shown = these.iter().take(SHOWN).map(ToString::to_string);
    let words: Vec<String> = shown.chain((more > 0).then(|| format!("and {more} more"))).collect();
    words.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_print_short() {
        assert_eq!(Step::new(1200).to_string(), "s1200");
        assert_eq!(Rank::new(3).to_string(), "r3");
        assert_eq!(Generation::new(Incarnation::new(1), 7).to_string(), "g1.7");
        assert_eq!(ShardRange::new(2, 5).to_string(), "2..5");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!(
            [count(0_u32, "worker"), count(1_u64, "worker"), count(2_usize, "worker")],
            ["0 workers", "1 worker", "2 workers"]
        );
    }

    #[test]
    fn of_many_a_few_are_named() {
        assert_eq!([few(&[7; 0], " "), few(&[7; 8], " ")], ["", "7 7 7 7 7 7 7 7"]);
        assert_eq!(few(&[7; 1_024], ", "), "7, 7, 7, 7, 7, 7, 7, 7, and 1016 more");
    }

    #[test]
    fn a_newer_incarnation_outranks_any_count() {
        assert!(Generation::new(Incarnation::new(2), 1) > Generation::new(Incarnation::new(1), 900));
    }

    #[test]
    fn a_pace_is_never_nothing() {
        assert_eq!(Pace::new(Duration::ZERO).each(), Duration::from_micros(1));
        assert_eq!(Pace::new(Duration::from_micros(1_500)).of(4), Duration::from_millis(6));
        assert_eq!(Pace::new(Duration::MAX).of(u32::MAX).as_micros(), u128::from(u32::MAX).pow(2));
    }

    #[test]
    fn a_backwards_range_cannot_be_decoded() {
        assert!(ShardRange::try_from((3, 2)).is_err());
        assert_eq!(ShardRange::try_from((2, 3)), Ok(ShardRange::one(2)));
    }
}
