//! Bugs to be found. A simulator that finds nothing may only be blind: with the feature `planted-bugs` one of these can be let loose,
//! and must be found. Without it, which is how everything ships, none of them can bite: the question is a constant `false`.

#[cfg(feature = "planted-bugs")]
use std::cell::Cell;

use crate::job::JobKind;

macro_rules! bugs {
    ($($kind:ident { $($(#[doc = $what:literal])+ $bug:ident,)+ })+) => {
        /// A bug, and what is wrong then. Each is a slip that one could make in a line.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($($(#[doc = $what])+ $bug,)+)+
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$($(Self::$bug),+),+];

            /// What is wrong then, in a sentence.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self {
                    $($(Self::$bug => concat!($($what),+).trim_ascii(),)+)+
                }
            }

            /// In which kind of job it bites.
            #[must_use]
            pub const fn kind(self) -> JobKind {
                match self {
                    $($(Self::$bug)|+ => JobKind::$kind,)+
                }
            }
        }
    };
}

bugs! { Training {
    /// A worker halts, and promises, for a generation older than it has promised already.
    OldHalt,
    /// A `Halt` that is said again is not answered again.
    HaltedOnce,
    /// `Halted` is said while an update is under way.
    HaltedTooEarly,
    /// A worker keeps its seat in the generation that it has promised to leave.
    PromiseBroken,
    /// A `Form` of a generation older than what was promised is obeyed.
    OldForm,
    /// A member that switches to a generation has not promised to leave those before.
    SwitchNotPromised,
    /// A member that is one step behind need not catch up.
    StaleMember,
    /// In fast order all states of a step count as one.
    StatesAlike,
    /// In fast order a sum is added to another state than the one that it is of.
    OthersSum,
    /// A state that was copied counts as that of the next step.
    LoadedOneAhead,
    /// A joiner takes its seat one step before the others.
    StaleJoiner,
    /// A sum that comes while the one before is applied is not laid aside: it is asked for once more.
    AsideDropped,
    /// Gradients of the step before stay among those of the next.
    StaleGradients,
    /// A piece is offered before its last shard is computed.
    PieceTooEarly,
    /// Pieces that were complete before a halt are not offered to the next ring.
    KeptNotOffered,
    /// A piece that one ring was offered while it was computed is taken for offered by the next one.
    OfferedToAnotherRing,
    /// The last step is followed by one more.
    OneStepTooMany,
    /// A snapshot is told as that of the step before.
    SnapshotOfAnotherStep,
    /// Sums are kept for joiners without a bound.
    KeptWithoutBound,
    /// Ranges of shards overlap by one.
    OverlappingShards,
    /// Between two ranges a shard is missing.
    GapInShards,
    /// The job is done before all have said so.
    DoneTooEarly,
    /// After a restart the coordinator counts on from the generations of its last life.
    ReusedGeneration,
    /// A coordinator that starts again takes its last incarnation once more.
    ReusedIncarnation,
    /// A number that was given away to a planned generation is given to another.
    PlannedNumberReused,
    /// A generation is adopted though its ring is broken.
    BrokenRingAdopted,
    /// A coordinator that comes back begins anew without waiting for those who train.
    ImpatientReturn,
    /// A coordinator that comes back has forgotten what was counted.
    LedgerForgotten,
    /// A generation starts from the oldest state that is there, not from the newest.
    OldestState,
    /// The state is given up though its holders were only just cut off.
    HoldersNotAwaited,
    /// A `Halted` for an earlier halt counts for the present one.
    StaleHalted,
    /// The answer to a halt is not noted.
    HaltedForgotten,
    /// What was not answered is not said again.
    NothingResent,
    /// A sum is fetched from one who has the state, but not the sum.
    WrongDonor,
    /// A planned generation is switched to before all members are ready.
    SwitchedBeforeReady,
    /// A worker that leaves counts as one who keeps the state.
    LeaverCounts,
    /// A worker that was left out is let go before the others have begun without it.
    ReleasedTooEarly,
    /// A joiner that leaves is let go at once, though it may be the only one with a state.
    LoneJoinerReleased,
    /// A worker that was let go and comes back is not told again.
    ReleaseForgotten,
    /// A silent worker is left out although steps advance.
    SilentEvicted,
    /// A worker that hangs is waited for.
    HangingNotEvicted,
    /// What a worker moves of the state that it comes to is no progress.
    LoadingNotSeen,
    /// A member that has done its part and waits for another counts as one that hangs.
    WaitingCountsAsHanging,
    /// Where a member stood that still loads the state counts against those that have it.
    LoadersDisbelieve,
    /// Members compute anew what they have, although their memory holds it beside what is missing.
    KeptComputedAnew,
    /// A worker that is slow is given no more time than a fast one.
    PaceIgnored,
    /// An order that is said again names members as peers that the worker has nothing to do with.
    MorePeersResaid,
    /// The count of a lost worker, which its agent has told, is said to be unknown.
    CountNotNoted,
    /// A member that is lost while others wait for it is only noted.
    LossIgnored,
    /// A manifest is made when the first share is written.
    CommittedTooEarly,
    /// What was written for an earlier attempt, to other depots, counts for the present one.
    StaleSaved,
    /// What was written is not compared with what was copied.
    WrongPieces,
    /// A depot that is gone counts as one that has kept the manifest.
    GoneDepotCounts,
    /// With what has expired the newest checkpoint is deleted.
    NewestDeleted,
    /// Of two manifests of one snapshot that are on as many hosts, any is kept, also the one that survives fewer losses.
    ThinnerKept,
    /// The oldest checkpoint is resumed from, not the newest.
    OlderChosen,
    /// A job whose state is lost begins anew, though there is a checkpoint.
    FromTheBeginning,
    /// A checkpoint of another job or build is resumed from.
    ForeignCheckpoint,
    /// The job ends without waiting for its last checkpoint.
    LastNotAwaited,
} Group {
    /// Workers beyond the most that a group may have are seated, too.
    MaxIgnored,
    /// A group that is full is ended for one that waits for a place.
    RenewedThoughFull,
    /// A worker that comes later is taken in only once something breaks.
    NewcomerIgnored,
    /// A group goes on with a member that is to leave.
    LeaverKept,
    /// A member that has given its generation up is not heard.
    GivenUpIgnored,
    /// A member that has given its generation up is said to have finished.
    GivenUpFinishes,
    /// That a member has finished is said once, and not again with its heartbeats.
    DoneSaidOnce,
    /// A member halts, and its group goes on.
    GroupGoesOn,
    /// A member halts, and keeps its seat.
    SeatKept,
    /// The job is done when one member has finished.
    OneDoneEnds,
    /// A stop is forgotten while a generation forms.
    StopForgotten,
    /// A stop after a restart fails the job of a group that has begun.
    StopInVain,
} }

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
