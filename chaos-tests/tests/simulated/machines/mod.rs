//! Simulated clusters in the test suite: runs that are remembered, a few fresh ones, and what the simulator promises of itself.

mod groups;
mod hostile;

use std::time::{Duration, SystemTime};

use rayon::prelude::*;
use sardana_chaos_tests::simulation::campaign::Campaign;
use sardana_chaos_tests::simulation::story::Telling;
use sardana_chaos_tests::simulation::{
    Port, break_port, churn, come_back_to_a_newcomer, leave_undisturbed, load, outlive, place_anew, play, preempt,
    stand_still, work_without_end,
};
use strum::VariantArray;

/// Seeds worth trying again, each with the virtual minutes of its run and a word why.
const CORPUS: &str = include_str!("../../../corpus.txt");

fn replay(seed: u64, minutes: u64) -> String {
    format!("cargo run -p sardana-chaos-tests --release --bin simulate -- replay {seed} --minutes-per-run {minutes}")
}

#[test]
fn runs_that_are_remembered_violate_nothing() {
    let lines: Vec<&str> = CORPUS
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .collect();
    lines.par_iter().for_each(|line| {
        let mut words = line.split_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (Some(seed), Some(minutes)) = (number(), number()) else {
            panic!("a line of the corpus is: seed, minutes, why; found {line:?}");
        };
        let played = play(seed, minutes, Telling::No);
        assert_eq!(played.violation, None, "{line}; {}", replay(seed, minutes));
    });
    assert!(!lines.is_empty(), "the corpus is not empty");
}

#[test]
fn fresh_runs_violate_nothing() {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = since.map_or(0, |since| u64::try_from(since.as_micros() % 1_000_000_000).unwrap());
    let minutes = 10;
    println!("seed {seed}");
    let campaign = Campaign {
        seed,
        enough: Duration::MAX,
        runs: 12,
        until: None,
        minutes,
        threads: 2,
    };
    let report = campaign.fight(|_| ());
    let found: Vec<String> = report
        .violations
        .iter()
        .map(|(seed, violation)| format!("{violation}\nto replay it: {}", replay(*seed, minutes)))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(report.runs, 12);
    assert_eq!(report.lacks(), Vec::<String>::new());
    assert!(report.counts.steps > 0 && report.counts.all_faults() > 0 && report.counts.generations > 0);
}

#[test]
fn one_seed_decides_the_whole_story() {
    for seed in [3, 4] {
        let (once, again) = (play(seed, 5, Telling::Digest), play(seed, 5, Telling::Digest));
        assert_ne!(once.digest, 0);
        assert_eq!(once.digest, again.digest, "seed {seed}");
        assert_eq!(once.counts.events, again.counts.events);
        assert_ne!(
            once.digest,
            play(seed + 10, 5, Telling::Digest).digest,
            "another seed, another story"
        );
    }
}

/// A job that loses machines all the time needs checkpoints most.
#[test]
fn preemption_without_end_does_not_starve_checkpoints() {
    // In the last ones steps are so short, and hashing is so long, that no holder can keep all sums until it is done.
    let seeds: Vec<u64> = (0..24).chain([126, 476, 584]).collect();
    seeds.into_par_iter().for_each(|seed| {
        let played = preempt(seed, 30);
        assert_eq!(played.violation, None, "seed {seed}");
        assert!(played.longest <= played.bound, "seed {seed}: {played:?}");
        assert!(played.struck >= 5 && played.saved > played.struck, "seed {seed}: {played:?}");
    });
}

/// A state of 100 GiB takes a quarter of an hour over 1 Gbit/s, and longer over most links.
#[test]
fn a_state_that_takes_long_to_move_arrives_and_nobody_is_left_out_for_it() {
    let mut longest = Duration::ZERO;
    for seed in 0..24 {
        let played = load(seed);
        assert_eq!(played.violation, None, "seed {seed}");
        assert_eq!(played.killed, 0, "seed {seed}: {played:?}");
        let resumed = played.resumed.unwrap_or_else(|| panic!("seed {seed}: {played:?}"));
        assert!(resumed >= played.transfer, "seed {seed}: {played:?}");
        assert!(played.joined.is_some(), "seed {seed}: {played:?}");
        longest = longest.max(played.transfer);
    }
    assert!(longest > Duration::from_secs(1_800), "some take long: {longest:?}");
}

#[test]
fn a_checkpoint_that_takes_long_to_be_placed_anew_is_ordered_once() {
    let mut longest = Duration::ZERO;
    for seed in 0..8 {
        let played = place_anew(seed);
        assert_eq!(played.violation, None, "seed {seed}");
        let took = played.took.unwrap_or_else(|| panic!("seed {seed}: {played:?}"));
        assert!(took >= played.transfer, "seed {seed}: {played:?}");
        assert_eq!(played.orders, 2, "seed {seed}: one for each host, {played:?}");
        longest = longest.max(took);
    }
    assert!(longest > Duration::from_secs(1_800), "some take long: {longest:?}");
}

/// Five kills a second among four processes: each lives for less than a second on average, and most of them must be training by then.
#[test]
fn a_fleet_that_loses_a_process_every_moment_trains_on() {
    let lasts = Duration::from_secs(30);
    for seed in 0..20 {
        let undisturbed = churn(seed, Duration::MAX / 2, lasts);
        let killed = churn(seed, Duration::from_millis(200), lasts);
        for played in [&undisturbed, &killed] {
            assert_eq!(played.violation, None, "seed {seed}");
        }
        assert_eq!((undisturbed.kills, killed.kills), (0, 149));
        // A successor is there after 150 ms and copies a state of 5 ms: before the next kill. So at most two of four are without the state,
        // and the last kill alone may not leave a single one.
        assert_eq!(killed.longest_alone, Duration::ZERO, "seed {seed}");
        let whole = undisturbed.steps;
        assert!(killed.states_lost == 0, "seed {seed}: {killed:?} of {whole} steps");
        assert!(killed.steps * 10 >= whole * 6, "seed {seed}: {killed:?} of {whole} steps");
    }
}

/// Where kills come faster than successors, one process is the last to have the state now and then. Else `longest_alone` would be
/// zero whatever happened.
#[test]
fn a_fleet_that_loses_processes_faster_than_they_come_is_seen_to_hang_by_one() {
    let alone = (0..20).map(|seed| churn(seed, Duration::from_millis(50), Duration::from_secs(10)).longest_alone);
    assert!(alone.max() > Some(Duration::ZERO));
}

/// From three workers on, all but one can be linked with each other, which shows whose fault it is. Between two nothing shows it: the
/// healthy one may go first, and another while no checkpoint holds what the one that is left alone has.
#[test]
fn only_who_has_a_broken_port_is_left_out() {
    for (workers, at_most) in [(2, 2), (3, 0), (4, 0), (8, 0)] {
        for &port in Port::VARIANTS {
            for seed in 0..12 {
                let played = break_port(seed, workers, port);
                let what = || format!("seed {seed}, {workers} workers, {port:?}: {played:?}");
                assert_eq!(played.violation, None, "{}", what());
                assert!(played.broken_left_out, "{}", what());
                assert!(played.healthy_left_out <= at_most, "{}", what());
                assert!(played.whole.is_some() && played.steps > 5, "{}", what());
            }
        }
    }
}

/// Two checks that long campaigns make only now and then, since chance hardly ever brings about what they look at.
#[test]
fn what_is_hardly_ever_asked_is_asked_here() {
    for seed in 0..12 {
        for (what, asked) in [
            ("a newcomer", come_back_to_a_newcomer(seed)),
            ("work without end", work_without_end(seed)),
        ] {
            assert_eq!(asked.violation, None, "seed {seed}: {what}");
            assert!(asked.times > 0, "seed {seed}: {what} leads to no such check");
        }
    }
}

/// What a person sees who has stopped a process: its agent sees it within a tick, `STOPPED_GRACE` is over, and the coordinator's next tick finds
/// it.
#[test]
fn a_process_that_its_agent_sees_stopped_is_left_out_within_a_second() {
    for workers in [2, 3, 8] {
        for seed in 0..12 {
            let played = stand_still(seed, workers);
            let what = || format!("seed {seed}, {workers} workers: {played:?}");
            assert_eq!(played.violation, None, "{}", what());
            let left_out = played.left_out.unwrap_or_else(|| panic!("{}", what()));
            assert!(left_out <= Duration::from_secs(1), "{}", what());
        }
    }
}

/// Nothing stays of a worker that has ended and said how much it had computed.
#[test]
fn a_job_that_outlives_thousands_of_workers_does_not_grow() {
    let lives = 1_400;
    let played = outlive(3, lives);
    println!("{played:?}");
    assert_eq!(played.violation, None);
    assert!(played.generations >= u64::from(lives / 2), "{played:?}");
    // Numbers get longer, and what a life leaves for a while is more at one time than at another. One id of each would be 17,000.
    let (first, last) = (played.first, played.last);
    for (first, last) in [(first.coordinator, last.coordinator), (first.oldest, last.oldest)] {
        assert!(first > 0 && last < first + 8_000, "{first} bytes of text have become {last}");
    }
}

/// Shards move while no worker comes or goes, also towards the end, and each gradient is computed once.
#[test]
fn a_job_that_loses_no_worker_computes_each_gradient_once() {
    let mut moved = 0;
    for seed in 0..24 {
        for stopped in [None, Some(seed)] {
            let workers = 1 + u32::try_from(seed % 8).unwrap_or(0);
            let played = leave_undisturbed(seed, workers, stopped);
            let what = || format!("seed {seed}, {workers} workers, stopped at {stopped:?}: {played:?}");
            assert_eq!(played.violation, None, "{}", what());
            assert_eq!((played.once, played.again), (Some(played.computed), 0), "{}", what());
            moved += u64::from(played.moved > 0);
        }
    }
    println!("shards moved in {moved} of 48 jobs");
    assert!(moved > 16, "shards moved in {moved} of 48 jobs");
}
