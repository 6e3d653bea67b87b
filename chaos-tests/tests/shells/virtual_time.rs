//! The real shells over real QUIC on a network in memory, in virtual time: a seed decides alone what happens.

use std::time::{Duration, SystemTime};

use sardana_chaos_tests::shells::circumstances::Trouble;
use sardana_chaos_tests::shells::story::Telling;
use sardana_chaos_tests::shells::{COVERED_WITHIN, Counts, Played, never, play};

/// Seeds worth trying again, and what they found.
const REMEMBERED: [(u64, &str); 3] = [
    (1_057, "a handshake that the coordinator gave up counted as a refusal"),
    (
        1_387,
        "a worker that came again after a partition was refused as a second process",
    ),
    (1_660, "the same, with another fault"),
];

fn played(seed: u64, trouble: Trouble) -> Played {
    play(seed, trouble, Telling::No).expect("this machine can play a run")
}

/// Requires that the job ended in the bits of a plain loop, with all steps.
fn require(seed: u64, played: &Played) {
    let end = played.story.len().saturating_sub(30);
    assert_eq!(
        played.violation,
        None,
        "\n{}\nto replay it: cargo run -p sardana-chaos-tests --release --bin simulate -- shells --replay {seed}",
        played.story[end..].join("\n")
    );
}

/// Where two runs part, for a person who looks for the reason.
fn parting(one: &Played, other: &Played) -> String {
    let mut pairs = one.datagrams.iter().zip(&other.datagrams).enumerate();
    let datagram = pairs.find(|(_, (one, other))| one != other);
    let lines = one.story.iter().zip(&other.story).find(|(one, other)| one != other);
    format!(
        "{} and {} datagrams; first that differs: {datagram:#?}; first line that differs: {lines:#?}",
        one.datagrams.len(),
        other.datagrams.len()
    )
}

fn require_replay(seed: u64, trouble: Trouble) -> Played {
    let (once, again) = (played(seed, trouble), played(seed, trouble));
    assert!(once.datagrams == again.datagrams, "seed {seed}: {}", parting(&once, &again));
    assert_eq!(once.digest, again.digest);
    assert_eq!(once.traffic, again.traffic);
    assert_eq!(once.story, again.story, "seed {seed}");
    assert!(once.traffic.sent > 100, "{:?}", once.traffic);
    once
}

#[test]
fn without_faults_the_job_ends_in_the_bits_of_a_plain_loop() {
    for seed in 1..4 {
        let played = require_replay(seed, Trouble::None);
        require(seed, &played);
        assert_eq!(played.counts.get("Done"), Some(&1));
        assert_eq!((played.traffic.lost, played.counts.get("faults")), (0, None));
    }
}

#[test]
fn one_seed_decides_each_datagrams_time_and_size() {
    let digests: Vec<u64> = (20..32).map(|seed| require_replay(seed, Trouble::Faults).digest).collect();
    let mut different = digests.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), digests.len(), "another seed, another run");
}

#[test]
fn seeds_that_are_remembered_find_nothing_any_more() {
    for (seed, why) in REMEMBERED {
        println!("seed {seed}: {why}");
        require(seed, &played(seed, Trouble::Faults));
    }
}

#[test]
fn runs_under_faults_end_in_the_bits_of_a_plain_loop_and_go_everywhere() {
    let mut counts = Counts::new();
    for seed in 100..100 + COVERED_WITHIN {
        let played = played(seed, Trouble::Faults);
        require(seed, &played);
        for (what, often) in played.counts {
            *counts.entry(what).or_insert(0) += often;
        }
    }
    let missing = never(&counts, COVERED_WITHIN);
    assert!(missing.is_empty(), "never: {missing:?}; {counts:#?}");
}

#[test]
fn fresh_seeds_end_in_the_bits_of_a_plain_loop() {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let first = since.map_or(0, |since| u64::try_from(since.as_micros() % 1_000_000_000).unwrap());
    println!("seeds from {first}");
    for seed in first..first + 10 {
        require(seed, &played(seed, Trouble::Faults));
    }
}

/// Requires that the coordinator found, after this time, the ring that had trained meanwhile, and left it as it was.
fn require_adopted(minutes: u64, trouble: impl Fn(Duration) -> Trouble) {
    let away = Duration::from_secs(60 * minutes);
    let played = played(minutes, trouble(away));
    require(minutes, &played);
    assert!(played.took > away, "{:?}", played.took);
    let count = |what| played.counts.get(what).copied();
    let once = (count("fault: the coordinator killed"), count("Adopted"), count("Done"));
    assert_eq!(once, (Some(1), Some(1), Some(1)), "{minutes} minutes: {:#?}", played.counts);
    for worse in ["Lost", "StateLost", "Halting"] {
        assert_eq!(count(worse), None, "{minutes} minutes: {:#?}", played.counts);
    }
}

#[test]
fn a_ring_that_trained_while_its_coordinator_was_away_is_adopted() {
    for minutes in [20, 30, 45, 59] {
        require_adopted(minutes, Trouble::Away);
    }
}

#[test]
fn a_ring_whose_certificates_have_run_out_meanwhile_renews_them_and_is_adopted() {
    require_adopted(59, Trouble::AwayTooLong);
}

#[test]
fn a_worker_that_computes_wrongly_is_found() {
    let played = played(1, Trouble::WrongBit);
    let violation = played.violation.expect("one bit of one state is wrong");
    assert!(
        violation.contains("STEP-1") && violation.contains("update of s5"),
        "{violation}"
    );
}
