//! `sardana stop`: the job ends early, in good order.

use clap::Args;
use sardana::operator::OperatorRequest;

use crate::asking::Target;
use crate::ending::Failure;

/// End the job at the next step's boundary.
///
/// Every worker stops after the same update, and the job ends as if it had been given so many steps.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana stop\n  \
    sardana stop --join operator.join\n\n\
    Exit codes: 0 it is being done, 1 refused, 2 wrong usage.")]
pub(crate) struct Stop {
    #[command(flatten)]
    target: Target,
}

impl Stop {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        self.target.order(&OperatorRequest::Stop)
    }
}
