//! One worker through the whole runtime (process, coordinator, agent, counting) against the same loop without it: the time from
//! the first update to the last, run in turn, as a ratio. Wall time, and the processor time of the thread that trains, which other
//! load on the machine does not disturb.
//!
//! `cargo bench -p sardana-examples --bench overhead`

use std::cell::Cell;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use sardana::data::Shard;
use sardana::job::JobBuilder;
use sardana::launch::{LaunchConfig, launch};
use sardana::model::{GradientWriter, Mean, ModelError, TensorSpec, Trainable};
use sardana::{JobSpec, Step, reference, serve_if_started_by_agent};
use sardana_examples::digits::{self, Digits};

const ROUNDS: usize = 9;

/// Says that this process is to run the plain loop and print its seconds.
const PLAIN: &str = "SARDANA_BENCH_PLAIN";

/// Seconds.
#[derive(Clone, Copy, Default)]
struct Took {
    wall: f64,
    processor: f64,
}

/// Processor seconds of this thread so far.
fn processor() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Takes its place at the first update, so that starting up does not count.
struct Timed {
    model: Digits,
    last: Step,
    first_update: Cell<Option<(Instant, f64)>>,
    took: Cell<Took>,
}

impl Timed {
    fn new(spec: &JobSpec) -> Result<Self, ModelError> {
        let last = spec.steps.previous().ok_or("a job has steps")?;
        Ok(Self {
            model: Digits::new(spec)?,
            last,
            first_update: Cell::new(None),
            took: Cell::default(),
        })
    }
}

impl Trainable for Timed {
    fn gradients(&self) -> Vec<TensorSpec> {
        self.model.gradients()
    }

    fn auxiliary(&self) -> Vec<String> {
        self.model.auxiliary()
    }

    fn gradient(&self, shard: &Shard, out: &mut GradientWriter<'_>) -> Result<(), ModelError> {
        self.model.gradient(shard, out)
    }

    fn apply(&mut self, step: Step, mean: &Mean<'_>) -> Result<(), ModelError> {
        self.model.apply(step, mean)?;
        if step == Step::ZERO {
            // A probe comes here as well; the last time counts.
            self.first_update.set(Some((Instant::now(), processor())));
        }
        if step == self.last {
            let (since, before) = self.first_update.get().ok_or("the first update came before the last")?;
            self.took.set(Took {
                wall: since.elapsed().as_secs_f64(),
                processor: processor() - before,
            });
        }
        Ok(())
    }

    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.model.visit(visitor)
    }

    fn load(&mut self, tensor: &TensorSpec, bytes: &[u8]) -> Result<(), ModelError> {
        self.model.load(tensor, bytes)
    }

    fn evaluate(&self) -> Result<Vec<(String, f64)>, ModelError> {
        let Took { wall, processor } = self.took.get();
        Ok(vec![("wall".to_owned(), wall), ("processor".to_owned(), processor)])
    }
}

fn job() -> JobBuilder {
    digits::job().epochs(120)
}

fn main() -> Result<()> {
    let job = job().build()?;
    serve_if_started_by_agent(&job, Timed::new);
    if std::env::var_os(PLAIN).is_some() {
        let mut model = Timed::new(job.spec()).map_err(anyhow::Error::from_boxed)?;
        reference::train(job.spec(), &mut model)?;
        let Took { wall, processor } = model.took.get();
        println!("{wall} {processor}");
        return Ok(());
    }
    let steps = job.spec().steps.get() as f64 - 1.0;
    let (mut wall, mut busy) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (plain, through) = (plain()?, through(&job)?);
        // The first round warms up.
        if round > 0 {
            wall.push(through.wall / plain.wall);
            busy.push(through.processor / plain.processor);
            let us = |took: Took| format!("{:.1} ({:.1})", took.wall * 1e6 / steps, took.processor * 1e6 / steps);
            println!(
                "round {round}: us/step wall (processor): plain {}, runtime {}",
                us(plain),
                us(through)
            );
        }
    }
    for (name, mut ratios) in [("wall", wall), ("processor", busy)] {
        ratios.sort_by(f64::total_cmp);
        let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
        println!("overhead/digits/1-worker/{name}: ratio min {least:.4}, median {median:.4}, max {most:.4}");
    }
    Ok(())
}

fn plain() -> Result<Took> {
    let output = Command::new(std::env::current_exe()?)
        .env(PLAIN, "1")
        .env("RAYON_NUM_THREADS", "1")
        .output()?;
    let printed = String::from_utf8(output.stdout)?;
    let expected = || format!("expected two numbers of seconds, found {printed:?}");
    let (wall, processor) = printed.trim().split_once(' ').with_context(expected)?;
    Ok(Took {
        wall: wall.parse().with_context(expected)?,
        processor: processor.parse().with_context(expected)?,
    })
}

fn through(job: &sardana::Job) -> Result<Took> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let summary = runtime.block_on(async {
        let mut config = LaunchConfig::this_program(*job.staffing())?;
        config.environment = vec![("RAYON_NUM_THREADS".into(), "1".into())];
        launch(config).await?.finish(|_, _| {}).await
    })?;
    match summary.results.as_slice() {
        [(_, wall), (_, processor)] => Ok(Took {
            wall: *wall,
            processor: *processor,
        }),
        _ => anyhow::bail!("expected two measures of the worker, found {:?}", summary.results),
    }
}
