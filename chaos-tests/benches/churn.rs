//! How much of training is left when a random one of four worker processes is killed each 0.2, 1 or 5 seconds. Goodput: the steps that
//! the job has beyond where it stood when the time began, against those of the runs before and after in which no worker is killed, in the
//! same time. Steps that are lost with the state count for nothing. Each run's last state is compared with the plain loop's.
//!
//! `cargo bench -p sardana-chaos-tests --bench churn [-- ROUNDS [SECONDS]]`

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sardana::launch::{Event, Launched, launch};
use sardana::{AgentEvent, JobEvent, WorkerId};
use sardana_chaos_tests::dice::Dice;
use sardana_chaos_tests::pace::quantile;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Trial, members_of, send};

const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

const WORKERS: u32 = 4;

/// Between two kills.
const PACES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// What became of one run.
#[derive(Debug, Default)]
struct Run {
    /// Steps beyond where it stood when the time began.
    steps: u64,
    kills: u32,
    /// How often no worker had the state any more.
    states_lost: u32,
}

/// What goes on while the time runs.
#[derive(Debug)]
struct Watch {
    running: Vec<WorkerId>,
    members: usize,
    reached: u64,
    run: Run,
}

impl Watch {
    fn see(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Agent(AgentEvent::Started { worker, .. }) => self.running.push(*worker),
            Event::Agent(AgentEvent::Ended { worker, .. }) => self.running.retain(|running| running != worker),
            Event::Agent(AgentEvent::Short { left }) => anyhow::bail!("a worker was not replaced, {left} are left"),
            Event::Job(JobEvent::Steps(reports)) => {
                self.reached = reports.last().map_or(self.reached, |report| report.step.get() + 1);
            }
            Event::Job(JobEvent::StateLost { from, .. }) => {
                self.reached = from.get();
                self.run.states_lost += 1;
            }
            Event::Job(event) => self.members = members_of(event).map_or(self.members, <[_]>::len),
            Event::Agent(_) => {}
        }
        Ok(())
    }

    /// Kills one of the workers that run, whatever it does.
    fn strike(&mut self, launched: &Launched, dice: &mut Dice) -> Result<()> {
        let Some(pid) = dice.pick(&self.running).and_then(|victim| launched.pid(victim)) else {
            return Ok(());
        };
        send(pid, Signal::KILL)?;
        self.run.kills += 1;
        Ok(())
    }
}

/// One run of `lasts`, from when all workers train.
async fn run(setup: &Setup, pace: Option<Duration>, lasts: Duration, dice: &mut Dice) -> Result<Run> {
    let trial = Trial::new(WORKER, setup.clone())?;
    let mut launched = launch(trial.config()?).await?;
    let mut watch = Watch {
        running: Vec::new(),
        members: 0,
        reached: 0,
        run: Run::default(),
    };
    while watch.members < WORKERS as usize || watch.reached == 0 {
        watch.see(&launched.next_event().await.context("the job ended")?)?;
    }
    let (before, end) = (watch.reached, Instant::now() + lasts);
    let mut due = tokio::time::interval(pace.unwrap_or(lasts * 2));
    // The first tick comes at once.
    due.tick().await;
    while Instant::now() < end {
        tokio::select! {
            event = launched.next_event() => watch.see(&event.context("the job ended")?)?,
            _ = due.tick() => watch.strike(&launched, dice)?,
            () = tokio::time::sleep_until(end.into()) => {}
        }
    }
    watch.run.steps = watch.reached.saturating_sub(before);
    // A worker that waits for others has no state to stop with.
    loop {
        let event = launched.next_event().await.context("the job ended")?;
        watch.see(&event)?;
        if let Event::Job(JobEvent::Steps(_)) = event {
            break;
        }
    }
    launched.steering().request_stop();
    let summary = launched.finish(|_, _| {}).await?;
    let plain = Setup {
        steps: summary.step.get(),
        ..setup.clone()
    };
    let reference = plain.reference()?;
    ensure!(
        summary.hash == reference.hash,
        "BITS-1: expected {} at {}, found {}",
        reference.hash,
        summary.step,
        summary.hash
    );
    Ok(watch.run)
}

async fn measure(name: &str, rest_us: u64, rounds: u64, lasts: Duration) -> Result<()> {
    let setup = Setup {
        steps: 1 << 40,
        restarts: u32::MAX,
        rest_us,
        ..Setup::new(WORKERS)
    };
    let mut goodputs = PACES.map(|_| Vec::new());
    for round in 1..=rounds {
        let mut dice = Dice::new(round);
        let mut killed = Vec::new();
        // Whatever else the machine does meanwhile: before and after.
        let before = run(&setup, None, lasts, &mut dice).await?.steps;
        for pace in PACES {
            killed.push((pace, run(&setup, Some(pace), lasts, &mut dice).await?));
        }
        let after = run(&setup, None, lasts, &mut dice).await?.steps;
        println!("{name}, round {round}: {before} steps undisturbed before, {after} after");
        for ((pace, killed), goodputs) in killed.into_iter().zip(&mut goodputs) {
            let goodput = 2.0 * killed.steps as f64 / (before + after) as f64;
            println!(
                "  a kill each {:>3} s: goodput {goodput:.3}; {} kills, the state was lost {} times",
                pace.as_secs_f64(),
                killed.kills,
                killed.states_lost
            );
            goodputs.push(goodput);
        }
    }
    for (pace, mut goodputs) in PACES.into_iter().zip(goodputs) {
        let [min, median] = [0.0, 0.5].map(|share| quantile(&mut goodputs, share));
        println!(
            "{name}, a kill each {:>3} s: goodput min {min:.3}, median {median:.3}",
            pace.as_secs_f64()
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let benchmark = std::env::args().skip(1).any(|argument| argument == "--bench");
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    // Tests of all targets run this as well; then it only has to work.
    let rounds = numbers.next().unwrap_or(if benchmark { 5 } else { 1 });
    let lasts = Duration::from_secs(numbers.next().unwrap_or(if benchmark { 20 } else { 1 }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        measure("churn/small step/4", 0, rounds, lasts).await?;
        measure("churn/step of 10 ms/4", 5_000, rounds, lasts).await
    })
}
