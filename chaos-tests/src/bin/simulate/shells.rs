//! `simulate shells`: the real shells in virtual time, many seeds or the story of one.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use sardana_chaos_tests::shells::circumstances::Trouble;
use sardana_chaos_tests::shells::story::Telling;
use sardana_chaos_tests::shells::{Counts, never, play};

/// Runs the real coordinator and workers over real QUIC, on a network in memory, in virtual time, under faults. Each run's job must end in
/// the bits of a plain loop.
#[derive(Debug, Args)]
pub(crate) struct Shells {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first one; the next ones follow.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Tells the story of this seed, and of no other.
    #[arg(long, conflicts_with_all = ["seeds", "seed", "twice"])]
    replay: Option<u64>,
    /// Plays each seed twice, and compares each datagram's time and size.
    #[arg(long)]
    twice: bool,
    /// Without faults.
    #[arg(long)]
    calm: bool,
}

/// What all runs went through.
#[derive(Debug, Default)]
struct Sum {
    runs: u64,
    failed: u64,
    datagrams: u64,
    lost: u64,
    counts: Counts,
    virtual_time: Duration,
}

impl Shells {
    /// Plays, and prints.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let trouble = if self.calm { Trouble::None } else { Trouble::Faults };
        if let Some(seed) = self.replay {
            let played = play(seed, trouble, Telling::All)?;
            println!("{:?}, digest {:016x}", played.traffic, played.digest);
            return Ok(match played.violation {
                Some(violation) => {
                    println!("VIOLATION {violation}");
                    ExitCode::FAILURE
                }
                None => ExitCode::SUCCESS,
            });
        }
        if self.seeds == 0 {
            bail!("expected at least one seed, found --seeds 0");
        }
        let began = Instant::now();
        let mut sum = Sum::default();
        for seed in self.seed..self.seed.saturating_add(self.seeds) {
            self.one(seed, trouble, &mut sum)?;
        }
        let (runs, failed) = (sum.runs, sum.failed);
        for (what, often) in &sum.counts {
            println!("{often:8} {what}");
        }
        println!(
            "{runs} runs, {failed} failed; {} datagrams ({} lost), {:.0} virtual seconds in {:.1} s",
            sum.datagrams,
            sum.lost,
            sum.virtual_time.as_secs_f64(),
            began.elapsed().as_secs_f64()
        );
        let missing = if self.calm { Vec::new() } else { never(&sum.counts, runs) };
        for what in &missing {
            println!("LACKING: there was never: {what}");
        }
        Ok(if failed == 0 && missing.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn one(&self, seed: u64, trouble: Trouble, sum: &mut Sum) -> Result<()> {
        let played = play(seed, trouble, Telling::No)?;
        let mut wrong = played.violation.clone();
        if self.twice {
            let again = play(seed, trouble, Telling::No)?;
            let pairs = played.datagrams.iter().zip(&again.datagrams);
            if let Some((one, other)) = pairs.clone().find(|(one, other)| one != other) {
                wrong = Some(format!("it does not replay: {one}, and the second time {other}"));
            } else if played.datagrams.len() != again.datagrams.len() {
                wrong = Some("it does not replay: one run is longer".to_owned());
            }
        }
        sum.runs += 1;
        sum.datagrams += played.traffic.sent;
        sum.lost += played.traffic.lost + played.traffic.cut_off;
        for (what, often) in &played.counts {
            *sum.counts.entry(what).or_insert(0) += often;
        }
        sum.virtual_time += played.took;
        if let Some(wrong) = wrong {
            sum.failed += 1;
            let calm = if self.calm { " --calm" } else { "" };
            println!("seed {seed}: {wrong}\n  to replay it: simulate shells --replay {seed}{calm}");
        }
        Ok(())
    }
}
