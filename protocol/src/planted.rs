//! Bugs to be found. A simulator that finds nothing may only be blind: with the feature `planted-bugs` one of these can be let loose,
//! and must be found. Without it, which is how everything ships, none of them can bite: the question is a constant `false`.

#[cfg(feature = "planted-bugs")]
use std::cell::Cell;

/// A bug, and where it bites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A worker halts, and promises, for a generation older than it has promised already.
    OldHalt,
    /// A `Halt` that is said again is not answered again.
    HaltedOnce,
    /// `Halted` is said while an update is under way.
    HaltedTooEarly,
    /// Steady ranges overlap by a shard.
    OverlappingShards,
    /// A member that is one step behind need not catch up.
    StaleMember,
    /// The job is done before all have said so.
    DoneTooEarly,
    /// After a restart the coordinator counts on from the generations of its last life.
    ReusedGeneration,
    /// A generation is adopted though its ring is broken.
    BrokenRingAdopted,
    /// A piece is offered before its last shard is computed.
    PieceTooEarly,
    /// A generation starts from the oldest state that is there, not from the newest.
    OldestState,
    /// A snapshot is told as that of the step before.
    SnapshotOfAnotherStep,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::OldHalt,
        Self::HaltedOnce,
        Self::HaltedTooEarly,
        Self::OverlappingShards,
        Self::StaleMember,
        Self::DoneTooEarly,
        Self::ReusedGeneration,
        Self::BrokenRingAdopted,
        Self::PieceTooEarly,
        Self::OldestState,
        Self::SnapshotOfAnotherStep,
    ];
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static LOOSE: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Lets a bug loose in the machines of this thread, or none. Called by a simulator.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    LOOSE.set(bug);
}

/// Whether this bug is loose.
#[cfg(feature = "planted-bugs")]
pub(crate) fn bites(bug: Bug) -> bool {
    LOOSE.get() == Some(bug)
}

/// No bug is.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn bites(_: Bug) -> bool {
    false
}
