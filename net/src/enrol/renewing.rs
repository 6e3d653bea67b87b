//! The renewal of a certificate that has run out, or has by the coordinator's word: for a process that has no other way back.

use std::fmt::Display;
use std::net::SocketAddr;

use super::errand::Asking;
use super::exchange::{AskError, Stranger};
use crate::environment::Environment;
use crate::trust::RotatingCredentials;

/// Why a certificate that has run out was not renewed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// It was not refused: try again.
    #[error("its certificate has run out and could not be renewed at {address}: {why}")]
    Again {
        /// Where it was tried.
        address: SocketAddr,
        /// What went wrong.
        why: String,
    },
    /// The coordinator says no, and would again. The process needs other credentials.
    #[error("its certificate has run out, and the coordinator at {address} does not renew it: {reason}")]
    Refused {
        /// The coordinator's address.
        address: SocketAddr,
        /// Expected, found, and what to do.
        reason: String,
    },
}

/// Puts a new certificate of the same role and id into `rotating`, for the same key, from the coordinator at `address`.
///
/// # Errors
/// See [`RenewError`]; the credentials are as they were.
pub async fn renew_run_out(
    environment: &Environment,
    rotating: &RotatingCredentials,
    address: SocketAddr,
) -> Result<(), RenewError> {
    let again = |why: &dyn Display| RenewError::Again {
        address,
        why: why.to_string(),
    };
    let held = rotating.current();
    let Asking { key, asked } = Asking::renewal(environment, &held).map_err(|error| again(&error))?;
    let dialled = Stranger::dial(environment, held.authority(), rotating.job(), address).await;
    let stranger = dialled.map_err(|error| again(&error))?;
    let answered = stranger.ask(&asked).await;
    stranger.leave().await;
    let certificate = answered.map_err(|error| match error {
        AskError::Again(why) => again(&why),
        AskError::Refused(reason) => RenewError::Refused { address, reason },
    })?;
    let credentials = key.certified(&held.authority(), certificate).map_err(|error| again(&error))?;
    let replaced = rotating.replace(credentials, environment.now());
    replaced.map_err(|error| again(&error))?;
    tracing::info!(target: "sardana::event::renewed", who = %rotating.identity(), coordinator = %address, "a certificate that had run out is renewed");
    Ok(())
}
