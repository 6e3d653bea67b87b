//! `simulate`: clusters of the machines that ship, in virtual time, under faults, for as many cluster-hours as wanted. Prints what they
//! went through and how often each invariant was checked; a violation prints the seed, and the command that replays it.

mod shells;
mod summary;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use sardana_chaos_tests::simulation::campaign::{Campaign, Report};
use sardana_chaos_tests::simulation::coverage::COVERED_WITHIN;
use sardana_chaos_tests::simulation::play;
use sardana_chaos_tests::simulation::story::Telling;

/// Small things come and go by the million.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates training clusters under faults: the coordinator's and the workers' machines are the ones that ship; time, network,
/// disks and hosts are simulated, and do their worst. One seed decides a whole run.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Do>,
    #[command(flatten)]
    campaign: Many,
}

#[derive(Debug, Subcommand)]
enum Do {
    /// Tells one run, event by event.
    Replay(Replay),
    /// Lets bugs loose in the machines, one after the other, and counts the runs that it takes to find each.
    Bugs(Bugs),
    /// Runs the real shells over real QUIC in virtual time: slower, and it finds what is wrong between machines and wire.
    Shells(shells::Shells),
}

#[derive(Debug, Args)]
struct Many {
    /// How many cluster-hours. Only time with at least 3 workers counts, of runs with at least 10 faults, 10 generations and 30
    /// steps an hour.
    #[arg(long, default_value_t = 10)]
    hours: u64,
    /// The first run's seed; the next ones follow. Drawn if it is not given, and printed first.
    #[arg(long)]
    seed: Option<u64>,
    /// For how many virtual minutes faults come in each run, unless its job ends before.
    #[arg(long, default_value_t = 60)]
    minutes_per_run: u64,
    /// Prints the summary as JSON, and nothing else.
    #[arg(long)]
    json: bool,
    /// On so many threads; as many as there are processors if it is not given.
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Debug, Args)]
struct Replay {
    /// The seed that a violation has printed.
    seed: u64,
    /// Tells nothing before this event.
    #[arg(long, default_value_t = 0)]
    from_event: u64,
    /// As in the run to be replayed.
    #[arg(long, default_value_t = 60)]
    minutes_per_run: u64,
}

#[derive(Debug, Args)]
struct Bugs {
    /// The first run's seed; the next ones follow.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A bug that so many runs have not found is missed.
    #[arg(long, default_value_t = 400)]
    runs: u64,
    /// For how many virtual minutes faults come in each run.
    #[arg(long, default_value_t = 30)]
    minutes_per_run: u64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Do::Replay(replay)) => Ok(tell(&replay)),
        Some(Do::Bugs(bugs)) => hunt(&bugs),
        Some(Do::Shells(shells)) => shells.run(),
        None => fight(&arguments.campaign),
    }
}

/// Walks through one run.
fn tell(replay: &Replay) -> ExitCode {
    let played = play(replay.seed, replay.minutes_per_run, Telling::From(replay.from_event));
    let events = played.counts.events;
    match played.violation {
        Some(violation) => {
            println!("after {events} events: VIOLATION {violation}");
            ExitCode::FAILURE
        }
        None => {
            println!("after {events} events: nothing was violated");
            ExitCode::SUCCESS
        }
    }
}

#[cfg(feature = "planted-bugs")]
fn hunt(bugs: &Bugs) -> Result<ExitCode> {
    use sardana_chaos_tests::simulation::planted::hunt;
    use sardana_protocol::planted::Bug;

    let mut missed = 0;
    for bug in Bug::ALL {
        let hunt = hunt(bug, bugs.seed, bugs.runs, bugs.minutes_per_run);
        let (runs, seconds) = (hunt.runs, hunt.took.as_secs_f64());
        match hunt.found {
            Some((seed, violation)) => {
                let invariant = violation.invariant;
                println!("{bug:?}: found by {invariant} after {runs} runs, {seconds:.1} s (seed {seed})");
            }
            None => {
                missed += 1;
                println!("{bug:?}: NOT FOUND in {runs} runs, {seconds:.1} s");
            }
        }
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(not(feature = "planted-bugs"))]
fn hunt(bugs: &Bugs) -> Result<ExitCode> {
    let Bugs {
        seed,
        runs,
        minutes_per_run,
    } = bugs;
    bail!(
        "no bugs are compiled in: run this with `--features planted-bugs` (and --seed {seed} --runs {runs} --minutes-per-run \
         {minutes_per_run})"
    )
}

fn fight(many: &Many) -> Result<ExitCode> {
    if many.hours == 0 || many.minutes_per_run == 0 {
        bail!(
            "expected at least 1 hour and 1 minute a run, found {} and {}",
            many.hours,
            many.minutes_per_run
        );
    }
    let seed = match many.seed {
        Some(seed) => seed,
        None => fresh_seed()?,
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let campaign = Campaign {
        seed,
        enough: Duration::from_secs(many.hours.saturating_mul(3_600)),
        runs: u64::MAX,
        minutes: many.minutes_per_run,
        threads: many.threads.unwrap_or(processors),
    };
    if !many.json {
        println!("seed {seed}, {} threads", campaign.threads);
    }
    let bar = progress(many);
    let began = Instant::now();
    let report = campaign.fight(|report| watch(&bar, report));
    bar.finish_and_clear();
    let summary = summary::Summary::of(seed, many.minutes_per_run, began.elapsed(), &report);
    if many.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{summary}");
    }
    // A campaign that is long enough must also have been everywhere.
    let blind = report.counted >= COVERED_WITHIN && !report.coverage.missing().is_empty();
    Ok(if report.violations.is_empty() && !blind {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn fresh_seed() -> Result<u64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    // Small enough to be typed again.
    Ok(u64::try_from(since.as_micros() % 1_000_000_000)?)
}

fn progress(many: &Many) -> ProgressBar {
    if many.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(many.hours);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} cluster-hours, {msg}, {eta} to go");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn watch(bar: &ProgressBar, report: &Report) {
    bar.set_position(report.counted.as_secs() / 3_600);
    let (faults, generations) = (report.counts.all_faults(), report.counts.generations);
    bar.set_message(format!("{} runs, {faults} faults, {generations} generations", report.runs));
}
