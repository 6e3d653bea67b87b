//! What the machine of notices observes, commands and says.

use std::fmt;
use std::time::Duration;

use super::{Cloud, Notice};

/// What was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// By a look: all that stands.
    Seen(Vec<Notice>),
    /// By a look: it failed. What stood before is taken to stand still.
    Failed {
        /// Why, for people.
        why: String,
    },
    /// By the agent: the last of the workers that [`Command::Drain`] called away has left.
    Drained,
    /// By the cloud: it did not take an approval.
    Unapproved {
        /// The name of the notice.
        id: String,
        /// Why, for people.
        why: String,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Tell people.
    Say(Said),
    /// Let the workers leave at a boundary. While they leave already: from now on there is only so much time.
    Drain {
        /// Which notice, for people.
        reason: String,
        /// How long they may take; none if it is not known.
        within: Option<Duration>,
    },
    /// Start as many workers as there were before they left.
    Return {
        /// Why, for people.
        reason: String,
    },
    /// Tell the cloud that the rest of the time is not needed.
    Approve {
        /// The name of the notice.
        id: String,
        /// What it announces, for people.
        what: String,
    },
    /// Look again.
    Look {
        /// How much later.
        after: Duration,
        /// How long the look may wait for a change at the service, where it can.
        hang: Duration,
    },
}

/// What is done about a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heed {
    /// The workers leave.
    Drains,
    /// They will, once it is near.
    Later,
    /// Nothing: its moment has long passed, and the machine is still there.
    Stale,
    /// Nothing: the machine stays.
    Warns,
}

/// What people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// This cloud's notices are watched for.
    Watching {
        /// The cloud.
        cloud: Cloud,
    },
    /// There is nothing to watch.
    NoService,
    /// A notice is new, has changed, or means something else by now.
    Heard {
        /// The notice.
        words: String,
        /// What is done about it.
        heed: Heed,
    },
    /// A notice does not stand any more.
    Gone {
        /// What it had announced.
        what: String,
    },
    /// An event was approved: it may come before its time.
    Approved {
        /// What it announces.
        what: String,
    },
    /// An approval did not arrive. The event comes at its time.
    Unapproved {
        /// Why.
        why: String,
    },
    /// Notices would not be seen now.
    Blind {
        /// Why.
        why: String,
    },
    /// They are seen again.
    Sees,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watching { cloud } => write!(f, "notices of {cloud} are watched for"),
            Self::NoService => f.write_str("no cloud metadata service answers: no notices will be seen"),
            Self::Heard { words, heed } => match heed {
                Heed::Drains => write!(f, "{words}: the workers leave"),
                Heed::Later => write!(f, "{words}: the workers stay until it is near"),
                Heed::Stale => write!(f, "{words}: the machine is still there, so the workers stay"),
                Heed::Warns => write!(f, "{words}: only a warning, the workers stay"),
            },
            Self::Gone { what } => write!(f, "withdrawn or over: {what}"),
            Self::Approved { what } => write!(f, "the workers have left; approved: {what}"),
            Self::Unapproved { why } => write!(f, "an event could not be approved and comes at its time: {why}"),
            Self::Blind { why } => write!(f, "notices cannot be seen for now: {why}"),
            Self::Sees => f.write_str("notices are seen again"),
        }
    }
}
