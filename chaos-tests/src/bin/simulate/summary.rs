//! What a campaign says in the end: for people, and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use sardana_chaos_tests::simulation::campaign::Report;
use sardana_chaos_tests::simulation::coverage::expected;
use sardana_chaos_tests::simulation::tally::Counts;
use serde::Serialize;

use super::Many;

/// A campaign in numbers.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    seed: u64,
    minutes_per_run: u64,
    took_seconds: f64,
    runs: u64,
    hours_asked_for: u64,
    hours_at_least: u64,
    cluster_hours: f64,
    faults: BTreeMap<&'static str, u64>,
    all_faults: u64,
    #[serde(flatten)]
    counts: Counts,
    invariants_checked: BTreeMap<&'static str, u64>,
    excused: BTreeMap<&'static str, u64>,
    lacks: Vec<String>,
    transitions_expected: usize,
    transitions_reached: usize,
    not_reached: Vec<String>,
    reached: BTreeMap<String, u64>,
    violations: Vec<Found>,
}

/// Something that did not hold.
#[derive(Debug, Serialize)]
struct Found {
    seed: u64,
    violation: String,
    replay: String,
}

impl Summary {
    pub(crate) fn of(seed: u64, many: &Many, took: Duration, report: &Report) -> Self {
        let minutes_per_run = many.minutes_per_run;
        let counts = &report.counts;
        let (expected, missing) = (expected().len(), report.coverage.missing());
        let reached = report.coverage.reached();
        let found = |(seed, violation): &(u64, sardana_chaos_tests::simulation::Violation)| Found {
            seed: *seed,
            violation: violation.to_string(),
            replay: format!(
                "cargo run -p sardana-chaos-tests --release --bin simulate -- replay {seed} --minutes-per-run {minutes_per_run}"
            ),
        };
        Self {
            seed,
            minutes_per_run,
            took_seconds: took.as_secs_f64(),
            runs: report.runs,
            hours_asked_for: many.hours,
            hours_at_least: many.at_least.min(many.hours),
            cluster_hours: report.counted.as_secs_f64() / 3_600.0,
            faults: counts.faults.clone(),
            all_faults: counts.all_faults(),
            counts: counts.clone(),
            invariants_checked: report.checked.clone(),
            excused: report.excused.clone(),
            lacks: report.lacks(),
            transitions_expected: expected,
            transitions_reached: expected - missing.len(),
            not_reached: missing.iter().map(|reached| name(*reached)).collect(),
            reached: reached.into_iter().map(|(reached, times)| (name(reached), times)).collect(),
            violations: report.violations.iter().map(found).collect(),
        }
    }
}

fn name((machine, from, to): sardana_chaos_tests::simulation::coverage::Reached) -> String {
    if to.is_empty() {
        format!("{machine}: {from}")
    } else {
        format!("{machine}: {from} -> {to}")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = &self.counts;
        writeln!(
            f,
            "{:.1} cluster-hours in {} runs, {:.0} s: {} events",
            self.cluster_hours, self.runs, self.took_seconds, counts.events
        )?;
        if self.cluster_hours < self.hours_asked_for as f64 && self.violations.is_empty() {
            let (asked, least) = (self.hours_asked_for, self.hours_at_least);
            let verdict = if self.cluster_hours < least as f64 {
                "TOO FEW"
            } else {
                "enough"
            };
            writeln!(
                f,
                "time was over: asked for were {asked} hours, at least {least} are needed: {verdict}"
            )?;
        }
        writeln!(
            f,
            "{} generations, {} steps, {} updates, {} gradients; the state was lost {} times",
            counts.generations, counts.steps, counts.updates, counts.gradients, counts.states_lost
        )?;
        let (saved, given_up) = (counts.checkpoints, counts.checkpoints_given_up);
        writeln!(
            f,
            "{saved} checkpoints committed, {given_up} given up, {} manifests fetched by more depots; {} times training began from one",
            counts.manifests_replicated, counts.resumed_from_checkpoints
        )?;
        let (lost, replayed) = (counts.messages_lost, counts.messages_replayed);
        writeln!(f, "{} faults; {lost} messages lost, {replayed} replayed", self.all_faults)?;
        for (fault, times) in &self.faults {
            writeln!(f, "  {times:>9} {fault}")?;
        }
        writeln!(f, "checks of invariants")?;
        for (invariant, times) in &self.invariants_checked {
            writeln!(f, "  {times:>12} {invariant}")?;
        }
        writeln!(f, "checks left out, or let pass")?;
        for (why, times) in &self.excused {
            writeln!(f, "  {times:>12} {why}")?;
        }
        let (reached, expected) = (self.transitions_reached, self.transitions_expected);
        writeln!(f, "{reached} of {expected} transitions, messages and events reached")?;
        for missing in &self.not_reached {
            writeln!(f, "  not reached: {missing}")?;
        }
        for lack in &self.lacks {
            writeln!(f, "LACKING: {lack}")?;
        }
        if self.violations.is_empty() {
            writeln!(f, "0 violations")?;
        }
        for Found { seed, violation, replay } in &self.violations {
            writeln!(f, "VIOLATION in the run of seed {seed}: {violation}\nto replay it: {replay}")?;
        }
        Ok(())
    }
}
