//! Why a worker process was not started, and whether another try may fare better.

use std::path::PathBuf;

use super::limits::CERTIFY_DEADLINE;

/// Why a worker could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// The system does not start the program.
    #[error("{} could not be started: {source}; give the path of a program that this user may run", program.display())]
    Program { program: PathBuf, source: std::io::Error },
    /// The coordinator certifies no worker.
    #[error("the coordinator gave no certificate for a worker within {CERTIFY_DEADLINE:?}; its log says why")]
    Certificate,
    /// It lacks something else, for the moment.
    #[error("a worker could not be started: {0}")]
    System(String),
}

impl StartError {
    /// Whether it is worth another try.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Program { source, .. } => !matches!(
                source.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied
            ),
            Self::System(_) | Self::Certificate => true,
        }
    }
}
