//! How somebody from outside gets into a job: an invitation in a join file is traded for a short-lived certificate.
//!
//! The authority keeps no list of invitations: a secret in each says that it made it and on which terms. It only remembers how
//! often each was used, until it expires. An enrolment is one request and one answer on a connection of its own, for which no
//! certificate is needed (SEC-2: bounded in bytes, time and number). Must not know what the enrolled then do.

mod client;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod invitation;
mod join_file;
pub mod limits;
mod messages;
mod registrar;
mod service;
mod uses;

#[cfg(test)]
mod tests;

pub use client::{EnrolError, Enrolled, answers, enrol, enrol_on};
#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use invitation::{Invitation, InvitationError, InvitationKey, Nonce, Terms, Used};
pub use join_file::{JoinFile, JoinFileError};
pub use messages::{EnrolAnswer, EnrolRequest};
pub use registrar::{EnrolRefusal, InviteError, Registrar, invite};
pub use service::{COME_AGAIN, EnrolService};
pub use uses::{USES_FILE, Uses, UsesError};

pub use crate::trust::Moment;
