//! `sardana bench`: how fast this machine does what a job does besides computing.

mod all_reduce;
mod exchange;
mod limits;
mod link;
mod plot;
mod sizes;
mod times;
mod wires;

use clap::{Args, Subcommand};

use crate::ending::Failure;

/// Measure how fast sums of gradients pass between workers, beside what this machine could do at most.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    AllReduce(all_reduce::AllReduce),
    Link(link::Link),
    #[command(hide = true)]
    Rank(exchange::Rank),
    #[command(hide = true)]
    LinkEnd,
}

impl Bench {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        match self.what {
            What::AllReduce(all_reduce) => all_reduce.carry_out(),
            What::Link(link) => link.carry_out(),
            What::LinkEnd => link::end::carry_out(),
            What::Rank(rank) => rank.carry_out(),
        }
    }
}
