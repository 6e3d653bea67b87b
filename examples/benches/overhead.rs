//! One worker through the whole runtime (process, coordinator, agent, counting) against the same loop without it: the time from
//! the first update to the last, run in turn, as a ratio. Wall time, and the processor time of the thread that trains, which other
//! load on the machine does not disturb.
//!
//! `cargo bench -p sardana-examples --bench overhead`

use std::process::Command;

use anyhow::{Context, Result};
use sardana::job::JobBuilder;
use sardana::launch::{LaunchConfig, launch};
use sardana::{reference, serve_if_started_by_agent};
use sardana_examples::digits;

mod timed;
use timed::{Timed, Took};

const ROUNDS: usize = 9;

/// Says that this process is to run the plain loop and print its seconds.
const PLAIN: &str = "SARDANA_BENCH_PLAIN";

fn job() -> JobBuilder {
    digits::job().epochs(120)
}

fn main() -> Result<()> {
    let job = job().build()?;
    serve_if_started_by_agent(&job, Timed::new);
    if std::env::var_os(PLAIN).is_some() {
        let mut model = Timed::new(job.spec()).map_err(anyhow::Error::from_boxed)?;
        reference::train(job.spec(), &mut model)?;
        let Took { wall, training, process } = model.took();
        println!("{wall} {training} {process}");
        return Ok(());
    }
    let steps = job.spec().steps.get() as f64 - 1.0;
    let (mut wall, mut busy) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (plain, through) = (plain()?, through(&job)?);
        // The first round warms up.
        if round > 0 {
            wall.push(through.wall / plain.wall);
            busy.push(through.training / plain.training);
            let us = |took: Took| format!("{:.1} ({:.1})", took.wall * 1e6 / steps, took.training * 1e6 / steps);
            println!(
                "round {round}: us/step wall (processor): plain {}, runtime {}",
                us(plain),
                us(through)
            );
        }
    }
    for (name, ratios) in [("wall", wall), ("processor", busy)] {
        println!("overhead/digits/1-worker/{name}: ratio {}", timed::spread(ratios, 4));
    }
    Ok(())
}

fn plain() -> Result<Took> {
    let output = Command::new(std::env::current_exe()?)
        .env(PLAIN, "1")
        .env("RAYON_NUM_THREADS", "1")
        .output()?;
    let printed = String::from_utf8(output.stdout)?;
    timed::parse(&printed).with_context(|| format!("expected three numbers of seconds, found {printed:?}"))
}

fn through(job: &sardana::Job) -> Result<Took> {
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut config = LaunchConfig::this_program(*job.staffing())?;
        config.environment = vec![
            ("RAYON_NUM_THREADS".into(), "1".into()),
            (timed::FOLDER.into(), folder.path().into()),
        ];
        launch(config).await?.finish(|_, _| {}).await
    })?;
    timed::mean_of(folder.path(), 1)
}
