//! `sardana drain`: workers leave in good order.

use clap::Args;
use sardana::operator::OperatorRequest;

use crate::asking::Target;
use crate::ending::Failure;

/// Let a worker, or all workers of a host, leave at the next step's boundary.
///
/// No work is lost, and no worker waits: the others take over its shards. It is not replaced.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana drain r2                 the worker of rank 2\n  \
    sardana drain w1a2b              the worker whose id begins so\n  \
    sardana drain host7              all workers of a host\n  \
    sardana drain 192.0.2.7:40123    the worker at an address, or all of an agent's\n\n\
    Exit codes: 0 it is being done, 1 refused, 2 wrong usage.")]
pub(crate) struct Drain {
    /// A worker's id or the start of it, a rank, a host's name, or an address; `sardana status` shows them.
    #[arg(value_name = "WHOM")]
    whom: String,
    #[command(flatten)]
    target: Target,
}

impl Drain {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        self.target.order(&OperatorRequest::Drain { whom: self.whom })
    }
}
