//! The launcher itself is killed: its workers end by themselves.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sardana_chaos_tests::setup::Setup;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::{WORKER, trial};

#[tokio::test]
async fn workers_end_when_their_launcher_is_killed() -> Result<()> {
    let trial = trial(Setup {
        steps: 1_000_000_000,
        ..Setup::new(3)
    })?;
    let mut launcher = Command::new(WORKER)
        .envs(trial.environment())
        // What a killed launcher cannot tidy up goes with the trial.
        .env("TMPDIR", trial.folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = launcher.stdout.take().context("standard output is a pipe")?;
    let mut lines = BufReader::new(output).lines();
    let limit = Duration::from_secs(30);
    timeout(limit, async {
        while let Some(line) = lines.next_line().await? {
            let step = line.strip_prefix("step ").context("the launcher tells steps only")?;
            if step.parse::<u64>()? >= 3 {
                return Ok(());
            }
        }
        anyhow::bail!("the launcher ended")
    })
    .await??;
    launcher.start_kill()?;
    ensure!(!launcher.wait().await?.success(), "the launcher was killed");
    // The workers have inherited the pipe's other end: it is at its end only when all of them have ended.
    let mut rest = Vec::new();
    let read = timeout(limit, lines.into_inner().read_to_end(&mut rest)).await;
    read.context("workers outlived their launcher")??;
    Ok(())
}
