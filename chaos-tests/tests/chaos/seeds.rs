//! Random schedules: a seed decides how many workers there are, and which are killed, stopped, let go or called in when.
//!
//! `SARDANA_CHAOS_SEED=n cargo test -p sardana-chaos-tests seeds` runs just that seed, `n..m` the seeds from n to below m.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;
use sardana::fault::{Point, Role};
use sardana::launch::Event;
use sardana::{Balance, Calm, JobEvent, WorkerEvent, WorkerId};
use sardana_chaos_tests::dice::Dice;
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Hands, reported};
use strum::{IntoStaticStr, VariantArray};

use crate::trial;

/// Most workers at once.
const MOST: usize = 8;

const VARIABLE: &str = "SARDANA_CHAOS_SEED";

/// These jobs keep no checkpoints.
const OF_CHECKPOINTS: [Point; 4] = [Point::Saving, Point::Written, Point::Lending, Point::RestoredShare];

/// So many seeds must have armed fault points, and met one in `LEAST_MET` of them.
const ENOUGH: u64 = 8;

/// See [`ENOUGH`].
const LEAST_MET: usize = 4;

/// When the adversary strikes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// When this step was reported.
    Step(u64),
    /// At the next event of a kind.
    Next(Kind),
}

/// Kinds of events, called as the events are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, IntoStaticStr)]
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
        matches!(event, Event::Job(event) if event.name() == <&str>::from(self))
    }
}

/// What the adversary does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Kills a worker.
    Kill,
    /// Kills two workers at once.
    KillTwo,
    /// Stops a worker, and wakes it up when it was left out, or a few events later.
    Stop,
    /// Lets a worker leave.
    Drain,
    /// Calls one more worker in.
    Join,
    /// Calls two more workers in.
    JoinTwo,
}

impl Act {
    /// Often the gentle acts; the act that costs five seconds seldom.
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

/// An act that is still to come.
#[derive(Debug)]
struct Planned {
    moment: Moment,
    /// When this step was reported it comes, whether there was such a moment or not: nothing that is planned is left out.
    latest: u64,
    act: Act,
}

/// What a seed decides.
#[derive(Debug)]
struct Schedule {
    setup: Setup,
    planned: Vec<Planned>,
    /// The step that was reported last.
    reported: u64,
    leaving: Vec<WorkerId>,
    /// The workers that are stopped, and for how many more events, unless they are left out before.
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
            // Of the larger ones chunks lie where other processes read them; with two each or less to compute each of three to eight workers owns some.
            elements: if seed % 3 == 2 { 300_000 } else { 1_500 },
            ..Setup::new(workers)
        };
        let acts = 2 + dice.below(4);
        let planned = (0..acts).map(|number| Planned {
            moment: match dice.below(3) {
                0 => Moment::Step(1 + dice.below(steps / 2)),
                _ => Moment::Next(dice.pick(Kind::VARIANTS).unwrap_or(Kind::Lost)),
            },
            latest: steps / 2 + number,
            act: dice.pick(&Act::ALL).unwrap_or(Act::Kill),
        });
        let planned = planned.collect();
        let reachable: Vec<Point> = Point::of(Role::Worker)
            .filter(|point| !OF_CHECKPOINTS.contains(point))
            .collect();
        let mut faults = Vec::new();
        for _ in 0..dice.below(3) {
            if let Some(point) = dice.pick(&reachable) {
                faults.push(format!("{}@{}", point.name(), 1 + dice.below(steps / 2)));
            }
        }
        Self {
            setup,
            planned,
            reported: 0,
            leaving: Vec::new(),
            stopped: Vec::new(),
            faults,
            dice,
        }
    }

    /// Strikes with all that is due. An act that finds no worker is due again at the next event. The job may end when it wants to once
    /// nearly all is trained.
    fn watch(&mut self, hands: &mut Hands<'_>, event: &Event) {
        self.wake(hands, event);
        self.reported = reported(event).unwrap_or(self.reported);
        if self.reported + 5 >= self.setup.steps {
            hands.open(Place::Pace);
        }
        for mut planned in std::mem::take(&mut self.planned) {
            let due = match planned.moment {
                Moment::Step(step) => self.reported >= step,
                Moment::Next(wanted) => wanted.is(event),
            };
            if !due && self.reported < planned.latest {
                self.planned.push(planned);
            } else if !self.act(hands, planned.act) {
                planned.moment = Moment::Step(0);
                self.planned.push(planned);
            }
        }
    }

    /// Whether there was a worker to do it to.
    fn act(&mut self, hands: &mut Hands<'_>, act: Act) -> bool {
        let staying = hands.running().iter().filter(|worker| !self.leaving.contains(worker));
        let staying: Vec<WorkerId> = staying.copied().collect();
        match act {
            Act::Kill => self.kill(hands),
            Act::KillTwo => {
                let killed = self.kill(hands);
                if killed {
                    // Where only one worker runs, only that one is killed.
                    self.kill(hands);
                }
                killed
            }
            Act::Stop => {
                let Some(worker) = self.dice.pick(hands.running()) else {
                    return false;
                };
                self.stopped.push((worker, 1 + self.dice.below(8)));
                hands.send(worker, Signal::STOP)
            }
            Act::Drain => {
                // One worker must stay: a worker that has left is not replaced. Where there is no other, one is called in first.
                if staying.len() < 2 {
                    hands.scale(2);
                    return false;
                }
                let Some(worker) = self.dice.pick(&staying) else {
                    return false;
                };
                self.leaving.push(worker);
                match self.dice.below(2) {
                    0 => {
                        hands.drain(worker);
                        true
                    }
                    _ => hands.send(worker, Signal::TERM),
                }
            }
            Act::Join | Act::JoinTwo => {
                let more = if act == Act::Join { 1 } else { 2 };
                // Where there are as many workers as there may be, one makes room.
                if staying.len() + more > MOST {
                    return self.kill(hands);
                }
                hands.scale(staying.len() + more);
                true
            }
        }
    }

    fn kill(&mut self, hands: &mut Hands<'_>) -> bool {
        let worker = self.dice.pick(hands.running());
        worker.is_some_and(|worker| hands.send(worker, Signal::KILL))
    }

    /// Wakes up workers that are not waited for any more.
    fn wake(&mut self, hands: &mut Hands<'_>, event: &Event) {
        for (worker, events) in std::mem::take(&mut self.stopped) {
            let lost =
                matches!(event, Event::Job(JobEvent::Worker(WorkerEvent::Lost { worker: lost, .. })) if *lost == worker);
            match events.checked_sub(1) {
                Some(left) if !lost => self.stopped.push((worker, left)),
                Some(_) | None => hands.signal(worker, Signal::CONT),
            }
        }
    }
}

/// How many fault points were armed, and how many processes have died at one.
#[derive(Debug, Default, Clone, Copy)]
struct Fired {
    armed: usize,
    fired: usize,
}

async fn run(seed: u64) -> Result<Fired> {
    let mut schedule = Schedule::new(seed);
    let replay = format!("{VARIABLE}={seed} cargo test -p sardana-chaos-tests seeds -- --nocapture\n{schedule:?}");
    let faults = std::mem::take(&mut schedule.faults);
    let trial = trial(schedule.setup.clone())?
        .faults(faults.iter().map(String::as_str))
        .may_not_fire()
        .replay(replay);
    let ended = trial.run(&[Place::Pace], |hands, event| schedule.watch(hands, event)).await?;
    // The plain loop takes a while, and this thread has another seed's coordinator as well.
    let judging = tokio::task::spawn_blocking(move || trial.judge(&ended).map(|verdict| (verdict, trial, ended)));
    let (verdict, trial, ended) = judging.await??;
    trial.demand(&ended, schedule.planned.is_empty(), "all that was planned was done")?;
    println!(
        "seed {seed}: {} processes, {} killed, {} stopped, {} fault points met, {} gradients computed again{}",
        ended.processes.len(),
        ended.kills,
        ended.stops,
        trial.fired(),
        verdict.summary.recomputed,
        if verdict.state_lost { ", the state was lost" } else { "" }
    );
    Ok(Fired {
        armed: faults.len(),
        fired: trial.fired(),
    })
}

/// All seeds are seen to their end: each failure has a seed of its own.
async fn run_each(seeds: Range<u64>) -> (Fired, Vec<u64>) {
    let (mut fired, mut failed) = (Fired::default(), Vec::new());
    for seed in seeds {
        match run(seed).await {
            Ok(one) => {
                fired.armed += one.armed;
                fired.fired += one.fired;
            }
            Err(error) => {
                println!("seed {seed} FAILED: {error:?}");
                failed.push(seed);
            }
        }
    }
    (fired, failed)
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
    let ((one, mut failed), (other, others)) = tokio::join!(run_each(seeds.start..middle), run_each(middle..seeds.end));
    failed.extend(others);
    ensure!(failed.is_empty(), "these seeds failed: {failed:?}");
    let (armed, fired) = (one.armed + other.armed, one.fired + other.fired);
    println!("of {armed} fault points that were armed {fired} were met");
    // A random fault point may never be reached. One seed may have armed none.
    let enough = seeds.end - seeds.start < ENOUGH || (armed > 0 && fired * LEAST_MET >= armed);
    ensure!(enough, "of {armed} fault points that were armed only {fired} were met");
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
