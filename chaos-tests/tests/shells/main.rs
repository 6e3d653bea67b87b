//! The second level of simulation in the test suite: the real shells over real QUIC on a network in memory, in virtual time.

use sardana_chaos_tests::shells::circumstances::Trouble;
use sardana_chaos_tests::shells::story::Telling;
use sardana_chaos_tests::shells::{Played, play};

fn replay(seed: u64) -> String {
    format!("cargo run -p sardana-chaos-tests --release --bin simulate -- shells --replay {seed}")
}

fn played(seed: u64, trouble: Trouble) -> Played {
    play(seed, trouble, Telling::No).unwrap()
}

/// Where two runs part, for whoever looks for the reason.
fn parting(one: &Played, other: &Played) -> String {
    let pairs = one.datagrams.iter().zip(&other.datagrams).enumerate();
    let datagram = pairs.into_iter().find(|(_, (one, other))| one != other);
    let lines = one.story.iter().zip(&other.story).find(|(one, other)| one != other);
    format!(
        "{} and {} datagrams; first that differs: {datagram:#?}; first line that differs: {lines:#?}",
        one.datagrams.len(),
        other.datagrams.len()
    )
}

fn assert_replays(seed: u64, trouble: Trouble) {
    let (once, again) = (played(seed, trouble), played(seed, trouble));
    assert!(once.datagrams == again.datagrams, "seed {seed}: {}", parting(&once, &again));
    assert_eq!(once.digest, again.digest);
    assert_eq!(once.story, again.story, "seed {seed}");
    assert!(once.traffic.sent > 100, "{:?}", once.traffic);
}

#[test]
fn without_faults_the_job_ends_in_the_bits_of_a_plain_loop() {
    let played = played(1, Trouble::None);
    assert_eq!(played.violation, None, "{}", played.story.join("\n"));
}

#[test]
fn one_seed_decides_each_datagram() {
    assert_replays(1, Trouble::None);
}
