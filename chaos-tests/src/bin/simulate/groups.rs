//! `simulate groups`: groups under faults in virtual time, many seeds.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use sardana_chaos_tests::simulation::{Grouped, group};

/// Plays groups under faults: who is in which generation, and that all go on together once there are no more faults. A violation prints its seed.
#[derive(Debug, Args)]
pub(crate) struct Groups {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first one; the next ones follow.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// For how many virtual minutes faults come in each run.
    #[arg(long, default_value_t = 10)]
    minutes_per_run: u64,
}

impl Groups {
    /// Plays, and prints.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        if self.seeds == 0 {
            bail!("expected at least one seed, found --seeds 0");
        }
        let mut violated = 0_u64;
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for seed in self.seed..self.seed.saturating_add(self.seeds) {
            let Grouped {
                generations,
                operations,
                failed,
                faults,
                adopted,
                released,
                finished,
                stopped,
                violation,
            } = group(seed, self.minutes_per_run);
            let counted = [
                ("generations", generations),
                ("operations that ended well", operations),
                ("operations that failed", failed),
                ("generations adopted", adopted),
                ("workers released", released),
                ("jobs finished", finished),
                ("jobs stopped", stopped),
            ];
            for (what, often) in counted.into_iter().chain(faults) {
                *sums.entry(what).or_default() += often;
            }
            if let Some(violation) = violation {
                violated += 1;
                println!(
                    "VIOLATION with seed {seed}, --minutes-per-run {}: {violation}",
                    self.minutes_per_run
                );
            }
        }
        for (what, often) in sums {
            println!("{often:8} {what}");
        }
        println!("{} runs, {violated} violations", self.seeds);
        Ok(if violated == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
