//! The tour: trains real handwritten digits on four worker processes, two of which are killed, one leaves, two join, and one of
//! those is killed while it does. Then all of it is killed at once, and three workers go on from the newest checkpoint. The final state is
//! that of an undisturbed run, bit for bit.
//!
//! `cargo run --release [-- --device cuda]`. Exits with 0 only if the two states are equal.

mod adversary;
mod guide;
mod screen;

use std::num::NonZeroU64;
use std::process::ExitCode;

use adversary::Adversary;
use anyhow::{Context, Result};
use clap::Parser;
use guide::Guide;
use sardana::device::DeviceChoice;
use sardana::job::Staffing;
use sardana::launch::{LaunchConfig, launch};
use sardana::{Checkpointing, Every, Job, Summary, serve_if_started_by_agent};
use sardana_examples::digits::{self, Digits};
use sardana_examples::showing;
use screen::Screen;
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

/// Steps between two checkpoints.
const EVERY: NonZeroU64 = NonZeroU64::new(50).unwrap();

/// Trains handwritten digits on worker processes, kills some of them and then all, goes on from the newest checkpoint, and compares the final state with that of an
/// undisturbed run
#[derive(Parser)]
#[command(after_help = "Exits with 0 only if the two states are equal. RUST_LOG=info shows what happens.")]
struct Arguments {
    /// What to compute on: `cuda` is a GPU for each worker, for which this program needs its feature `candle-cuda`; `auto` is that where it can be
    #[arg(long, value_name = "auto|cpu|cuda|cuda:N")]
    device: Option<DeviceChoice>,
}

fn main() -> Result<ExitCode> {
    let Arguments { device } = Arguments::parse();
    let device = DeviceChoice::said(device)?;
    // Twice as long as the example, so that all of it has its time.
    let job = digits::job().epochs(60).workers(4).restarts(8).build()?;
    serve_if_started_by_agent(&job, |spec| Digits::built_in().model(spec, device));
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();

    let screen = Screen::new(job.spec().steps.get());
    screen.line("Sardana: workers come and go, the result stays the same, bit for bit.");
    screen.line(&format!(
        "The job `{}`: {} images in batches of {}, each cut into K = {} shards; {} steps.",
        job.spec().name,
        job.spec().samples,
        job.spec().batch,
        job.spec().shards,
        job.spec().steps.get()
    ));
    let folder = tempfile::tempdir().context(
        "the tour keeps checkpoints where temporary files lie, and cannot write there: set TMPDIR to a folder where it can",
    )?;
    let checkpoints = Checkpointing::new(folder.path().join("checkpoints"), Every::Steps(EVERY));
    let stage = Stage { screen: &screen, device };
    let lost = stage.run(
        "four workers: two are killed, one leaves, two join, and one of those is killed; then all are",
        &job,
        Adversary::new(job.staffing().workers),
        Some(&checkpoints),
    )?;
    let three = Staffing {
        workers: 3,
        ..*job.staffing()
    };
    let disturbed = match lost {
        // It was over before the adversary was.
        Some(summary) => summary,
        None => stage.to_the_end("three workers go on", &job.clone().staffed(three)?, Some(&checkpoints))?,
    };
    let alone = Staffing {
        workers: 1,
        ..*job.staffing()
    };
    let undisturbed = stage.to_the_end("one worker, undisturbed", &job.staffed(alone)?, None)?;
    Ok(conclude(&screen, &disturbed, &undisturbed))
}

/// Where a job is run, and shown.
struct Stage<'a> {
    screen: &'a Screen,
    device: DeviceChoice,
}

impl Stage<'_> {
    fn to_the_end(&self, title: &str, job: &Job, checkpoints: Option<&Checkpointing>) -> Result<Summary> {
        let summary = self.run(title, job, Adversary::idle(), checkpoints)?;
        summary.context("nothing is lost")
    }

    /// Runs the job once, and shows what happens. With an adversary that does anything everything is killed once that is done, and a checkpoint
    /// was committed after it: none if the job was lost so.
    fn run(
        &self,
        title: &str,
        job: &Job,
        mut adversary: Adversary,
        checkpoints: Option<&Checkpointing>,
    ) -> Result<Option<Summary>> {
        let Self { screen, device } = *self;
        screen.start(title);
        let mut guide = Guide::new(job, screen);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (lose, lost) = oneshot::channel();
        let mut lose = Some(lose);
        let mut before = None;
        let ends_well = adversary.has_done_all();
        let summary = runtime.block_on(async {
            let launched = launch(LaunchConfig {
                checkpoints: checkpoints.cloned(),
                ..LaunchConfig::this_program(*job.staffing())?.on(device)?
            });
            let finishing = launched.await?.finish(|launched, event| {
                if let Some(deed) = adversary.watch(launched, event) {
                    guide.done(&deed);
                }
                guide.show(event);
                if !adversary.has_done_all() || ends_well {
                    before = guide.saved();
                } else if guide.saved() > before
                    && let Some(lose) = lose.take()
                {
                    // It is not waited for only if the job is over.
                    let _ = lose.send(());
                }
            });
            tokio::select! {
                biased;
                Ok(()) = lost => Ok(None),
                // Dropped, it takes everything along.
                summary = finishing => summary.map(Some),
            }
        });
        screen.end();
        let summary = summary?;
        match &summary {
            Some(summary) => guide.conclude(summary),
            None => guide.lost(),
        }
        Ok(summary)
    }
}

fn conclude(screen: &Screen, disturbed: &Summary, undisturbed: &Summary) -> ExitCode {
    screen.line("");
    for (name, value) in &disturbed.results {
        screen.line(&format!("{} on the held-out images", showing::result(name, *value)));
    }
    screen.line(&format!("state after all that   {}", disturbed.hash));
    screen.line(&format!("state without it       {}", undisturbed.hash));
    if disturbed.hash == undisturbed.hash {
        screen.good("EQUAL, bit for bit");
        ExitCode::SUCCESS
    } else {
        screen.bad("DIFFERENT");
        ExitCode::FAILURE
    }
}
