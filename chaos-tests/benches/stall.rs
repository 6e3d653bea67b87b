//! For how long a checkpoint holds training up, beside the time that copying the same bytes takes.
//!
//! Three worker processes train a model whose gradients take next to no time, so that no part of a copy hides behind them; most of its
//! state is not trained, so that its size is independent of the gradient's. Measured is by how much the step after a snapshot's boundary
//! is longer than the median of those that no checkpoint disturbs: until the last worker has made its update. Each worker copies two of
//! three shares, on a thread beside the one that trains, which waits for that before its update. Beside it: three threads of this process
//! that copy as many bytes each at the same time, share by share, into memory that is there. The jobs and the plain copies take turns.
//!
//! The runs named `behind gradients` have steps of about 40 ms that sleep, as gradients on a device do. In those named `outlived` updates do not wait
//! for the copy, as where they change little of the state.
//!
//! `cargo bench -p sardana-chaos-tests --bench stall [-- [MIB,MIB...] [ROUNDS]]`; sizes of 16 and 256 MiB unless told otherwise.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sardana::launch::{Event, launch};
use sardana::{CheckpointEvent, Checkpointing, JobEvent};
use sardana_chaos_tests::journal::{Deed, Journal, now_ns};
use sardana_chaos_tests::pace::quantile;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Trial;
use tokio::time::timeout;

const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

const WORKERS: u32 = 3;

/// A gradient's sleep: three of them make a step of 40 ms.
const REST_US: u64 = 13_300;

/// Between two checkpoints.
const EVERY: &str = "900ms";

/// So long before a snapshot memory is found for it, and so late a report may be: steps in that time are not undisturbed.
const MARGIN: Duration = Duration::from_millis(400);

/// Checkpoints of one job that count: not the first, nor the last, whose step may not have ended.
const CHECKPOINTS: usize = 5;

/// One job that takes longer is stuck.
const LIMIT: Duration = Duration::from_secs(120);

/// A snapshot, and the moments in nanoseconds since 1970.
#[derive(Debug)]
struct Taken {
    step: u64,
    whole_ns: u64,
    saved_ns: u64,
}

/// Milliseconds by which each snapshot of one job held the next update up, and the steps' median.
async fn job(ballast: usize, rest_us: u64, outlives_updates: bool) -> Result<(Vec<f64>, f64)> {
    let setup = Setup {
        steps: 1 << 40,
        ballast,
        rest_us,
        outlives_updates,
        ..Setup::new(WORKERS)
    };
    let trial = Trial::new(WORKER, setup)?;
    let mut config = trial.config()?;
    let folder = tempfile::tempdir_in(".")?;
    config.checkpoints = Some(Checkpointing::new(folder.path().join("store"), EVERY.parse()?));
    let mut launched = launch(config).await?;
    let mut taken: Vec<Taken> = Vec::new();
    let watching = async {
        while taken.iter().filter(|taken| taken.saved_ns < u64::MAX).count() < CHECKPOINTS + 2 {
            match launched.next_event().await.context("the job ended")? {
                Event::Job(JobEvent::Snapshot { step, .. }) => taken.push(Taken {
                    step: step.get(),
                    whole_ns: now_ns(),
                    saved_ns: u64::MAX,
                }),
                Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { .. })) => {
                    let last = taken.last_mut().context("a checkpoint is made of a snapshot")?;
                    last.saved_ns = now_ns();
                }
                Event::Job(_) | Event::Agent(_) => {}
            }
        }
        anyhow::Ok(())
    };
    timeout(LIMIT, watching).await.context("the job hangs")??;
    drop(launched);
    measure(&Journal::read(trial.folder())?, &taken)
}

fn measure(journal: &Journal, taken: &[Taken]) -> Result<(Vec<f64>, f64)> {
    // When the last worker had made each update.
    let mut ends = BTreeMap::<u64, (u64, u32)>::new();
    for line in journal.lines.iter().filter(|line| matches!(line.deed, Deed::Update { .. })) {
        let (end, count) = ends.entry(line.step).or_default();
        (*end, *count) = ((*end).max(line.end_ns), *count + 1);
    }
    ends.retain(|_, (_, count)| *count == WORKERS);
    let took = |step: u64| {
        let (end, _) = ends.get(&step)?;
        let (before, _) = ends.get(&step.checked_sub(1)?)?;
        Some((*end as f64 - *before as f64) / 1e6)
    };
    let margin = MARGIN.as_nanos() as u64;
    let disturbed = |ns: u64| {
        let within = |taken: &Taken| ns + margin > taken.whole_ns && ns < taken.saved_ns;
        taken.iter().any(within)
    };
    let undisturbed = ends.iter().filter(|(_, (end, _))| !disturbed(*end));
    let mut steps: Vec<f64> = undisturbed.filter_map(|(&step, _)| took(step)).collect();
    let median = quantile(&mut steps, 0.5);
    // A state that has had s updates is copied before the one of step s.
    let counted = taken.iter().skip(1).take(CHECKPOINTS);
    let stalls: Vec<f64> = counted.filter_map(|taken| Some(took(taken.step)? - median)).collect();
    ensure!(
        stalls.len() == CHECKPOINTS && median.is_finite(),
        "expected {CHECKPOINTS} snapshots and steps between them, found {taken:?}"
    );
    Ok((stalls, median))
}

/// Milliseconds from when the first of three threads begins to copy two thirds of `bytes`, one after the other, until the last has done so.
/// A third is not copied as fast as both at once where only the one is long enough to be written past the cache.
fn plain(bytes: usize, times: usize) -> Vec<f64> {
    let part = bytes / 3;
    let barrier = Barrier::new(WORKERS as usize);
    let copies = || {
        let from = [vec![3_u8; part], vec![4_u8; part]];
        let copy = |_| {
            let mut to = [vec![1_u8; part], vec![2_u8; part]];
            barrier.wait();
            let begun = Instant::now();
            to.iter_mut().zip(&from).for_each(|(to, from)| to.copy_from_slice(from));
            black_box(&mut to);
            (begun, Instant::now())
        };
        (0..times).map(copy).collect::<Vec<_>>()
    };
    let of_threads: Vec<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(copies)).collect();
        let copied = threads
            .into_iter()
            .map(|thread| thread.join().expect("copying does not panic"));
        copied.collect()
    });
    let of_time = |time: usize| of_threads.iter().map(move |copies| copies[time]);
    let took = |time: usize| {
        let (begun, ended) = (of_time(time).map(|(begun, _)| begun), of_time(time).map(|(_, ended)| ended));
        Some((ended.max()? - begun.min()?).as_secs_f64() * 1e3)
    };
    (0..times).filter_map(took).collect()
}

fn words(values: &mut [f64]) -> String {
    let [least, median, most] = [0.0, 0.5, 1.0].map(|share| quantile(values, share));
    format!("{median:.2} ms ({least:.2} to {most:.2})")
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let mut given = arguments.iter().filter(|argument| !argument.starts_with("--"));
    // Tests of all targets run this as well; then it only has to work.
    let sizes = given.next().map_or(if benchmark { "16,256" } else { "1" }, String::as_str);
    let rounds: usize = given
        .next()
        .map_or(Ok(if benchmark { 3 } else { 1 }), |given| given.parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for size in sizes.split(',') {
        let bytes = size.parse::<usize>()? << 20;
        let runs = [
            ("", 0, false),
            (", behind gradients", REST_US, false),
            (", behind gradients, outlived", REST_US, true),
        ];
        for (name, rest_us, outlives_updates) in runs {
            let (mut stalls, mut copies, mut steps) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..rounds {
                copies.extend(plain(bytes, CHECKPOINTS));
                let (stall, step) = runtime.block_on(job(bytes, rest_us, outlives_updates))?;
                stalls.extend(stall);
                steps.push(step);
            }
            let ratio = quantile(&mut stalls, 0.5) / quantile(&mut copies, 0.5);
            println!(
                "stall/{size} MiB/{WORKERS}{name}: {} checkpoints hold a step of {:.2} ms up for {}; plain copies take {}; ratio {ratio:.2}",
                stalls.len(),
                quantile(&mut steps, 0.5),
                words(&mut stalls),
                words(&mut copies)
            );
        }
    }
    Ok(())
}
