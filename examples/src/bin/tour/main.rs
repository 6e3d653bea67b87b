//! The tour: trains real handwritten digits on four worker processes, two of which are killed, one leaves, two join, and one of
//! those is killed while it does. The final state is that of an undisturbed run, bit for bit.
//!
//! `cargo run --release`. Exits with 0 only if the two states are equal.

mod adversary;
mod guide;
mod screen;

use std::process::ExitCode;

use adversary::Adversary;
use anyhow::Result;
use guide::Guide;
use sardana::job::Staffing;
use sardana::launch::{LaunchConfig, launch};
use sardana::{Job, Summary, serve_if_started_by_agent};
use sardana_examples::digits::{self, Digits};
use screen::Screen;
use tracing_subscriber::EnvFilter;

fn main() -> Result<ExitCode> {
    // Twice as long as the example, so that all of it has its time.
    let job = digits::job().epochs(60).workers(4).restarts(8).build()?;
    serve_if_started_by_agent(&job, Digits::new);
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
    let disturbed = run(
        "four workers: two are killed, one leaves, two join, and one of those is killed",
        &job,
        &screen,
        Adversary::new(job.staffing().workers),
    )?;
    let alone = Staffing {
        workers: 1,
        ..*job.staffing()
    };
    let undisturbed = run("one worker, undisturbed", &job.staffed(alone)?, &screen, Adversary::idle())?;
    Ok(conclude(&screen, &disturbed, &undisturbed))
}

/// Runs the job once, and shows what happens.
fn run(title: &str, job: &Job, screen: &Screen, mut adversary: Adversary) -> Result<Summary> {
    screen.start(title);
    let mut guide = Guide::new(job, screen);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let summary = runtime.block_on(async {
        let launched = launch(LaunchConfig::this_program(*job.staffing())?).await?;
        launched
            .finish(|launched, event| {
                if let Some(deed) = adversary.watch(launched, event) {
                    guide.done(&deed);
                }
                guide.show(event);
            })
            .await
    });
    screen.end();
    let summary = summary?;
    guide.conclude(&summary);
    Ok(summary)
}

fn conclude(screen: &Screen, disturbed: &Summary, undisturbed: &Summary) -> ExitCode {
    screen.line("");
    for (name, value) in &disturbed.results {
        screen.line(&format!("{name} on the held-out images: {:.2} %", 100.0 * value));
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
