//! `simulate`: clusters of the machines that ship, in virtual time, under faults, for as many cluster-hours as wanted. Prints what they
//! went through and how often each invariant was checked; a violation prints the seed, and the command that replays it.

mod groups;
#[cfg(feature = "processes")]
mod shells;
mod summary;

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use sardana_chaos_tests::simulation::campaign::{Campaign, Report};
use sardana_chaos_tests::simulation::hostile::{End, Siege, Withstood};
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
    /// Tells one run in which certified peers lie, event by event.
    Siege(Besieged),
    /// Lets bugs loose in the machines, one after the other, and counts the runs that it takes to find each.
    Bugs(Bugs),
    /// Plays groups, whose members make collective calls of their own.
    Groups(groups::Groups),
    /// Runs the real shells over real QUIC in virtual time: slower, and it finds what is wrong between machines and wire.
    #[cfg(feature = "processes")]
    Shells(shells::Shells),
}

#[derive(Debug, Args)]
struct Many {
    /// How many cluster-hours. Only time with at least 3 workers counts, of runs with at least 10 faults, 10 generations and 30
    /// steps an hour.
    #[arg(long, default_value_t = 10)]
    hours: u64,
    /// Ends after this time, as 30s, 5m or 1h, with the hours that it has by then: no run begins later.
    #[arg(long, value_parser = real_time)]
    within: Option<Duration>,
    /// Fewer hours than this fail, if time is over before all were simulated.
    #[arg(long, default_value_t = 0)]
    at_least: u64,
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
struct Besieged {
    /// The seed that a failing test has printed.
    seed: u64,
    /// A depot and an agent lie, not workers.
    #[arg(long)]
    others: bool,
    /// Workers lie only of the sums that they hand to joiners.
    #[arg(long, conflicts_with = "others")]
    keepers: bool,
}

#[derive(Debug, Args)]
struct Bugs {
    /// Only these, by name; all of them if none is given.
    only: Vec<String>,
    /// The first run's seed; the next ones follow.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A bug that so many runs have not found is missed.
    #[arg(long, default_value_t = 1_000)]
    runs: u64,
    /// For how many virtual minutes faults come in each run.
    #[arg(long, default_value_t = 30)]
    minutes_per_run: u64,
    /// On so many threads; as many as there are processors if it is not given.
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Do::Replay(replay)) => Ok(tell(&replay)),
        Some(Do::Siege(besieged)) => Ok(besiege(&besieged)),
        Some(Do::Bugs(bugs)) => hunt(&bugs),
        Some(Do::Groups(groups)) => groups.run(),
        #[cfg(feature = "processes")]
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

/// Walks through one run in which some lie.
fn besiege(besieged: &Besieged) -> ExitCode {
    let of = match (besieged.others, besieged.keepers) {
        (true, _) => Siege::of_others,
        (false, true) => Siege::of_keepers,
        (false, false) => Siege::drawn,
    };
    let siege = of(besieged.seed);
    let Withstood { end, largest, misled } = siege.play(Telling::From(0));
    println!("{end:?}; the coordinator's machine was at most {largest} bytes of text; joiners were handed {misled} lies");
    match end {
        End::Well | End::Failed(_) => ExitCode::SUCCESS,
        End::Violated(_) => ExitCode::FAILURE,
    }
}

#[cfg(feature = "planted-bugs")]
fn hunt(bugs: &Bugs) -> Result<ExitCode> {
    use sardana_chaos_tests::simulation::planted::{HEAD, Hunting};
    use sardana_protocol::planted::Bug;

    let wanted = |bug: &Bug| bugs.only.is_empty() || bugs.only.contains(&format!("{bug:?}"));
    let chosen: Vec<Bug> = Bug::ALL.iter().copied().filter(wanted).collect();
    if chosen.is_empty() {
        bail!("expected some of these bugs: {:?}; found {:?}", Bug::ALL, bugs.only);
    }
    let hunting = Hunting {
        seed: bugs.seed,
        runs: bugs.runs,
        minutes: bugs.minutes_per_run,
        threads: bugs.threads.unwrap_or_else(processors),
    };
    println!("{HEAD}");
    let hunts = hunting.hunt_all(&chosen, |hunt| println!("{hunt}"));
    let missed: Vec<Bug> = hunts
        .iter()
        .filter(|hunt| hunt.found.is_none())
        .map(|hunt| hunt.bug)
        .collect();
    println!("{} of {} bugs found", hunts.len() - missed.len(), hunts.len());
    Ok(if missed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(not(feature = "planted-bugs"))]
fn hunt(bugs: &Bugs) -> Result<ExitCode> {
    bail!("no bugs are compiled in: run this with `--features planted-bugs`; asked for was {bugs:?}")
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
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
    let began = Instant::now();
    let campaign = Campaign {
        seed,
        enough: hours(many.hours),
        runs: u64::MAX,
        until: many.within.map(|within| began + within),
        minutes: many.minutes_per_run,
        threads: many.threads.unwrap_or_else(processors),
    };
    if !many.json {
        println!("seed {seed}, {} threads", campaign.threads);
    }
    let bar = progress(many);
    let report = campaign.fight(|report| watch(&bar, report));
    bar.finish_and_clear();
    let summary = summary::Summary::of(seed, many, began.elapsed(), &report);
    if many.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{summary}");
    }
    let short = report.counted < hours(many.at_least.min(many.hours));
    Ok(if report.violations.is_empty() && report.lacks().is_empty() && !short {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours.saturating_mul(3_600))
}

/// A time with its unit.
fn real_time(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let time = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*seconds).filter(|seconds| *seconds < 1 << 32)
    });
    let expected = || format!("expected a time as 30s, 5m or 1h, found {text:?}");
    time.map(Duration::from_secs).ok_or_else(expected)
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
