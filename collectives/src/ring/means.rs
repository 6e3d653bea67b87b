//! Another means of summing than links, as a worker has it for all of its generations, and what becomes of it in each.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sardana_protocol::words::{Rank, Step};

use crate::limits::GATHERING_PATIENCE;
use crate::setbacks::{LeftAlone, Setbacks};
use crate::summation::{Summation, SummationError};

/// Another means of summing than the links, which all ranks of a generation are asked to use: either all of them are, or none.
#[derive(Clone)]
pub struct SummationConfig {
    pub(super) summation: Arc<dyn Summation>,
    /// Is told what becomes of it.
    pub(super) note: Arc<dyn Fn(&SummationNote) + Send + Sync>,
    /// For so long ranks look for each other by it, and a sum may take beside what its bytes do at the least rate.
    pub(super) patience: Duration,
    /// Of the generations of this worker.
    pub(super) setbacks: Arc<Setbacks>,
}

impl SummationConfig {
    /// One for all generations of a worker, which remembers how the means has fared. `note` is told, on a ring's task, what becomes of it: for logs.
    pub fn new(summation: Arc<dyn Summation>, note: impl Fn(&SummationNote) + Send + Sync + 'static) -> Self {
        Self {
            summation,
            note: Arc::new(note),
            patience: GATHERING_PATIENCE,
            setbacks: Arc::default(),
        }
    }

    /// The same, with another bound than [`GATHERING_PATIENCE`].
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Why it is not even tried, if it is not.
    pub(super) fn left_alone(&self) -> Option<SummationError> {
        let LeftAlone { setbacks, left } = self.setbacks.left_alone()?;
        Some(SummationError::new(format!(
            "expected to be waited for no longer than {:?}, found that it was {setbacks} times in a row; it is tried again in {left:.0?}",
            self.patience
        )))
    }
}

/// What has become of a generation's other means of summing. All ranks come to the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SummationNote {
    /// All ranks have found each other.
    #[error("all ranks sum by {0}")]
    Begun(&'static str),
    /// It did not begin.
    #[error("links sum, and not {name}: {why}")]
    NotBegun {
        /// What it is called.
        name: &'static str,
        /// Why.
        why: NotElsewhere,
    },
    /// It is given up for the rest of the generation.
    #[error("links sum from {step} on, and not {name} any more: {why}")]
    GivenUp {
        /// What it is called.
        name: &'static str,
        /// The step under way. It is summed by links, too.
        step: Step,
        /// Why.
        why: NotElsewhere,
    },
}

/// Why links sum.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotElsewhere {
    /// This rank cannot go on.
    #[error("{0}")]
    Own(SummationError),
    /// Another rank cannot.
    #[error("{0} cannot take part, and says why in its log")]
    Other(Rank),
    /// Two ranks are on one device.
    #[error(
        "expected a device of its own for each worker, found {first} and {second} on one; start no more workers than there are GPUs"
    )]
    Shared {
        /// One of them.
        first: Rank,
        /// The other.
        second: Rank,
    },
}

impl fmt::Debug for SummationConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SummationConfig").field(&self.summation).finish()
    }
}
