//! Points at which a chaos test may kill the process. Without the feature `fault-points` they cost nothing and do nothing.
//!
//! `SARDANA_FAULT=NAME@STEP` names a point and the first step at which it counts; `SARDANA_FAULT_DIR` a folder in which the first
//! process that gets there leaves a mark, so that exactly one dies (two, with `NAME@STEP,NAME@STEP`). `NAME#RANK@STEP` waits for
//! the worker of that rank. Must not know any policy.

use sardana_protocol::words::{Rank, Step};

/// Whether the points are compiled in.
pub const COMPILED_IN: bool = cfg!(feature = "fault-points");

/// A point in a worker's life, or in a coordinator's, or in a depot's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// In a gradient; called by the model of a test.
    InGradient,
    /// After a gradient was counted, before anybody is told.
    Tallied,
    /// Before a chunk of the running sum is passed on.
    BeforePass,
    /// With half of a chunk passed on.
    WhilePassing,
    /// After a chunk was passed on.
    AfterPass,
    /// The whole sum is there, nothing is applied.
    BeforeApply,
    /// In an update; called by the model of a test.
    InApply,
    /// Applied, but nobody knows.
    AfterApply,
    /// `Halt` was received, `Halted` not sent.
    Halt,
    /// `Halted` was handed to the transport.
    Halted,
    /// `Form` was received, no link is made.
    Form,
    /// A state or sum is being fetched.
    Fetch,
    /// All links are made, `Ready` not sent.
    Linked,
    /// `Finished` was handed to the transport.
    Finished,
    /// A boundary's trailer wants a snapshot; nothing is copied.
    Snapshot,
    /// The shares of a snapshot are copied and hashed, but nobody knows.
    Snapshotted,
    /// A joiner has asked for a share.
    Copying,
    /// A joiner has all shares.
    Copied,
    /// A joiner has asked for a sum.
    Following,
    /// The links of the next generation are made beside the ring, `Ready` not sent.
    Prepared,
    /// A trailer has switched to the next generation.
    Switched,
    /// A holder has announced a share to a joiner, and sent nothing of it.
    ServingShare,
    /// A keeper has announced a sum, and sent nothing of it.
    ServingSum,
    /// The coordinator is about to tell the first to halt.
    CoordinatorHalt,
    /// The coordinator is about to tell the first its place in a generation.
    CoordinatorForm,
    /// The coordinator has told one its place, the others not yet.
    CoordinatorForms,
    /// The coordinator is about to ask for a snapshot.
    CoordinatorSnapshot,
    /// The coordinator is about to tell a joiner what to copy.
    CoordinatorCopy,
    /// A share of a snapshot is about to be written to depots.
    Saving,
    /// It is written, and nobody has been told.
    Written,
    /// A piece of a share of a checkpoint is lent, and perhaps no other.
    Lending,
    /// A share of a checkpoint is read, and not all of it may be lent.
    RestoredShare,
    /// A coordinator is about to order a share to be written.
    CoordinatorSave,
    /// All shares of a checkpoint are written, and a coordinator is about to have its manifest made.
    CoordinatorCommit,
    /// A checkpoint is committed, and nobody has been told.
    CoordinatorCommitted,
    /// The coordinator is about to tell of a generation to come.
    CoordinatorPrepare,
    /// The coordinator is about to ask the closer to switch.
    CoordinatorSwitch,
    /// The coordinator has asked the closer to switch; the trailer may come at any time.
    CoordinatorSwitched,
    /// The coordinator is about to tell the first that the job is done.
    CoordinatorComplete,
    /// A depot has written the pieces that were put, and not synced them.
    DepotPut,
    /// A depot has synced the pieces that were put, and not said so.
    DepotSync,
    /// A depot is about to make a manifest durable.
    DepotCommit,
    /// A depot has made a manifest durable, and not said so.
    DepotCommitted,
    /// A depot has read pieces that somebody asks for, and sent none of them. Of no step: it counts from step 0 on.
    DepotGive,
}

impl Point {
    /// All of a worker.
    pub const ALL: [Self; 23] = [
        Self::InGradient,
        Self::Tallied,
        Self::BeforePass,
        Self::WhilePassing,
        Self::AfterPass,
        Self::BeforeApply,
        Self::InApply,
        Self::AfterApply,
        Self::Halt,
        Self::Halted,
        Self::Form,
        Self::Fetch,
        Self::Linked,
        Self::Finished,
        Self::Snapshot,
        Self::Snapshotted,
        Self::Copying,
        Self::Copied,
        Self::Following,
        Self::Prepared,
        Self::Switched,
        Self::ServingShare,
        Self::ServingSum,
    ];

    /// All of a coordinator.
    pub const OF_COORDINATOR: [Self; 9] = [
        Self::CoordinatorHalt,
        Self::CoordinatorForm,
        Self::CoordinatorForms,
        Self::CoordinatorSnapshot,
        Self::CoordinatorCopy,
        Self::CoordinatorPrepare,
        Self::CoordinatorSwitch,
        Self::CoordinatorSwitched,
        Self::CoordinatorComplete,
    ];

    /// All of a depot.
    pub const OF_DEPOT: [Self; 5] = [
        Self::DepotPut,
        Self::DepotSync,
        Self::DepotCommit,
        Self::DepotCommitted,
        Self::DepotGive,
    ];

    /// Its name in `SARDANA_FAULT`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InGradient => "in-gradient",
            Self::Tallied => "tallied",
            Self::BeforePass => "before-pass",
            Self::WhilePassing => "while-passing",
            Self::AfterPass => "after-pass",
            Self::BeforeApply => "before-apply",
            Self::InApply => "in-apply",
            Self::AfterApply => "after-apply",
            Self::Halt => "halt",
            Self::Halted => "halted",
            Self::Form => "form",
            Self::Fetch => "fetch",
            Self::Linked => "linked",
            Self::Finished => "finished",
            Self::Snapshot => "snapshot",
            Self::Snapshotted => "snapshotted",
            Self::Copying => "copying",
            Self::Copied => "copied",
            Self::Following => "following",
            Self::Prepared => "prepared",
            Self::Switched => "switched",
            Self::ServingShare => "serving-share",
            Self::ServingSum => "serving-sum",
            Self::CoordinatorHalt => "coordinator-halt",
            Self::CoordinatorForm => "coordinator-form",
            Self::CoordinatorForms => "coordinator-forms",
            Self::CoordinatorSnapshot => "coordinator-snapshot",
            Self::CoordinatorCopy => "coordinator-copy",
            Self::Saving => "saving",
            Self::Written => "written",
            Self::Lending => "lending",
            Self::RestoredShare => "restored-share",
            Self::CoordinatorSave => "coordinator-save",
            Self::CoordinatorCommit => "coordinator-commit",
            Self::CoordinatorCommitted => "coordinator-committed",
            Self::CoordinatorPrepare => "coordinator-prepare",
            Self::CoordinatorSwitch => "coordinator-switch",
            Self::CoordinatorSwitched => "coordinator-switched",
            Self::CoordinatorComplete => "coordinator-complete",
            Self::DepotPut => "depot-put",
            Self::DepotSync => "depot-sync",
            Self::DepotCommit => "depot-commit",
            Self::DepotCommitted => "depot-committed",
            Self::DepotGive => "depot-give",
        }
    }
}

/// This worker now has this rank: a fault may ask for it.
#[cfg(not(feature = "fault-points"))]
#[inline]
pub fn seated(_rank: Rank) {}

/// This worker now has this rank: a fault may ask for it.
#[cfg(feature = "fault-points")]
pub fn seated(rank: Rank) {
    armed::seated(rank);
}

/// The process is at `point`, at `step`; it may not come back.
#[cfg(not(feature = "fault-points"))]
#[inline]
pub fn reached(_point: Point, _step: Step) {}

/// The process is at `point`, at `step`; it may not come back.
#[cfg(feature = "fault-points")]
pub fn reached(point: Point, step: Step) {
    armed::reached(point, step);
}

/// Whether this process is to behave as if it saw no file of another process, as between containers: `SARDANA_APART` says so.
#[cfg(not(feature = "fault-points"))]
#[inline]
#[must_use]
pub fn apart() -> bool {
    false
}

/// Whether this process is to behave as if it saw no file of another process, as between containers: `SARDANA_APART` says so.
#[cfg(feature = "fault-points")]
#[must_use]
pub fn apart() -> bool {
    std::env::var_os("SARDANA_APART").is_some()
}

#[cfg(feature = "fault-points")]
mod armed {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{Point, Rank, Step};

    struct Fault {
        name: String,
        rank: Option<u32>,
        step: u64,
        mark: PathBuf,
    }

    static FAULTS: OnceLock<Vec<Fault>> = OnceLock::new();

    /// The newest rank; before the first none that a fault can ask for.
    static RANK: AtomicU32 = AtomicU32::new(u32::MAX);

    pub(super) fn seated(rank: Rank) {
        RANK.store(rank.get(), Ordering::Relaxed);
    }

    fn faults() -> Vec<Fault> {
        let (Ok(list), Some(folder)) = (std::env::var("SARDANA_FAULT"), std::env::var_os("SARDANA_FAULT_DIR")) else {
            return Vec::new();
        };
        let parse = |(index, fault): (usize, &str)| {
            let (place, step) = fault.split_once('@').expect("SARDANA_FAULT is NAME@STEP,…");
            let (name, rank) = match place.split_once('#') {
                Some((name, rank)) => (
                    name,
                    Some(rank.parse().expect("SARDANA_FAULT is NAME#RANK@STEP,… with a number")),
                ),
                None => (place, None),
            };
            let step = step.parse().expect("SARDANA_FAULT is NAME@STEP,… with a number");
            Fault {
                name: name.to_owned(),
                rank,
                step,
                mark: PathBuf::from(&folder).join(format!("{index}-{place}")),
            }
        };
        list.split(',').enumerate().map(parse).collect()
    }

    pub(super) fn reached(point: Point, step: Step) {
        for fault in FAULTS.get_or_init(faults) {
            let rank = fault.rank.is_none_or(|rank| rank == RANK.load(Ordering::Relaxed));
            let here = fault.name == point.name() && rank && step.get() >= fault.step;
            if here && std::fs::File::create_new(&fault.mark).is_ok() {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("a process may kill itself");
                // The signal is delivered before the call returns to user space.
                unreachable!("SIGKILL cannot be survived");
            }
        }
    }
}

/// Tells the fault points of a ring.
#[derive(Debug)]
pub struct RingFaults;

impl sardana_collectives::ring::Probe for RingFaults {
    fn reached(&self, point: sardana_collectives::ring::RingPoint) {
        use sardana_collectives::ring::RingPoint;
        match point {
            RingPoint::BeforePass { step, .. } => reached(Point::BeforePass, step),
            RingPoint::WhilePassing { step, .. } => reached(Point::WhilePassing, step),
            RingPoint::AfterPass { step, .. } => reached(Point::AfterPass, step),
        }
    }
}
