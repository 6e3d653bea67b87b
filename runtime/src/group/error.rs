//! Why a process is no member of a group's job, or not any more.

use crate::worker::{EXIT_GIVE_UP, ProcessError};

/// Why a process cannot join, or its part in the job has ended before its work was done. Operations of a group fail with
/// [`GroupError`](super::GroupError) instead, and the process stays a member.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// No agent has started this process, and no join file is named. Start it so.
    #[error(
        "this process was not invited: start it by `sardana run -n 2 -- PROGRAM` or an agent, or name a join file for a worker in {}",
        crate::hosts::JOIN_VARIABLE
    )]
    NotInvited,
    /// Its part has failed: the message says what to do.
    #[error(transparent)]
    Ended(#[from] ProcessError),
    /// It was used after it had failed, a mistake of the program. A new process may join.
    #[error("this member has failed before: let the process end, so that another can join in its place")]
    Over,
}

impl MemberError {
    /// The exit code by which an agent knows whether to start another process in place of this one. 0 where there is nothing left to do.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Ended(error) => error.exit_code(),
            Self::NotInvited | Self::Over => EXIT_GIVE_UP,
        }
    }
}
