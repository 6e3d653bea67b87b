//! `sardana scale`: more workers, or fewer.

use clap::Args;
use sardana::operator::OperatorRequest;

use crate::asking::Target;
use crate::ending::Failure;

/// Start or drain workers until there are N.
///
/// New ones go to the agents with the fewest. They copy the state while the others train on. Of too many, those of the highest
/// rank leave at the next step's boundary. The result stays the same, bit for bit.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana scale -n 8\n  \
    sardana scale -n 2 --join operator.join\n\n\
    Exit codes: 0 it is being done, 1 refused, 2 wrong usage.")]
pub(crate) struct Scale {
    /// How many workers there are to be.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    #[command(flatten)]
    target: Target,
}

impl Scale {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        let workers = self.workers;
        self.target.order(&OperatorRequest::Scale { workers })
    }
}
