//! What a child is given through its standard input: never through arguments, which every user of the host can read.

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use sardana_net::trust::Credentials;
use sardana_net::whereabouts::Whereabouts;
use sardana_net::wire::limits::BUNDLE_BYTES;
use sardana_net::wire::{FrameError, read_frame_blocking};
use serde::{Deserialize, Serialize};

use super::ends::hold;

/// The environment variable that tells a program that it is a worker with a bundle on its standard input.
pub const BUNDLE_VARIABLE: &str = "SARDANA_WORKER";

/// The value that says that the process was started in a group of its own, which ends with it. Any other promises nothing.
pub(super) const OWN_GROUP: &str = "stdin, own group";

/// The exit code of a worker whose agent is gone.
const ORPHANED: i32 = 4;

/// Whether this process has taken its start.
static RECEIVED: AtomicBool = AtomicBool::new(false);

/// A child's start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bundle {
    /// Its certificate and key.
    pub credentials: Credentials,
    /// Where the coordinator listens, and may listen some day.
    pub coordinator: Whereabouts,
    /// Where to listen for other workers.
    pub listen: SocketAddr,
    /// Where others reach it, if that is another address than the one it listens at; the port is the same.
    pub advertise: Option<IpAddr>,
    /// Where to count gradients.
    pub tally: Option<PathBuf>,
    /// How many bytes of its host's memory it may use in all, if that is known.
    pub memory: Option<u64>,
    /// Pipes of its agent's by which that learns of its end at once.
    pub ends: Vec<PathBuf>,
}

/// Why a bundle could not be received.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bundle is damaged or of another version: let the agent of the same release start this program.
    #[error("the worker's start on standard input cannot be used: {0}; workers are started by an agent of the same release")]
    Frame(#[from] FrameError),
    /// There is none: the variable was set by hand.
    #[error(
        "{BUNDLE_VARIABLE} is set, but standard input holds no worker's start: unset it, or let an agent start this program"
    )]
    Missing,
    /// It has been received before, by this process: it takes part once. A mistake of the program.
    #[error("this process has taken part in a job before: let it end, so that another can take part in its place")]
    Again,
}

/// The bundle on this process's standard input, if the environment says that there is one. From then on the process ends when its
/// agent does, and all that it has started: a thread waits for the end of the input.
///
/// # Errors
/// See [`BundleError`].
pub fn receive_bundle() -> Result<Option<Bundle>, BundleError> {
    let Some(how) = std::env::var_os(BUNDLE_VARIABLE) else {
        return Ok(None);
    };
    // The input belongs to the thread below from then on.
    if RECEIVED.swap(true, Ordering::Relaxed) {
        return Err(BundleError::Again);
    }
    // A person who set it by hand would wait for ever.
    if io::stdin().is_terminal() {
        return Err(BundleError::Missing);
    }
    let bundle: Bundle = read_frame_blocking(&mut io::stdin().lock(), BUNDLE_BYTES)?.ok_or(BundleError::Missing)?;
    std::thread::Builder::new()
        .name("agent-watch".to_owned())
        .spawn(move || {
            // Nothing more is ever sent: whatever this returns, the other end is gone.
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            if how == OWN_GROUP {
                // With all that this process has started, and itself.
                let _ = rustix::process::kill_current_process_group(Signal::KILL);
            }
            process::exit(ORPHANED);
        })
        .map_err(FrameError::Io)?;
    bundle.ends.iter().cloned().for_each(hold);
    Ok(Some(bundle))
}
