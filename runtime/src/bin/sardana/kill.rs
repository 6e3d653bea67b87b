//! `sardana kill`: a worker dies, as a test.

use clap::Args;
use sardana::operator::OperatorRequest;

use crate::asking::Target;
use crate::ending::Failure;

/// Kill a worker at once, with SIGKILL, to see the job survive it.
///
/// It is replaced like any worker that dies, while its agent's --restarts last. To let one go without losing work, drain it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana kill r1\n  \
    sardana kill w1a2b\n\n\
    Exit codes: 0 its agent was told, 1 refused, 2 wrong usage.")]
pub(crate) struct Kill {
    /// A worker's id or the start of it, or its rank; `sardana status` shows them.
    #[arg(value_name = "WORKER")]
    worker: String,
    #[command(flatten)]
    target: Target,
}

impl Kill {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        self.target.order(&OperatorRequest::Kill { whom: self.worker })
    }
}
