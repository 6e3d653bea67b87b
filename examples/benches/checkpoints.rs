//! What it costs to ask for a checkpoint at every step: the steps per second of the digits job, with one asked for at each, as a share of
//! those with none. Runs take turns; each is a job of its own, in worker processes, with the coordinator and the checkpoint actor in
//! this one. Its folder is on the disk that this is run on. The time is from the first update to the last: that the last state is saved
//! before the job is done comes after it.
//!
//! A checkpoint that is due while another is written is merged with the next: so they are a continuous stream, as fast as they become
//! durable. `cargo bench -p sardana-examples --bench checkpoints [-- [WORKERS,WORKERS...] [ROUNDS] [EPOCHS]]`

use std::path::Path;

use anyhow::{Context, Result};
use rustix::time::ClockId;
use sardana::launch::{Event, LaunchConfig, launch};
use sardana::{CheckpointEvent, Checkpointing, Job, JobEvent, SaveCounts, serve_if_started_by_agent};
use sardana_examples::digits;

mod timed;
use timed::{Timed, Took, seconds};

/// What is measured.
struct Asked {
    workers: Vec<u32>,
    rounds: usize,
    epochs: u64,
}

impl Asked {
    fn from_arguments() -> Result<Self> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        // Tests of all targets run this as well; then it only has to work.
        let benchmark = arguments.iter().any(|argument| argument == "--bench");
        let mut given = arguments.iter().filter(|argument| !argument.starts_with("--"));
        let mut next = |otherwise: &str| given.next().map_or(otherwise.to_owned(), String::clone);
        let workers = next(if benchmark { "1,2" } else { "1" });
        Ok(Self {
            workers: workers.split(',').map(str::parse).collect::<Result<_, _>>()?,
            rounds: next(if benchmark { "5" } else { "1" }).parse()?,
            epochs: next(if benchmark { "150" } else { "2" }).parse()?,
        })
    }
}

/// One run.
struct Run {
    took: Took,
    /// Processor seconds of this process: the coordinator, the agent, the checkpoint actor.
    here: f64,
    saves: SaveCounts,
    /// Milliseconds that each checkpoint took from its snapshot to its last byte on the disk.
    saved: Vec<f64>,
}

impl Run {
    /// Processor seconds of all processes: what other load on the machine disturbs less than the time on the wall.
    fn processor(&self, workers: u32) -> f64 {
        self.took.process * f64::from(workers) + self.here
    }
}

fn main() -> Result<()> {
    let asked = Asked::from_arguments()?;
    let job = |workers| digits::job().epochs(asked.epochs).workers(workers).build();
    serve_if_started_by_agent(&job(1)?, Timed::new);
    for &workers in &asked.workers {
        measure(&job(workers)?, workers, asked.rounds)?;
    }
    Ok(())
}

fn measure(job: &Job, workers: u32, rounds: usize) -> Result<()> {
    let place = tempfile::tempdir_in(".")?;
    let steps = job.spec().steps.get() as f64 - 1.0;
    println!("checkpoints/digits/{workers}-workers: {steps} steps between two times");
    let (mut ratios, mut busy, mut saved) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let none = run(job, workers, None)?;
        let folder = place.path().join(round.to_string());
        let every = run(job, workers, Some(&folder))?;
        // The first round warms up.
        if round > 0 {
            ratios.push(none.took.wall / every.took.wall);
            busy.push(none.processor(workers) / every.processor(workers));
            println!(
                "  round {round}: {:.3} of the steps per second with none, {:.3} of the steps per second of a processor",
                none.took.wall / every.took.wall,
                none.processor(workers) / every.processor(workers)
            );
            print("none", &none, steps);
            print("each step", &every, steps);
            saved.extend(every.saved);
        }
    }
    for (what, values, digits) in [
        ("steps per second: ratio", ratios, 3),
        ("steps per second of a processor: ratio", busy, 3),
        ("snapshot to committed, ms:", saved, 1),
    ] {
        let spread = timed::spread(values, digits);
        println!("checkpoints/digits/{workers}-workers/{what} {spread}");
    }
    Ok(())
}

fn run(job: &Job, workers: u32, checkpoints: Option<&Path>) -> Result<Run> {
    let folder = tempfile::tempdir()?;
    let mut saved = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Starting up does not count.
    let mut before = None;
    let summary = runtime.block_on(async {
        let mut config = LaunchConfig::this_program(*job.staffing())?;
        config.environment = vec![
            ("RAYON_NUM_THREADS".into(), "1".into()),
            (timed::FOLDER.into(), folder.path().into()),
        ];
        if let Some(folder) = checkpoints {
            config.checkpoints = Some(Checkpointing::new(folder, "1".parse()?));
        }
        let launched = launch(config).await?;
        let finished = launched.finish(|_, event| match event {
            Event::Job(JobEvent::Steps(_)) if before.is_none() => before = Some(seconds(ClockId::ProcessCPUTime)),
            Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { took, .. })) => saved.push(took.as_secs_f64() * 1e3),
            Event::Job(_) | Event::Agent(_) => {}
        });
        anyhow::Ok(finished.await?)
    })?;
    Ok(Run {
        took: timed::mean_of(folder.path(), workers)?,
        here: seconds(ClockId::ProcessCPUTime) - before.context("steps are reported")?,
        saves: summary.saves,
        saved,
    })
}

fn print(name: &str, run: &Run, steps: f64) {
    let Took { wall, training, process } = run.took;
    let us = |seconds: f64| seconds * 1e6 / steps;
    println!(
        "    {name:<9} {:>7.1} steps/s; processor us/step: training thread {:.1}, worker {:.1}, coordinator and checkpoint actor {:.1}",
        steps / wall,
        us(training),
        us(process),
        us(run.here)
    );
    let SaveCounts {
        committed,
        given_up,
        merged,
        largest_lag,
    } = run.saves;
    if committed + given_up + merged > 0 {
        println!("      {committed} committed, {merged} merged, {given_up} given up, at most {largest_lag} steps behind");
    }
}
