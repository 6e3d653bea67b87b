//! What the snapshot round is told of membership with each event: it asks nothing back.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::messages::MemberAddress;
use crate::words::{Generation, Step, WorkerId};

/// Where membership stands.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// The time, since any fixed moment.
    pub(crate) now: Duration,
    /// The newest generation that was formed.
    pub(crate) formed: Generation,
    /// Its members that hold snapshots, by place.
    pub(crate) holders: Vec<MemberAddress>,
    /// Which of the holders are not connected any more.
    pub(crate) absent: BTreeSet<WorkerId>,
    /// The member that closes sums, if there is a generation.
    pub(crate) closer: Option<WorkerId>,
    /// The newest step that a worker has come to.
    pub(crate) reached: Step,
    /// How many more members a generation can have.
    pub(crate) seats: usize,
    /// Whether training goes on to another boundary.
    pub(crate) trains_on: bool,
    /// Whether joiners may begin to copy.
    pub(crate) takes_in: bool,
    /// Whether a checkpoint is to be taken as soon as that is possible.
    pub(crate) save_due: bool,
    /// Whether the snapshot that is collected or served is of the job's last state: no other boundary comes.
    pub(crate) is_last: bool,
    /// Whether that last state is yet to be saved.
    pub(crate) last_to_save: bool,
    /// After this long what was not answered is said again.
    pub(crate) resend_patience: Duration,
    /// After this long members wait for a joiner that follows and has not caught up.
    pub(crate) catch_up_patience: Duration,
    /// Members that have just switched, and may lack the last sum.
    pub(crate) switching: BTreeSet<WorkerId>,
    /// Joiners that leave again, and are not planned in.
    pub(crate) leaving: BTreeSet<WorkerId>,
    /// Joiners that wait since workers on their host have failed too often.
    pub(crate) cooling: BTreeSet<WorkerId>,
}
