//! Random schedules: a seed decides how many workers there are, and who is killed when.
//!
//! `SARDANA_CHAOS_SEED=n cargo test -p sardana-chaos-tests seeds` runs just that one, `n..m` the seeds from n to below m.

use std::ops::Range;

use anyhow::Result;
use sardana::JobEvent;
use sardana::fault::Point;
use sardana::launch::Event;
use sardana_chaos_tests::dice::Dice;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Hands, reported};

use crate::trial;

const VARIABLE: &str = "SARDANA_CHAOS_SEED";

/// When the adversary strikes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// When this step was reported.
    Step(u64),
    /// At the next event of a kind.
    Next(Kind),
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Joined,
    Lost,
    Halting,
    Forming,
    Formed,
    Resumed,
}

impl Kind {
    fn is(self, event: &Event) -> bool {
        let Event::Job(event) = event else { return false };
        match self {
            Self::Joined => matches!(event, JobEvent::Joined { .. }),
            Self::Lost => matches!(event, JobEvent::Lost { .. }),
            Self::Halting => matches!(event, JobEvent::Halting { .. }),
            Self::Forming => matches!(event, JobEvent::Forming { .. }),
            Self::Formed => matches!(event, JobEvent::Formed { .. }),
            Self::Resumed => matches!(event, JobEvent::Resumed { .. }),
        }
    }
}

/// What a seed decides.
#[derive(Debug)]
struct Schedule {
    setup: Setup,
    moments: Vec<Moment>,
    faults: Vec<String>,
    dice: Dice,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let workers = 2 + u32::try_from(dice.below(7)).unwrap_or(0);
        let steps = 40;
        let setup = Setup {
            shards: dice.pick(&[8, 16]).unwrap_or(8),
            steps,
            work_us: 200 + dice.below(800),
            restarts: 20,
            ..Setup::new(workers)
        };
        let kinds = [
            Kind::Joined,
            Kind::Lost,
            Kind::Halting,
            Kind::Forming,
            Kind::Formed,
            Kind::Resumed,
        ];
        let mut moments = vec![Moment::Step(1 + dice.below(steps / 2))];
        for _ in 0..dice.below(3) {
            moments.push(match dice.below(3) {
                0 => Moment::Step(dice.below(steps)),
                _ => Moment::Next(dice.pick(&kinds).unwrap_or(Kind::Lost)),
            });
        }
        let mut faults = Vec::new();
        for _ in 0..dice.below(3) {
            if let Some(point) = dice.pick(&Point::ALL) {
                faults.push(format!("{}@{}", point.name(), 1 + dice.below(steps - 1)));
            }
        }
        Self {
            setup,
            moments,
            faults,
            dice,
        }
    }

    /// Strikes, if it is time: mostly one worker, sometimes two at once.
    fn watch(&mut self, hands: &mut Hands<'_>, event: &Event) {
        let due = match self.moments.first() {
            Some(Moment::Step(step)) => reported(event).is_some_and(|reported| reported >= *step),
            Some(Moment::Next(wanted)) => wanted.is(event),
            None => false,
        };
        if !due {
            return;
        }
        self.moments.remove(0);
        let victims = if self.dice.below(4) == 0 { 2 } else { 1 };
        for _ in 0..victims {
            if let Some(worker) = self.dice.pick(hands.running()) {
                hands.kill(worker);
            }
        }
    }
}

async fn run(seed: u64) -> Result<()> {
    let mut schedule = Schedule::new(seed);
    let replay = format!("{VARIABLE}={seed} cargo test -p sardana-chaos-tests seeds -- --nocapture\n{schedule:?}");
    let faults = std::mem::take(&mut schedule.faults);
    let trial = trial(schedule.setup.clone())?
        .faults(faults.iter().map(String::as_str))
        .may_not_fire()
        .replay(replay);
    let ended = trial.run(&[], |hands, event| schedule.watch(hands, event)).await?;
    let verdict = trial.judge(&ended)?;
    println!(
        "seed {seed}: {} processes, {} killed, {} fault points met, {} gradients computed again{}",
        ended.processes.len(),
        ended.kills,
        trial.fired(),
        verdict.summary.recomputed,
        if verdict.state_lost { ", the state was lost" } else { "" }
    );
    Ok(())
}

/// What the environment names belongs to the first range.
async fn run_all(mut seeds: Range<u64>) -> Result<()> {
    if let Ok(named) = std::env::var(VARIABLE) {
        let chosen = match named.split_once("..") {
            Some((from, to)) => from.parse()?..to.parse()?,
            None => named.parse()?..named.parse::<u64>()? + 1,
        };
        seeds = if seeds.start == 0 { chosen } else { 0..0 };
    }
    for seed in seeds {
        run(seed).await?;
    }
    Ok(())
}

#[tokio::test]
async fn seeds_from_0() -> Result<()> {
    run_all(0..8).await
}

#[tokio::test]
async fn seeds_from_8() -> Result<()> {
    run_all(8..16).await
}

#[tokio::test]
async fn seeds_from_16() -> Result<()> {
    run_all(16..24).await
}
