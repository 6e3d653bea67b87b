//! How a process from outside gets into a job: an invitation in a join file is traded for a short-lived certificate.
//!
//! The authority keeps no list of invitations: a secret in each proves its origin and terms. The authority only remembers with which
//! keys each was used, until it expires: the same key again is the same use. An enrolment is one request and one answer on a connection of
//! its own, for which no certificate is needed (SEC-2: bounded in bytes, time and number).
//!
//! A process of the job whose certificate has run out while its coordinator was away comes back in the same way: it shows that certificate,
//! and asks with the same key. A [`Keyring`] keeps what a user's processes have. Must not know what the enrolled then do.

mod client;
mod errand;
mod exchange;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod invitation;
mod join_file;
mod keyring;
pub mod limits;
mod messages;
mod registrar;
mod renewing;
mod run_out;
mod service;
mod uses;

#[cfg(test)]
mod tests;

pub use client::{EnrolError, Enrolled, answers, enrol, enrol_anew, enrol_kept, enrol_on};
#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use invitation::{Invitation, InvitationError, InvitationKey, Nonce, Terms, Used};
pub use join_file::{JoinFile, JoinFileError};
pub use keyring::{Kept, Keyring, KeyringError};
#[cfg(feature = "fuzzing")]
pub use keyring::{examples as key_files, fuzz as keyring};
pub use messages::{EnrolAnswer, EnrolRequest};
pub use registrar::{EnrolRefusal, InviteError, Registrar, invite};
pub use renewing::{RenewError, renew_run_out};
pub use run_out::RunOutRefusal;
pub use service::{COME_AGAIN, EnrolService};
pub use uses::{USES_FILE, Uses, UsesError};

pub use crate::trust::Moment;
