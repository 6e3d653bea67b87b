//! Points at which a chaos test may kill the process. Without the feature `fault-points` they cost nothing and do nothing.
//!
//! `SARDANA_FAULT=NAME@STEP` names a point and the first step at which it counts; `SARDANA_FAULT_DIR` a folder in which the first
//! process that gets there leaves a mark, so that exactly one dies (two, with `NAME@STEP,NAME@STEP`). `NAME#RANK@STEP` waits for
//! the worker of that rank. Must not know any policy.

use sardana_protocol::words::{Rank, Step};

/// Whether the points are compiled in.
pub const COMPILED_IN: bool = cfg!(feature = "fault-points");

/// What a process is in which there are fault points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A worker.
    Worker,
    /// A coordinator.
    Coordinator,
    /// A checkpoint actor, in a process of its own or in its host's.
    Depot,
}

/// Makes the enum, its names and its list from one table: a point cannot be left out of the tests that ask for all of them.
macro_rules! points {
    ($($role:ident { $($(#[doc = $what:literal])+ $point:ident = $name:literal,)+ })+) => {
        /// A point in the life of a worker, a coordinator or a depot. One list, as long as it is: each is one name in one variable, and a
        /// test asks for all of them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Point {
            $($($(#[doc = $what])+ $point,)+)+
        }

        impl Point {
            /// All of them.
            pub const ALL: &'static [Self] = &[$($(Self::$point),+),+];

            /// Its name in `SARDANA_FAULT`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$point => $name,)+)+
                }
            }

            /// The role of the process that it is in.
            #[must_use]
            pub const fn role(self) -> Role {
                match self {
                    $($(Self::$point)|+ => Role::$role,)+
                }
            }
        }
    };
}

points! {
    Worker {
        /// In a gradient; called by the model of a test.
        InGradient = "in-gradient",
        /// After a gradient was counted, before any other process is told.
        Tallied = "tallied",
        /// Before a chunk of the running sum is passed on.
        BeforePass = "before-pass",
        /// With half of a chunk passed on.
        WhilePassing = "while-passing",
        /// After a chunk was passed on.
        AfterPass = "after-pass",
        /// The whole sum is there, nothing is applied.
        BeforeApply = "before-apply",
        /// In an update; called by the model of a test.
        InApply = "in-apply",
        /// Applied, and no other process knows.
        AfterApply = "after-apply",
        /// `Halt` was received, `Halted` not sent.
        Halt = "halt",
        /// `Halted` was handed to the transport.
        Halted = "halted",
        /// `Form` was received, no link is made.
        Form = "form",
        /// A state or sum is being fetched.
        Fetch = "fetch",
        /// All links are made, `Ready` not sent.
        Linked = "linked",
        /// `Finished` was handed to the transport.
        Finished = "finished",
        /// A boundary's trailer wants a snapshot; nothing is copied.
        Snapshot = "snapshot",
        /// The shares of a snapshot are copied and hashed, and no other process knows.
        Snapshotted = "snapshotted",
        /// A joiner has asked for a share.
        Copying = "copying",
        /// A joiner has all shares.
        Copied = "copied",
        /// A joiner has asked for a sum.
        Following = "following",
        /// The links of the next generation are made beside the ring, `Ready` not sent.
        Prepared = "prepared",
        /// A trailer has switched to the next generation.
        Switched = "switched",
        /// A holder has announced a share to a joiner, and sent nothing of it.
        ServingShare = "serving-share",
        /// A keeper has announced a sum, and sent nothing of it.
        ServingSum = "serving-sum",
        /// A share of a snapshot is about to be written to depots.
        Saving = "saving",
        /// It is written, and the coordinator has not been told.
        Written = "written",
        /// A piece of a share of a checkpoint is lent, and perhaps no other.
        Lending = "lending",
        /// A share of a checkpoint is read, and not all of it may be lent.
        RestoredShare = "restored-share",
    }
    Coordinator {
        /// The coordinator is about to tell the first to halt.
        CoordinatorHalt = "coordinator-halt",
        /// The coordinator is about to tell the first its place in a generation.
        CoordinatorForm = "coordinator-form",
        /// The coordinator has told one worker its place, the others not yet.
        CoordinatorForms = "coordinator-forms",
        /// The coordinator is about to ask for a snapshot.
        CoordinatorSnapshot = "coordinator-snapshot",
        /// The coordinator is about to tell a joiner what to copy.
        CoordinatorCopy = "coordinator-copy",
        /// A coordinator is about to order a share to be written.
        CoordinatorSave = "coordinator-save",
        /// All shares of a checkpoint are written, and a coordinator is about to have its manifest made.
        CoordinatorCommit = "coordinator-commit",
        /// A checkpoint is committed, and no worker has been told.
        CoordinatorCommitted = "coordinator-committed",
        /// The coordinator is about to tell of a generation to come.
        CoordinatorPrepare = "coordinator-prepare",
        /// The coordinator is about to ask the closer to switch.
        CoordinatorSwitch = "coordinator-switch",
        /// The coordinator has asked the closer to switch; the trailer may come at any time.
        CoordinatorSwitched = "coordinator-switched",
        /// The coordinator is about to tell the first that the job is done.
        CoordinatorComplete = "coordinator-complete",
    }
    Depot {
        /// A depot has written the pieces that were put, and not synced them.
        DepotPut = "depot-put",
        /// A depot has synced the pieces that were put, and not said so.
        DepotSync = "depot-sync",
        /// A depot is about to make a manifest durable.
        DepotCommit = "depot-commit",
        /// A depot has made a manifest durable, and not said so.
        DepotCommitted = "depot-committed",
        /// A depot has read pieces that a client asks for, and sent none of them. Of no step: it counts from step 0 on.
        DepotGive = "depot-give",
    }
}

impl Point {
    /// All in processes of this role.
    pub fn of(role: Role) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |point| point.role() == role)
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
