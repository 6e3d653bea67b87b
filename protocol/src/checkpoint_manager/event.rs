//! What people are told of checkpoints.

use std::fmt;
use std::time::Duration;

use strum::{IntoStaticStr, VariantNames};

use crate::checkpoint::{DepotId, ManifestKey};
use crate::words::{Step, WorkerId, count};

/// What happened to checkpoints, and to the actors that keep them.
#[derive(Debug, Clone, PartialEq, IntoStaticStr, VariantNames)]
pub enum CheckpointEvent {
    /// A checkpoint actor came.
    DepotCame {
        /// The checkpoint actor.
        depot: DepotId,
        /// Its host.
        host: String,
    },
    /// A checkpoint actor is gone.
    DepotLost {
        /// The checkpoint actor.
        depot: DepotId,
        /// How that was noticed.
        why: String,
    },
    /// A checkpoint actor could not keep what it should: another attempt is made.
    DepotRefused {
        /// The checkpoint actor.
        depot: DepotId,
        /// The step of the checkpoint.
        step: Step,
        /// What was wrong, and what to do.
        reason: String,
    },
    /// A checkpoint is committed.
    Saved {
        /// What it is called.
        key: ManifestKey,
        /// On how many hosts each of its pieces is.
        hosts: u32,
        /// On how many they should be. More than `hosts`: it is replicated when more hosts come.
        wanted: u32,
        /// Since its snapshot was whole.
        took: Duration,
    },
    /// A checkpoint was given up. If training goes on, another one is taken soon.
    NotSaved {
        /// Its step.
        step: Step,
        /// Why.
        reason: String,
    },
    /// Training starts from a checkpoint.
    Resumes {
        /// The checkpoint.
        key: ManifestKey,
        /// Newer checkpoints that cannot be used, and why.
        passed_over: Vec<(ManifestKey, String)>,
    },
    /// A checkpoint could not be loaded by a worker: an older one, or the same once more, is tried.
    NotRestored {
        /// The checkpoint.
        key: ManifestKey,
        /// The worker that tried.
        worker: WorkerId,
        /// What was wrong.
        reason: String,
    },
}

impl fmt::Display for CheckpointEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DepotCame { depot, host } => write!(f, "the checkpoint actor {depot} on {host} is there"),
            Self::DepotLost { depot, why } => write!(f, "the checkpoint actor {depot} is gone: {why}"),
            Self::DepotRefused { depot, step, reason } => write!(
                f,
                "the checkpoint actor {depot} cannot keep the checkpoint of {step}: {reason}"
            ),
            Self::Saved {
                key,
                hosts,
                wanted,
                took,
            } => {
                let (step, took) = (key.step, took.as_millis());
                write!(f, "the checkpoint of {step} is committed after {took} ms, on ")?;
                if hosts < wanted {
                    write!(f, "{hosts} of {}: under-replicated", count(*wanted, "host"))
                } else {
                    f.write_str(&count(*hosts, "host"))
                }
            }
            Self::NotSaved { step, reason } => write!(f, "the checkpoint of {step} is given up: {reason}"),
            Self::Resumes { key, passed_over } => {
                let step = key.step;
                write!(
                    f,
                    "training resumes from the checkpoint of {step}, the newest that is complete"
                )?;
                passed_over
                    .iter()
                    .try_for_each(|(key, reason)| write!(f, "; passed over that of {}: {reason}", key.step))
            }
            Self::NotRestored { key, worker, reason } => {
                write!(f, "{worker} could not load the checkpoint of {}: {reason}", key.step)
            }
        }
    }
}
