//! Random schedules: a seed decides how many workers there are, and who is killed, stopped, let go or called in when.
//!
//! `SARDANA_CHAOS_SEED=n cargo test -p sardana-chaos-tests seeds` runs just that one, `n..m` the seeds from n to below m.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;
use sardana::fault::Point;
use sardana::launch::Event;
use sardana::{Balance, Calm, JobEvent, WorkerId};
use sardana_chaos_tests::dice::Dice;
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Hands, reported};

use crate::trial;

/// Most workers at once.
const MOST: usize = 8;

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
    Leaving,
    Snapshot,
    CaughtUp,
    Switched,
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
            Self::Leaving => matches!(event, JobEvent::Leaving { .. }),
            Self::Snapshot => matches!(event, JobEvent::Snapshot { .. }),
            Self::CaughtUp => matches!(event, JobEvent::CaughtUp { .. }),
            Self::Switched => matches!(event, JobEvent::Switched { .. }),
        }
    }
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Joined,
        Self::Lost,
        Self::Halting,
        Self::Forming,
        Self::Formed,
        Self::Resumed,
        Self::Leaving,
        Self::Snapshot,
        Self::CaughtUp,
        Self::Switched,
    ];
}

/// What the adversary does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Kills a worker.
    Kill,
    /// Kills two at once.
    KillTwo,
    /// Stops one, and wakes it up when it was left out, or a few events later.
    Stop,
    /// Lets one leave.
    Drain,
    /// Calls one more in.
    Join,
    /// Calls two more in.
    JoinTwo,
}

impl Act {
    /// Often the gentle ones; one that costs five seconds seldom.
    const ALL: [Self; 13] = [
        Self::Kill,
        Self::Kill,
        Self::Kill,
        Self::KillTwo,
        Self::Stop,
        Self::Drain,
        Self::Drain,
        Self::Drain,
        Self::Join,
        Self::Join,
        Self::Join,
        Self::Join,
        Self::JoinTwo,
    ];
}

/// What a seed decides.
#[derive(Debug)]
struct Schedule {
    setup: Setup,
    moments: Vec<(Moment, Act)>,
    leaving: Vec<WorkerId>,
    /// Who is stopped, and for how many more events, unless it is left out before.
    stopped: Vec<(WorkerId, u64)>,
    faults: Vec<String>,
    dice: Dice,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let workers = 1 + u32::try_from(dice.below(7)).unwrap_or(0);
        let steps = 60;
        let setup = Setup {
            shards: dice.pick(&[8, 16]).unwrap_or(8),
            steps,
            work_us: 100 + dice.below(400),
            restarts: 20,
            slower: dice.pick(&[1, 4]).unwrap_or(1),
            balance: Balance::After(Calm {
                time: Duration::from_millis(500),
                steps: 3,
            }),
            gate_step: 4,
            ..Setup::new(workers)
        };
        let act = |dice: &mut Dice| dice.pick(&Act::ALL).unwrap_or(Act::Kill);
        let mut moments = vec![(Moment::Step(1 + dice.below(steps / 3)), act(&mut dice))];
        for _ in 0..1 + dice.below(4) {
            let moment = match dice.below(3) {
                0 => Moment::Step(dice.below(steps)),
                _ => Moment::Next(dice.pick(&Kind::ALL).unwrap_or(Kind::Lost)),
            };
            moments.push((moment, act(&mut dice)));
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
            leaving: Vec::new(),
            stopped: Vec::new(),
            faults,
            dice,
        }
    }

    /// Strikes, if it is time. The job may end when it wants to once nearly all is trained.
    fn watch(&mut self, hands: &mut Hands<'_>, event: &Event) {
        self.wake(hands, event);
        if reported(event).is_some_and(|step| step + 5 >= self.setup.steps) {
            hands.open(Place::Pace);
        }
        let due = match self.moments.first() {
            Some((Moment::Step(step), _)) => reported(event).is_some_and(|reported| reported >= *step),
            Some((Moment::Next(wanted), _)) => wanted.is(event),
            None => false,
        };
        if due {
            let (_, act) = self.moments.remove(0);
            self.act(hands, act);
        }
    }

    fn act(&mut self, hands: &mut Hands<'_>, act: Act) {
        let staying = hands.running().iter().filter(|worker| !self.leaving.contains(worker));
        let staying: Vec<WorkerId> = staying.copied().collect();
        match act {
            Act::Kill | Act::KillTwo => {
                for _ in 0..if act == Act::Kill { 1 } else { 2 } {
                    if let Some(worker) = self.dice.pick(hands.running()) {
                        hands.kill(worker);
                    }
                }
            }
            Act::Stop => {
                if let Some(worker) = self.dice.pick(hands.running()) {
                    hands.signal(worker, Signal::STOP);
                    self.stopped.push((worker, 1 + self.dice.below(8)));
                }
            }
            Act::Drain => {
                // One must stay: who has left is not replaced.
                if staying.len() > 1
                    && let Some(worker) = self.dice.pick(&staying)
                {
                    self.leaving.push(worker);
                    match self.dice.below(2) {
                        0 => hands.drain(worker),
                        _ => hands.signal(worker, Signal::TERM),
                    }
                }
            }
            Act::Join => hands.scale((staying.len() + 1).min(MOST)),
            Act::JoinTwo => hands.scale((staying.len() + 2).min(MOST)),
        }
    }

    /// Wakes up whom nobody waits for any more.
    fn wake(&mut self, hands: &mut Hands<'_>, event: &Event) {
        for (worker, events) in std::mem::take(&mut self.stopped) {
            let lost = matches!(event, Event::Job(JobEvent::Lost { worker: lost, .. }) if *lost == worker);
            match events.checked_sub(1) {
                Some(left) if !lost => self.stopped.push((worker, left)),
                Some(_) | None => hands.signal(worker, Signal::CONT),
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
    let ended = trial.run(&[Place::Pace], |hands, event| schedule.watch(hands, event)).await?;
    let verdict = trial.judge(&ended)?;
    println!(
        "seed {seed}: {} processes, {} killed, {} stopped, {} fault points met, {} gradients computed again{}",
        ended.processes.len(),
        ended.kills,
        ended.stops,
        trial.fired(),
        verdict.summary.recomputed,
        if verdict.state_lost { ", the state was lost" } else { "" }
    );
    Ok(())
}

/// All are seen to their end: each failure has a seed of its own.
async fn failing(seeds: Range<u64>) -> Vec<u64> {
    let mut failed = Vec::new();
    for seed in seeds {
        if let Err(error) = run(seed).await {
            println!("seed {seed} FAILED: {error:?}");
            failed.push(seed);
        }
    }
    failed
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
    // Mostly they wait, so that several may run at once.
    let middle = seeds.start + (seeds.end - seeds.start) / 2;
    let (mut failed, others) = tokio::join!(failing(seeds.start..middle), failing(middle..seeds.end));
    failed.extend(others);
    ensure!(failed.is_empty(), "these seeds failed: {failed:?}");
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
