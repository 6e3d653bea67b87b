//! A coordinator of the toy job as a process of its own, so that a test can kill it. It says on standard output what happens.
//!
//! `chaos_coordinator STATE_DIR ADDRESS [take-over | standby=ADDRESS | checkpoints=DIR]`, with the job in the environment, as workers get it.

use std::io::Write;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sardana::hosts::coordinate::Succession;
use sardana::hosts::{CoordinateConfig, coordinate};
use sardana::{Checkpointing, Every, JobEvent};
use sardana_chaos_tests::setup::Setup;

fn main() -> ExitCode {
    match coordinates() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn coordinates() -> Result<()> {
    let (setup, _) = Setup::from_environment()?;
    let mut arguments = std::env::args().skip(1);
    let (state_dir, listen) = (arguments.next(), arguments.next());
    let last = arguments.next();
    let standby = last.as_deref().and_then(|last| last.strip_prefix("standby="));
    let checkpoints = last.as_deref().and_then(|last| last.strip_prefix("checkpoints="));
    let config = CoordinateConfig {
        state_dir: state_dir.context("which state directory")?.into(),
        listen: listen.context("which address")?.parse()?,
        advertise: None,
        standbys: standby.map(str::parse).transpose()?.into_iter().collect(),
        min: setup.min,
        max: setup.max,
        expected: setup.workers,
        balance: setup.balance,
        // At every step.
        saves: checkpoints.map(|_| Checkpointing::new("", Every::Steps(NonZeroU64::MIN)).saves),
        checkpoint_dir: checkpoints.map(PathBuf::from),
        succession: match last.as_deref() {
            None => Succession::Resume,
            Some("take-over") => Succession::TakeOver,
            Some(_) if standby.is_some() || checkpoints.is_some() => Succession::Resume,
            Some(other) => bail!("expected take-over, standby=ADDRESS or checkpoints=DIR, found {other:?}"),
        },
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let hosting = coordinate(config).await?;
        say(&format!("listening {}", hosting.addresses()[0]));
        let summary = hosting.finish(|_, event| say(&words(event))).await?;
        let (step, hash) = (summary.step.get(), summary.hash);
        let (computed, recomputed, unknown) = (summary.computed, summary.recomputed, summary.unknown);
        say(&format!("done {step} {hash} {computed} {recomputed} {unknown}"));
        Ok(())
    })
}

fn words(event: &JobEvent) -> String {
    match event {
        JobEvent::Steps(reports) => format!("step {}", reports.last().map_or(0, |report| report.step.get())),
        JobEvent::Adopted { generation, .. } => format!("adopted {generation}"),
        JobEvent::Halting { generation } => format!("halting {generation}"),
        JobEvent::Forming { generation, .. } => format!("forming {generation}"),
        JobEvent::Switched { generation, members, .. } => format!("switched {generation} {}", members.len()),
        JobEvent::StateLost { .. } => "state lost".to_owned(),
        JobEvent::Saved { key, .. } => format!("saved {}", key.step.get()),
        JobEvent::NotSaved { step, .. } => format!("not saved {}", step.get()),
        JobEvent::Resumes { key, .. } => format!("resumes {}", key.step.get()),
        other @ (JobEvent::Joined { .. }
        | JobEvent::DepotCame { .. }
        | JobEvent::DepotLost { .. }
        | JobEvent::DepotRefused { .. }
        | JobEvent::NotRestored { .. }
        | JobEvent::Fenced { .. }
        | JobEvent::Lost { .. }
        | JobEvent::Leaving { .. }
        | JobEvent::Left { .. }
        | JobEvent::Snapshot { .. }
        | JobEvent::CaughtUp { .. }
        | JobEvent::CoolsDown { .. }
        | JobEvent::JoinsAnew { .. }
        | JobEvent::Held { .. }
        | JobEvent::Formed { .. }
        | JobEvent::Resumed { .. }
        | JobEvent::Waiting { .. }
        | JobEvent::Done(_)
        | JobEvent::Failed { .. }) => format!("other {other:?}"),
    }
}

fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever reads may be gone.
    let _ = writeln!(out, "{words}").and_then(|()| out.flush());
}
