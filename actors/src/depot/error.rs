//! Why a depot does not give or take something, as the process that asks sees it.

use std::time::Duration;

use sardana_net::quic::ConnectError;
use sardana_protocol::checkpoint::{DepotId, ManifestKey, PieceHash};
use sardana_protocol::words::few;
use sardana_storage::manifest::ManifestError;

use super::limits::NAMED_PIECES;

/// Why a depot did not do what it was asked. A reader asks another depot; a writer tells the coordinator, which begins anew.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    /// No connection.
    #[error("checkpoint actor {depot}: {source}")]
    Connect {
        /// The checkpoint actor.
        depot: DepotId,
        /// Why, and what to do.
        #[source]
        source: ConnectError,
    },
    /// It said no. Do what its reason says.
    #[error("checkpoint actor {depot} refused: {reason}")]
    Refused {
        /// The checkpoint actor.
        depot: DepotId,
        /// Its words.
        reason: String,
    },
    /// The connection broke. Nothing that was not acknowledged counts: try again.
    #[error("checkpoint actor {depot}: expected an answer, but the connection broke: {reason}; try again, or another one")]
    Broken {
        /// The checkpoint actor.
        depot: DepotId,
        /// Why.
        reason: String,
    },
    /// It hangs, or its host does. Ask another depot.
    #[error(
        "checkpoint actor {depot}: expected a byte or a word from it, but nothing moved for {after:?}; see whether its process, its disk \
         or its host hangs; until then use another one"
    )]
    Hangs {
        /// The checkpoint actor.
        depot: DepotId,
        /// How long was waited.
        after: Duration,
    },
    /// It says what makes no sense here. Run the same release everywhere.
    #[error("checkpoint actor {depot}: expected {expected}, found {found}; run the same release of sardana everywhere")]
    Senseless {
        /// The checkpoint actor.
        depot: DepotId,
        /// What should have come.
        expected: &'static str,
        /// What came.
        found: String,
    },
    /// It does not have the manifest, or cannot read it. Ask another depot.
    #[error("checkpoint actor {depot} does not give checkpoint {key}: {reason}; ask another one")]
    NotHere {
        /// The checkpoint actor.
        depot: DepotId,
        /// The manifest that was asked for.
        key: ManifestKey,
        /// Its words.
        reason: String,
    },
    /// What it gave is not the manifest. Ask another depot.
    #[error("checkpoint actor {depot}: {source}")]
    Manifest {
        /// The checkpoint actor.
        depot: DepotId,
        /// What is wrong.
        #[source]
        source: ManifestError,
    },
    /// It could not be shown any more what it takes. Try again.
    #[error(
        "memory that checkpoint actor {depot} sees too could not be filled: {source}; see whether the system has memory left"
    )]
    Window {
        /// The checkpoint actor.
        depot: DepotId,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// This process ends.
    #[error("this process ends before checkpoint actor {depot} has answered")]
    Ending {
        /// The checkpoint actor.
        depot: DepotId,
    },
}

/// No depot gave some of the pieces. Try again when more depots are there, or use an older checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected {count} more pieces, among them {}, but no checkpoint actor gave them: {}; start the others, or use another checkpoint",
    few(pieces, " "),
    words(said)
)]
pub struct ReadFailed {
    /// How many are missing.
    pub count: usize,
    /// Some of them.
    pub pieces: Vec<PieceHash>,
    /// What each of the depots said last.
    pub said: Vec<(DepotId, String)>,
}

impl ReadFailed {
    pub(super) fn new(
        pieces: impl ExactSizeIterator<Item = PieceHash>,
        said: impl IntoIterator<Item = (DepotId, String)>,
    ) -> Self {
        Self {
            count: pieces.len(),
            pieces: pieces.take(NAMED_PIECES).collect(),
            said: said.into_iter().collect(),
        }
    }
}

fn words(said: &[(DepotId, String)]) -> String {
    if said.is_empty() {
        return "there is none".to_owned();
    }
    let words: Vec<String> = said.iter().map(|(depot, what)| format!("{depot}: {what}")).collect();
    few(&words, "; ")
}
