//! `sardana bench`: how fast this machine does what a job does besides computing.

mod all_reduce;
mod copy;
mod exchange;
mod gpu;
mod limits;
mod link;
mod lying;
mod plot;
mod progress;
mod sizes;
mod sums;
mod times;
mod wires;

use clap::{Args, Subcommand};

use crate::ending::Failure;

/// Measure how fast gradients are summed, links carry and states are copied, beside what this machine could do at most.
///
/// The limits are measured in the same run, as machines differ from minute to minute. Whatever else runs meanwhile takes part in every figure.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana bench all-reduce -n 4        how long a step takes that only sums gradients, also of GPUs\n  \
    sardana bench link --link quic       what one link between two workers carries\n  \
    sardana bench copy --state 256MiB    what a join, a kill and a restore cost\n  \
    sardana bench sums                   how fast gradients are added within memory\n  \
    sardana bench gpu                    what a GPU's kernels, copies and steps reach\n\n\
    Exit codes: 0 all is measured, 1 it failed or does not fit, 2 wrong usage, 130 or 143 ended by a signal.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    AllReduce(all_reduce::AllReduce),
    Link(link::Link),
    Copy(copy::Copy),
    Sums(sums::Sums),
    Gpu(gpu::Gpu),
    #[command(hide = true)]
    Rank(exchange::Rank),
    #[command(hide = true)]
    Member(copy::member::Member),
    #[command(hide = true)]
    LinkEnd,
    #[cfg(feature = "nccl")]
    #[command(hide = true)]
    GpuRank,
}

impl Bench {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        match self.what {
            What::AllReduce(all_reduce) => all_reduce.carry_out(),
            What::Link(link) => link.carry_out(),
            What::Copy(copy) => copy.carry_out(),
            What::Sums(sums) => sums.carry_out(),
            What::Gpu(gpu) => gpu.carry_out(),
            What::Member(member) => member.carry_out(),
            What::LinkEnd => link::end::carry_out(),
            #[cfg(feature = "nccl")]
            What::GpuRank => gpu::rank::carry_out(),
            What::Rank(rank) => rank.carry_out(),
        }
    }
}
