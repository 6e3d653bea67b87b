//! Processes that make collective calls of their own, and come and go meanwhile: they count the points of a lattice in ever larger circles.
//!
//! `cargo run --release --bin group` starts four, `sardana run -n 3 -- target/release/group` three. Each round is a circle with a larger radius; each
//! rank counts its part of the columns, and `all_reduce` adds up. So the counts are the same whichever processes there are.

use anyhow::{Context, Result};
use clap::Parser;
use sardana::group::{Config, Group, GroupError, Member, MemberError, Order, Reduction, join};
use sardana::job::Staffing;
use sardana::launch::{LaunchConfig, launch};
use sardana::{Balance, Rank};
use tracing_subscriber::EnvFilter;

/// Counts the points with whole coordinates in circles, for pi, on four processes or as many as `sardana run -n N -- group` starts. Kill them,
/// add some: `sardana kill`, `sardana scale`.
#[derive(Parser)]
struct Arguments {
    /// How many circles
    #[arg(long, default_value_t = 2_000)]
    rounds: u64,
}

/// What a process has when a round ends, and what it gives to others that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    rounds: u64,
    /// Points in the last circle.
    points: u64,
    /// Of all counts so far, one after the other.
    digest: u64,
}

fn main() -> Result<()> {
    let Arguments { rounds } = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_writer(std::io::stderr)
        .init();
    match join(&Config::new("lattice").settings(rounds.to_string())) {
        Ok(member) => take_part(member, rounds).map_err(|error| match error.downcast_ref::<MemberError>() {
            Some(ended) => {
                eprintln!("{ended}");
                // By it an agent knows whether another process would fare better.
                std::process::exit(ended.exit_code());
            }
            None => error,
        }),
        Err(MemberError::NotInvited) => start_four(),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(error.exit_code());
        }
    }
}

/// This very program, as four processes that join.
fn start_four() -> Result<()> {
    let staffing = Staffing {
        workers: 4,
        min: 1,
        max: 8,
        restarts: 100,
        shard_capacity: None,
        balance: Balance::Off,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let launched = launch(LaunchConfig::this_program(staffing)?).await?;
        launched.finish(|_, event| sardana::train::log(event)).await
    })?;
    Ok(())
}

fn take_part(mut member: Member, rounds: u64) -> Result<()> {
    let mut progress = Progress {
        rounds: 0,
        points: 0,
        digest: 0,
    };
    while let Some(mut group) = member.next()? {
        let is_first = group.rank() == Rank::ZERO;
        let counted = count(&mut group, &mut progress, rounds);
        match counted.and_then(|()| member.finish(group)) {
            // The job is over; agents wait for what their programs still do.
            Ok(()) if is_first => return show(progress),
            Ok(()) => return Ok(()),
            // A process came, left or died. Whatever this one has counted it keeps.
            Err(error) if error.generation_is_over() => {}
            Err(error) => return Err(error).context("the ranks do not call the same"),
        }
    }
    Ok(())
}

fn count(group: &mut Group, progress: &mut Progress, rounds: u64) -> Result<(), GroupError> {
    agree(group, progress)?;
    while progress.rounds < rounds {
        let radius = progress.rounds + 1;
        let columns = group.part(radius as usize);
        let mut points: [u64; 1] = [columns.map(|x| column(radius, x as u64 + 1)).sum()];
        group.all_reduce(&mut points, Reduction::Sum, Order::Exact)?;
        // The origin, and four quadrants with an axis each.
        progress.points = 1 + 4 * (radius + points[0]);
        progress.digest = (progress.digest ^ progress.points).wrapping_mul(0x0100_0000_01b3);
        progress.rounds = radius;
    }
    Ok(())
}

/// All go on from where the one is that is the farthest: some may have the last round's count that others were refused, newcomers have nothing.
fn agree(group: &mut Group, progress: &mut Progress) -> Result<(), GroupError> {
    let mut newest = [progress.rounds];
    group.all_reduce(&mut newest, Reduction::Max, Order::Exact)?;
    let has_it = progress.rounds == newest[0];
    let mut root = [if has_it { u64::from(group.rank().get()) } else { u64::MAX }];
    group.all_reduce(&mut root, Reduction::Min, Order::Exact)?;
    let mut all = [progress.rounds, progress.points, progress.digest];
    group.broadcast(&mut all, Rank::at(root[0] as usize))?;
    let [rounds, points, digest] = all;
    *progress = Progress { rounds, points, digest };
    if group.rank() == Rank::ZERO {
        println!(
            "{}: {} processes go on at circle {rounds}",
            group.generation(),
            group.world_size()
        );
    }
    Ok(())
}

/// How many points with this `x` lie above the axis and in the circle.
fn column(radius: u64, x: u64) -> u64 {
    (radius * radius - x * x).isqrt()
}

fn show(progress: Progress) -> Result<()> {
    let Progress { rounds, points, digest } = progress;
    println!(
        "{points} points in a circle with radius {rounds}: pi is about {:.9}",
        points as f64 / (rounds * rounds) as f64
    );
    println!("digest of all counts: {digest:016x}");
    // What one process finds, without any other.
    let alone = (1..=rounds).fold(0, |digest: u64, radius| {
        let points = 1 + 4 * (radius + (1..=radius).map(|x| column(radius, x)).sum::<u64>());
        (digest ^ points).wrapping_mul(0x0100_0000_01b3)
    });
    anyhow::ensure!(digest == alone, "one process alone finds {alone:016x}");
    println!("EQUAL to what one process finds alone");
    Ok(())
}
