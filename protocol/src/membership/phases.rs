//! Where the machine stands, for observers outside: by the names of the drawings. Changes nothing.

use super::adopting::Past;
use super::{Membership, Phase, Resumed};

/// Where each part of the coordinator's machine stands. A simulator counts which transitions it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// The membership as a whole.
    pub membership: &'static str,
    /// The generation that a coordinator finds when it comes back.
    pub past: &'static str,
    /// The snapshot for joiners.
    pub snapshot: &'static str,
    /// The generation to come.
    pub plan: &'static str,
    /// The checkpoint under way.
    pub saving: &'static str,
}

impl Membership {
    /// Where each part stands.
    #[must_use]
    pub fn phases(&self) -> Phases {
        Phases {
            membership: match self.phase {
                Phase::Gathering { .. } => "gathering",
                Phase::Halting { .. } => "halting",
                Phase::Forming { .. } => "forming",
                Phase::Running {
                    resumed: Resumed::NotYet,
                } => "starting",
                Phase::Running { resumed: Resumed::Yes } => "running",
                Phase::Done => "done",
                Phase::Failed => "failed",
            },
            past: match self.earlier.past {
                Past::None => "none",
                Past::Possible { .. } => "possible",
                Past::Found(_) => "found",
            },
            snapshot: self.round.stage(),
            saving: self.checkpoints.phase(),
            plan: match &self.change.plan {
                None if self.change.switching.is_empty() => "none",
                None => "switching",
                Some(plan) => plan.phase(),
            },
        }
    }
}
