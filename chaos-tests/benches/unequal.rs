//! What two workers of unequal speed do together, against what each does alone: samples per second over the sum of both.
//!
//! A gradient sleeps, in one worker four times as long as in the other, so that the host's processors do not matter. Each alone, then
//! both with even ranges, as they begin, then both after shards have moved. All times are those of one host, over loopback.
//!
//! `cargo bench -p sardana-chaos-tests --bench unequal [-- [SHARDS,SHARDS...]]`; 24 and 96 shards unless told otherwise.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sardana::launch::{Event, Launched, launch};
use sardana::{Balance, Calm, GenerationEvent, JobEvent};
use sardana_chaos_tests::journal::{Deed, Journal};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Trial, reported};
use tokio::time::timeout;

const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

/// How many times as long the slow worker takes.
const SLOWER: u32 = 4;

/// What the fast worker alone sleeps in a step.
const STEP: Duration = Duration::from_millis(120);

/// Steps that are not measured: before the first, and around a change.
const MARGIN: u64 = 3;

/// A run that takes longer is stuck.
const LIMIT: Duration = Duration::from_secs(120);

/// What is measured, and how.
#[derive(Debug, Clone, Copy)]
struct Measure {
    shards: u32,
    /// How many steps.
    steps: u64,
    balance: Balance,
}

impl Measure {
    fn setup(self, workers: u32, slower: u32) -> Setup {
        let rest_us = STEP.as_micros() as u64 / u64::from(self.shards);
        Setup {
            shards: self.shards,
            batch: self.shards.into(),
            samples: u64::from(self.shards) * 4,
            steps: 1 << 40,
            rest_us,
            slower,
            balance: self.balance,
            ..Setup::new(workers)
        }
    }

    /// Samples per second of a worker that is alone.
    async fn alone(self, slower: u32) -> Result<f64> {
        let trial = Trial::new(WORKER, self.setup(1, slower))?;
        let last = MARGIN + self.steps;
        run(&trial, async |launched| wait_for_step(launched, last).await).await?;
        self.rate(&trial, MARGIN, last)
    }

    /// Samples per second of both workers, before and after shards have moved, and how many shards each has then.
    async fn together(self) -> Result<(f64, f64, Vec<u32>)> {
        let trial = Trial::new(WORKER, self.setup(2, SLOWER))?;
        let (mut moved_at, mut loads) = (0, Vec::new());
        run(&trial, async |launched| {
            (moved_at, loads) = wait_for_move(launched).await?;
            wait_for_step(launched, moved_at + MARGIN + self.steps).await
        })
        .await?;
        let before = self.rate(&trial, MARGIN, moved_at)?;
        let from = moved_at + MARGIN;
        Ok((before, self.rate(&trial, from, from + self.steps)?, loads))
    }

    /// Samples per second between two updates, by the journal of the process that wrote first.
    fn rate(self, trial: &Trial, from: u64, to: u64) -> Result<f64> {
        let journal = Journal::read(trial.folder())?;
        let life = journal.lines.first().context("somebody has computed")?.life;
        let ended = |step: u64| {
            let mut lines = journal.lines.iter().filter(|line| line.life == life && line.step == step);
            let update = lines.find(|line| matches!(line.deed, Deed::Update { .. }));
            update
                .map(|line| line.end_ns)
                .with_context(|| format!("step {step} is not written down"))
        };
        ensure!(from < to, "there is nothing between step {from} and step {to}");
        let seconds = (ended(to)? - ended(from)?) as f64 / 1e9;
        Ok((to - from) as f64 * f64::from(self.shards) / seconds)
    }
}

/// Runs a job until `watch` has seen enough, and demands that each gradient was computed once.
async fn run(trial: &Trial, watch: impl AsyncFnOnce(&mut Launched) -> Result<()>) -> Result<()> {
    let mut launched = launch(trial.config()?).await?;
    let seen = timeout(LIMIT, watch(&mut launched)).await;
    launched.steering().request_stop();
    let summary = timeout(LIMIT, launched.finish(|_, _| {}))
        .await
        .context("the job does not end")??;
    match seen {
        Ok(seen) => seen?,
        Err(_) => bail!("what was waited for did not come within {LIMIT:?}"),
    }
    let whole = u64::from(trial.setup.shards) * summary.step.get();
    ensure!(
        (summary.computed, summary.recomputed, summary.unknown) == (whole, 0, 0),
        "the counts do not agree: {summary:?}"
    );
    Ok(())
}

async fn wait_for_step(launched: &mut Launched, step: u64) -> Result<()> {
    loop {
        let event = launched.next_event().await.context("the job ended")?;
        if reported(&event).is_some_and(|reported| reported >= step) {
            return Ok(());
        }
    }
}

/// Since when shards lie otherwise, and how many each member has.
async fn wait_for_move(launched: &mut Launched) -> Result<(u64, Vec<u32>)> {
    loop {
        let event = launched.next_event().await.context("the job ended")?;
        if let Event::Job(JobEvent::Generation(GenerationEvent::Switched { step, shards, .. })) = event {
            return Ok((step.get(), shards.iter().map(|shards| shards.len()).collect()));
        }
    }
}

async fn measure(what: Measure) -> Result<()> {
    let fast = what.alone(1).await?;
    let slow = what.alone(SLOWER).await?;
    let (before, after, loads) = what.together().await?;
    let sum = fast + slow;
    println!("unequal/{} shards, samples per second", what.shards);
    println!("  the fast one alone {fast:.1}, the slow one alone {slow:.1}, sum {sum:.1}");
    println!(
        "  together with even ranges         {before:>8.1}, {:.3} of the sum",
        before / sum
    );
    println!(
        "  together with ranges of {:<9} {after:>8.1}, {:.3} of the sum",
        format!("{loads:?}"),
        after / sum
    );
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    // Tests of all targets run this as well; then it only has to work.
    let (sizes, steps, balance) = if benchmark {
        ("24,96", 40, Balance::default())
    } else {
        let time = Duration::from_millis(500);
        ("24", 5, Balance::After(Calm { time, steps: 5 }))
    };
    let given = arguments.iter().find(|argument| !argument.starts_with("--"));
    let sizes = given.map_or(sizes, String::as_str);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for shards in sizes.split(',') {
        let shards = shards.parse()?;
        runtime.block_on(measure(Measure { shards, steps, balance }))?;
    }
    Ok(())
}
