//! What clouds announce to a machine, and how it is called in logs and reasons.

use std::fmt;
use std::time::Duration;

use strum::Display;

use super::UtcTime;
use crate::limits::{GCE_MAINTENANCE_NOTICE, LONGEST_PAUSE, SHORTEST_NOTICE};

/// A cloud whose metadata service is asked.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cloud {
    /// Amazon EC2.
    #[strum(to_string = "AWS")]
    Aws,
    /// Google Compute Engine.
    #[strum(to_string = "GCE")]
    Gce,
    /// Microsoft Azure.
    Azure,
}

/// What is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// AWS: the spot instance is taken away for good.
    SpotTerminate,
    /// AWS: it is stopped; its memory is lost.
    SpotStop,
    /// AWS: it is hibernated, from the notice on. A worker that wakes hours later wakes in a generation long gone.
    SpotHibernate,
    /// AWS: it is interrupted in a way that this version has no word for.
    SpotOther(String),
    /// AWS: it is more likely than before that the instance will be interrupted.
    Rebalance,
    /// GCE: the machine is preempted.
    Preempted,
    /// GCE: its host is maintained, and the machine is ended for that.
    HostTerminate,
    /// GCE: its host is maintained, and the machine moves while it runs.
    HostMigrate,
    /// GCE: its host is maintained in a way that this version has no word for.
    HostOther(String),
    /// Azure: the spot machine is taken away.
    Preempt,
    /// Azure: the machine is deleted.
    Terminate,
    /// Azure: the machine is rebooted.
    Reboot,
    /// Azure: the machine moves to another host, without its memory.
    Redeploy,
    /// Azure: the machine stands still for a while; none if it is not known for how long.
    Freeze(Option<Duration>),
    /// Azure: something that this version has no word for.
    EventOther(String),
}

/// What a notice means for the workers on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The machine, or its memory, will be gone.
    Leaves,
    /// The machine stays for now.
    Warns,
}

impl What {
    /// The cloud that announces it.
    #[must_use]
    pub const fn cloud(&self) -> Cloud {
        match self {
            Self::SpotTerminate | Self::SpotStop | Self::SpotHibernate | Self::SpotOther(_) | Self::Rebalance => Cloud::Aws,
            Self::Preempted | Self::HostTerminate | Self::HostMigrate | Self::HostOther(_) => Cloud::Gce,
            Self::Preempt | Self::Terminate | Self::Reboot | Self::Redeploy | Self::Freeze(_) | Self::EventOther(_) => {
                Cloud::Azure
            }
        }
    }

    /// What it means. A pause longer than [`LONGEST_PAUSE`] is a leave: the others would not wait for its end.
    #[must_use]
    pub fn weight(&self) -> Weight {
        match self {
            Self::SpotTerminate
            | Self::SpotStop
            | Self::SpotHibernate
            | Self::SpotOther(_)
            | Self::Preempted
            | Self::HostTerminate
            | Self::Preempt
            | Self::Terminate
            | Self::Reboot
            | Self::Redeploy => Weight::Leaves,
            Self::Freeze(Some(pause)) if *pause > LONGEST_PAUSE => Weight::Leaves,
            Self::Rebalance | Self::HostMigrate | Self::HostOther(_) | Self::Freeze(_) | Self::EventOther(_) => {
                Weight::Warns
            }
        }
    }

    /// How long after its announcement it happens at the earliest, where that is documented and no time comes with it.
    #[must_use]
    pub const fn least_notice(&self) -> Option<Duration> {
        match self {
            Self::Preempted | Self::Preempt => Some(SHORTEST_NOTICE),
            Self::HostTerminate | Self::HostMigrate => Some(GCE_MAINTENANCE_NOTICE),
            Self::SpotTerminate
            | Self::SpotStop
            | Self::SpotHibernate
            | Self::SpotOther(_)
            | Self::Rebalance
            | Self::HostOther(_)
            | Self::Terminate
            | Self::Reboot
            | Self::Redeploy
            | Self::Freeze(_)
            | Self::EventOther(_) => None,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpotTerminate => f.write_str("AWS spot: terminate"),
            Self::SpotStop => f.write_str("AWS spot: stop"),
            Self::SpotHibernate => f.write_str("AWS spot: hibernate"),
            Self::SpotOther(word) => write!(f, "AWS spot: {word}"),
            Self::Rebalance => f.write_str("AWS spot: rebalance recommendation"),
            Self::Preempted => f.write_str("GCE: preempted"),
            Self::HostTerminate => f.write_str("GCE host maintenance: terminate"),
            Self::HostMigrate => f.write_str("GCE host maintenance: migrate"),
            Self::HostOther(word) => write!(f, "GCE host maintenance: {word}"),
            Self::Preempt => f.write_str("Azure: Preempt"),
            Self::Terminate => f.write_str("Azure: Terminate"),
            Self::Reboot => f.write_str("Azure: Reboot"),
            Self::Redeploy => f.write_str("Azure: Redeploy"),
            Self::Freeze(Some(pause)) => write!(f, "Azure: Freeze for {} s", pause.as_secs()),
            Self::Freeze(None) => f.write_str("Azure: Freeze"),
            Self::EventOther(word) => write!(f, "Azure: {word}"),
        }
    }
}

/// How far an announced event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is yet to come.
    Announced,
    /// It has begun.
    Started,
}

/// Whether the cloud may be told that the rest of the time is not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// It listens, and the event is about this machine alone.
    Wanted,
    /// It does not listen; or the event is about other machines as well, on which others may still need the time.
    None,
}

/// One thing that a cloud announces to this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which it is among those of this machine: it keeps this name as long as it stands.
    pub id: String,
    /// What is announced.
    pub what: What,
    /// For when, if the cloud says so.
    pub due: Option<UtcTime>,
    /// How far it is.
    pub progress: Progress,
    /// Whether it may be approved.
    pub approval: Approval,
}

impl Notice {
    /// The moment from which on it may happen, of a notice that is known since `since`. None if it is not known, or it has begun.
    #[must_use]
    pub fn deadline(&self, since: UtcTime) -> Option<UtcTime> {
        match self.progress {
            Progress::Announced => self.due.or_else(|| Some(since.after(self.what.least_notice()?))),
            Progress::Started => None,
        }
    }

    /// For people, at `now`, of a notice that is known since `since`: `AWS spot: terminate at 08:22:00 UTC, 118 s left`.
    #[must_use]
    pub fn words(&self, since: UtcTime, now: UtcTime) -> String {
        let what = &self.what;
        match (self.progress, self.due, self.deadline(since)) {
            (Progress::Started, _, _) => format!("{what}, it has begun"),
            (Progress::Announced, Some(due), _) if due <= now => format!("{what} at {due} UTC, which is past"),
            (Progress::Announced, Some(due), _) => format!("{what} at {due} UTC, {} left", span(due.since(now))),
            (Progress::Announced, None, Some(deadline)) => format!("{what}, about {} left", span(deadline.since(now))),
            (Progress::Announced, None, None) => what.to_string(),
        }
    }
}

/// `118 s`, `34 min`, `52 h`.
fn span(left: Duration) -> String {
    match left.as_secs() {
        seconds @ 0..1_000 => format!("{seconds} s"),
        seconds @ 1_000..100_000 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
