//! A worker that a user has started, with a join file.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;

use sardana_actors::agent::Bundle;
use sardana_actors::memory;
use sardana_net::enrol::{EnrolError, Enrolled, Keyring};
use sardana_net::trust::Role;

use super::enrolling::{NoKeyring, default_keyring, enrol_kept, local_ip_towards};

/// The environment variable with the path of a join file for a worker: a program that embeds this library takes part as one.
pub const JOIN_VARIABLE: &str = "SARDANA_JOIN";

/// Why a program did not become a worker by its join file. The user does what the message says.
#[derive(Debug, thiserror::Error)]
pub enum ByHandError {
    /// It could not enrol.
    #[error("{JOIN_VARIABLE}: {0}")]
    Enrol(#[from] EnrolError),
    /// The key of its join file cannot be kept.
    #[error("{JOIN_VARIABLE}: {0}")]
    NoKeyring(#[from] NoKeyring),
    /// The system gives no runtime, or knows no way to the coordinator.
    #[error("{JOIN_VARIABLE}: the worker could not start: {0}")]
    System(#[from] io::Error),
}

/// What this process needs to be a worker, if its environment names a join file, whose key is on this user's keyring. Blocks while it enrols.
///
/// # Errors
/// See [`ByHandError`].
pub fn bundle_by_hand() -> Result<Option<Bundle>, ByHandError> {
    std::env::var_os(JOIN_VARIABLE)
        .map(|path| bundle_from(Path::new(&path), &default_keyring()?))
        .transpose()
}

/// What this process needs to be a worker, by the join file at `path`, whose key `keyring` has. Each process is another worker; all of this
/// keyring are one use of the file. Blocks while it enrols.
///
/// # Errors
/// See [`ByHandError`].
pub fn bundle_from(path: &Path, keyring: &Keyring) -> Result<Bundle, ByHandError> {
    // On a thread of its own: the caller's may be one of another runtime.
    let enrolling = thread::scope(|scope| scope.spawn(|| enrol_blocking(path, keyring)).join());
    let Enrolled {
        credentials,
        coordinator,
        kept: _,
    } = enrolling.map_err(|_| io::Error::other("its enrolment panicked"))??;
    Ok(Bundle {
        credentials,
        listen: SocketAddr::new(local_ip_towards(coordinator.found())?, 0),
        coordinator,
        advertise: None,
        tally: None,
        // How many workers this host has was not said: what is there, and what this one has taken already.
        memory: memory::available()
            .zip(memory::used())
            .map(|(left, used)| left.saturating_add(used.now)),
        ends: Vec::new(),
    })
}

fn enrol_blocking(path: &Path, keyring: &Keyring) -> Result<Enrolled, ByHandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(enrol_kept(path, Role::Worker, keyring))?)
}
