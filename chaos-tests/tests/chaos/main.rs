//! Real worker processes, killed and stopped: every run ends in the state of the plain loop, bit for bit.

mod checkpoints;
mod coordinated;
mod coordinators;
mod depots;
mod endings;
mod fault_points;
mod freezer;
mod frozen;
mod hangs;
mod harmed;
mod hosts;
mod injured;
mod joins;
mod kills;
mod launcher;
mod leaves;
mod network;
mod paced;
mod partitions;
mod replicas;
mod rivals;
mod seeds;
mod spread;
mod strangers;
mod successors;
mod thawed;
mod undisturbed;
mod unequal;
mod unusable;

use anyhow::Result;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Trial;

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

fn trial(setup: Setup) -> Result<Trial> {
    Trial::new(WORKER, setup)
}
