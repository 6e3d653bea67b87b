//! A coordinator of the toy job as a process of its own, so that a test can kill it. It says on standard output what happens.
//!
//! `chaos_coordinator STATE_DIR ADDRESS [take-over] [standby=ADDRESS] [checkpoints=DIR] [every=STEPS] [replicas=R]`, with the job in the
//! environment, as workers get it.

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sardana::hosts::coordinate::Succession;
use sardana::hosts::{CoordinateConfig, coordinate};
use sardana::{CheckpointEvent, Checkpointing, Every, GenerationEvent, JobEvent};
use sardana_chaos_tests::setup::Setup;
use sardana_protocol::membership::Saves;

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
    let rest = Rest::of(arguments)?;
    let config = CoordinateConfig {
        state_dir: state_dir.context("which state directory")?.into(),
        listen: listen.context("which address")?.parse()?,
        advertise: None,
        standbys: rest.standbys,
        min: setup.min,
        max: setup.max,
        expected: setup.workers,
        balance: setup.balance,
        mirror: None,
        saves: rest.saves,
        checkpoint_dir: rest.checkpoints,
        succession: rest.succession,
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

/// What else the coordinator is told.
struct Rest {
    succession: Succession,
    standbys: Vec<SocketAddr>,
    checkpoints: Option<PathBuf>,
    saves: Option<Saves>,
}

impl Rest {
    fn of(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut rest = Self {
            succession: Succession::Resume,
            standbys: Vec::new(),
            checkpoints: None,
            saves: None,
        };
        // At every step, on one host.
        let saves = Checkpointing::new("", Every::Steps(NonZeroU64::MIN)).saves;
        for argument in arguments {
            match argument.split_once('=') {
                None if argument == "take-over" => rest.succession = Succession::TakeOver,
                Some(("standby", address)) => rest.standbys.push(address.parse()?),
                Some(("checkpoints", folder)) => {
                    rest.checkpoints = Some(folder.into());
                    rest.saves.get_or_insert(saves);
                }
                Some(("every", every)) => rest.saves.get_or_insert(saves).every = every.parse()?,
                Some(("replicas", replicas)) => rest.saves.get_or_insert(saves).replicas = replicas.parse()?,
                None | Some(_) => bail!(
                    "expected take-over, standby=ADDRESS, checkpoints=DIR, every=STEPS or replicas=R, found {argument:?}"
                ),
            }
        }
        Ok(rest)
    }
}

fn words(event: &JobEvent) -> String {
    let words = match event {
        JobEvent::Steps(reports) => Some(format!("step {}", reports.last().map_or(0, |report| report.step.get()))),
        JobEvent::Generation(event) => about_generation(event),
        JobEvent::Checkpoint(event) => Some(about_checkpoints(event)),
        JobEvent::StateLost { .. } => Some("state lost".to_owned()),
        JobEvent::Worker(_)
        | JobEvent::Snapshot { .. }
        | JobEvent::Waiting { .. }
        | JobEvent::Fenced { .. }
        | JobEvent::NotRecorded { .. }
        | JobEvent::RecordedAgain { .. }
        | JobEvent::Done(_)
        | JobEvent::Failed { .. } => None,
    };
    words.unwrap_or_else(|| format!("other {event:?}"))
}

/// None for what no test waits for.
fn about_generation(event: &GenerationEvent) -> Option<String> {
    Some(match event {
        GenerationEvent::Adopted { generation, .. } => format!("adopted {generation}"),
        GenerationEvent::Halting { generation } => format!("halting {generation}"),
        GenerationEvent::Forming { generation, .. } => format!("forming {generation}"),
        GenerationEvent::Switched { generation, members, .. } => format!("switched {generation} {}", members.len()),
        GenerationEvent::Formed { .. } | GenerationEvent::Resumed { .. } => return None,
    })
}

fn about_checkpoints(event: &CheckpointEvent) -> String {
    match event {
        CheckpointEvent::Saved { key, hosts, wanted, .. } => {
            let step = key.step.get();
            format!("saved {step}\nkept {step} {hosts} {wanted}")
        }
        CheckpointEvent::DepotCame { depot, host } => format!("depot came {host} {depot}"),
        CheckpointEvent::DepotLost { depot, why } => format!("depot lost {depot} {why}"),
        CheckpointEvent::DepotRefused { depot, reason, .. } => format!("depot refused {depot} {reason}"),
        CheckpointEvent::NotRestored { key, reason, .. } => format!("not restored {} {reason}", key.step.get()),
        CheckpointEvent::NotSaved { step, .. } => format!("not saved {}", step.get()),
        CheckpointEvent::Resumes { key, .. } => format!("resumes {}", key.step.get()),
    }
}

fn say(words: &str) {
    let mut out = std::io::stdout().lock();
    // The reader may be gone.
    let _ = writeln!(out, "{words}").and_then(|()| out.flush());
}
