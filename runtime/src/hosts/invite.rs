//! Writes join files from a state directory, without the network.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use sardana_net::enrol::{self, JoinFile, JoinFileError, Moment, Terms};
use sardana_net::trust::Role;
use sardana_storage::private::Existing;

use super::state::{StateDirectory, StateError};

/// An invitation to write.
#[derive(Debug, Clone)]
pub struct InviteConfig {
    /// The state directory of the job's coordinator.
    pub state_dir: PathBuf,
    /// The role of the holder: worker, agent, operator or checkpoint actor.
    pub role: Role,
    /// For how long from now on.
    pub expires: Duration,
    /// How often the file may be used.
    pub uses: u32,
    /// The path of the file that is written. A file that is there is not overwritten.
    pub out: PathBuf,
}

/// Why no join file was written. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The terms make no sense.
    #[error(transparent)]
    Terms(#[from] enrol::InviteError),
    /// The file cannot be written.
    #[error(transparent)]
    JoinFile(#[from] JoinFileError),
}

/// Writes a join file, of mode 0600. Its holder can take part in the job: it must be carried over a safe way.
///
/// # Errors
/// See [`InviteError`].
pub fn invite(config: &InviteConfig) -> Result<JoinFile, InviteError> {
    let state = StateDirectory::open(&config.state_dir)?;
    let authority = state.authority()?;
    let now = Moment::of(SystemTime::now());
    let terms = Terms {
        role: config.role,
        expires: Moment::new(now.seconds().saturating_add(config.expires.as_secs())),
        uses: config.uses,
    };
    let invitation = enrol::invite(&authority, terms, now)?;
    let join = JoinFile::new(invitation, &authority, state.addresses()?);
    join.write(&config.out, Existing::Refuse)?;
    Ok(join)
}
