//! How long training stands still when one of three workers is killed: from the SIGKILL to the next applied step, as the launcher
//! sees it. `beyond` is that time less what the busiest survivor spent on gradients meanwhile, its own and those computed again.
//!
//! `cargo bench -p sardana-chaos-tests --bench recovery [-- KILLS]`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;
use sardana::launch::{Event, Launched, launch};
use sardana::{AgentEvent, GenerationEvent, JobEvent, WorkerEvent, WorkerId};
use sardana_chaos_tests::dice::Dice;
use sardana_chaos_tests::journal::{Deed, Journal, now_ns};
use sardana_chaos_tests::pace::quantile;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Trial, send};

const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

const WORKERS: u32 = 3;

/// A worker that lived shorter than this is replaced late, to spare a host whose program cannot start; that would be measured.
const GROWN_UP: Duration = Duration::from_millis(2_100);

/// Between two kills: so long that there is always a worker that has grown up, and that training is steady again.
const PACE: Duration = Duration::from_millis(1_050);

/// One kill.
#[derive(Debug)]
struct Sample {
    pid: u32,
    killed: Instant,
    begin_ns: u64,
    end_ns: u64,
    noticed: Duration,
    total: Duration,
    recomputed: u64,
}

/// What goes on between kills.
#[derive(Debug)]
struct Watch {
    members: Vec<WorkerId>,
    born: BTreeMap<WorkerId, Instant>,
    under_way: Option<(WorkerId, Sample)>,
    samples: Vec<Sample>,
    dice: Dice,
}

impl Watch {
    fn see(&mut self, event: &Event) {
        match event {
            Event::Agent(AgentEvent::Started { worker, .. }) => {
                self.born.insert(*worker, Instant::now());
            }
            Event::Job(JobEvent::Generation(GenerationEvent::Forming { members, recomputed, .. })) => {
                self.members.clone_from(members);
                if let Some((_, sample)) = &mut self.under_way {
                    sample.recomputed += recomputed;
                }
            }
            Event::Job(JobEvent::Generation(GenerationEvent::Switched { members, .. })) => self.members.clone_from(members),
            Event::Job(JobEvent::Worker(WorkerEvent::Lost { worker, .. })) => {
                if let Some((_, sample)) = self.under_way.as_mut().filter(|(victim, _)| victim == worker) {
                    sample.noticed = sample.killed.elapsed();
                }
            }
            Event::Job(JobEvent::Generation(GenerationEvent::Resumed { .. })) => {
                if let Some((_, mut sample)) = self.under_way.take() {
                    sample.total = sample.killed.elapsed();
                    sample.end_ns = now_ns();
                    self.samples.push(sample);
                }
            }
            Event::Job(_) | Event::Agent(_) => {}
        }
    }

    /// Kills a member that has grown up, if all are there.
    fn strike(&mut self, launched: &Launched) -> Result<()> {
        let grown_up = |worker: &&WorkerId| self.born.get(worker).is_some_and(|born| born.elapsed() >= GROWN_UP);
        let victims: Vec<WorkerId> = self.members.iter().filter(grown_up).copied().collect();
        if self.under_way.is_some() || self.members.len() < WORKERS as usize {
            return Ok(());
        }
        let Some(victim) = self.dice.pick(&victims) else {
            return Ok(());
        };
        let pid = launched.pid(victim).context("a member has a process")?;
        let sample = Sample {
            pid,
            killed: Instant::now(),
            begin_ns: now_ns(),
            end_ns: 0,
            noticed: Duration::ZERO,
            total: Duration::ZERO,
            recomputed: 0,
        };
        send(pid, Signal::KILL)?;
        self.under_way = Some((victim, sample));
        Ok(())
    }
}

async fn measure(name: &str, work_us: u64, kills: usize) -> Result<()> {
    let trial = Trial::new(
        WORKER,
        Setup {
            steps: 1 << 40,
            restarts: u32::MAX,
            work_us,
            ..Setup::new(WORKERS)
        },
    )?;
    let mut launched = launch(trial.config()?).await?;
    let mut watch = Watch {
        members: Vec::new(),
        born: BTreeMap::new(),
        under_way: None,
        samples: Vec::new(),
        dice: Dice::new(1),
    };
    let mut due = tokio::time::interval(PACE);
    // The first tick comes at once.
    due.tick().await;
    while watch.samples.len() < kills {
        tokio::select! {
            event = launched.next_event() => watch.see(&event.context("the job ended")?),
            _ = due.tick() => watch.strike(&launched)?,
        }
    }
    launched.steering().request_stop();
    let summary = launched.finish(|_, _| {}).await?;
    trial.counts_agree(&summary)?;
    let journal = Journal::read(trial.folder())?;
    print(name, &journal, &watch.samples);
    Ok(())
}

fn print(name: &str, journal: &Journal, samples: &[Sample]) {
    let mut gradients: Vec<f64> = Vec::new();
    let mut busy = vec![BTreeMap::<(u32, u64), u64>::new(); samples.len()];
    for line in journal.lines.iter().filter(|line| matches!(line.deed, Deed::Gradient { .. })) {
        gradients.push((line.end_ns - line.begin_ns) as f64 / 1e6);
        // Samples are in the order of time.
        let at = samples.partition_point(|sample| sample.end_ns <= line.begin_ns);
        if let Some(sample) = samples.get(at).filter(|sample| sample.pid != line.life.0) {
            let overlap = line
                .end_ns
                .min(sample.end_ns)
                .saturating_sub(line.begin_ns.max(sample.begin_ns));
            *busy[at].entry(line.life).or_default() += overlap;
        }
    }
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let recomputed = samples.iter().map(|sample| sample.recomputed).sum::<u64>() as f64 / samples.len() as f64;
    println!(
        "{name}: {} kills; a gradient takes {:.2} ms; {recomputed:.2} gradients computed again per kill",
        samples.len(),
        quantile(&mut gradients, 0.5)
    );
    row("  SIGKILL to notice", samples.iter().map(|sample| ms(sample.noticed)));
    row(
        "  SIGKILL to next applied step",
        samples.iter().map(|sample| ms(sample.total)),
    );
    let beyond = samples.iter().zip(&busy).map(|(sample, busy)| {
        let busiest = busy.values().max().copied().unwrap_or(0);
        ms(sample.total.saturating_sub(Duration::from_nanos(busiest)))
    });
    row("  beyond the survivors' gradients", beyond);
}

fn row(name: &str, values: impl Iterator<Item = f64>) {
    let mut values: Vec<f64> = values.collect();
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|quantum| quantile(&mut values, quantum));
    println!("{name:<34} p50 {p50:>8.2} ms   p99 {p99:>8.2} ms   max {max:>8.2} ms");
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let benchmark = arguments.any(|argument| argument == "--bench");
    let number = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    // Tests of all targets run this as well; then it only has to work.
    let kills = number.unwrap_or(if benchmark { 100 } else { 2 });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        measure("recovery/step of 40 ms/3", 13_300, kills).await?;
        measure("recovery/small step/3", 0, kills).await
    })
}
