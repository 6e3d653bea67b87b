//! The launcher itself is killed: its workers end by themselves.

use anyhow::{Context, Result};
use rustix::process::Signal;
use sardana_chaos_tests::setup::Setup;
use tokio::process::Command;

use crate::coordinated::Life;
use crate::{WORKER, trial};

#[tokio::test]
async fn workers_end_when_their_launcher_is_killed() -> Result<()> {
    let trial = trial(Setup {
        steps: 1_000_000_000,
        ..Setup::new(3)
    })?;
    let mut command = Command::new(WORKER);
    // What a killed launcher cannot tidy up goes with the trial.
    command.envs(trial.environment()).env("TMPDIR", trial.folder());
    let mut launcher = Life::of(command)?;
    let is_third = |line: &str| line.strip_prefix("step ").and_then(|step| step.parse().ok()) >= Some(3_u64);
    launcher.until_one("step 3", is_third).await?;
    launcher.signal(Signal::KILL)?;
    launcher.dead().await?;
    // The workers have inherited the pipe's other end: it is at its end only when all of them have ended.
    launcher.is_silent().await.context("workers outlived their launcher")
}
