//! A worker that comes to the state is waited for as long as something of it moves, and no longer (LIVE-1).

use super::*;
use crate::limits::{HALT_PATIENCE, LEAST_BYTES_A_SECOND, LOAD_MOST, STALL_UNKNOWN};

/// Between two heartbeats, and two ticks.
const BEAT: Duration = Duration::from_millis(500);

/// What one stream carries where a round trip takes 100 ms.
const SLOW: u64 = 20 << 20;

const HOUR: Duration = Duration::from_secs(3_600);

impl Job {
    /// Two workers of which the second fetches the state at s5 from the first, which waits for it.
    fn loading() -> Self {
        let mut job = Self::new(Config { min: 2, ..config() });
        job.arrives(1, 5);
        let told = job.arrives(2, 0);
        has(&told, "to w2: form g1.1 r1 at s5, state from r0");
        job.all_ready([1, 2], 1);
        job
    }

    /// A heartbeat of a worker that stands at `step`, with all its gradients, and has moved so many bytes.
    fn moved(&mut self, worker: u64, count: u64, step: u64, moved: u64) -> Vec<String> {
        let tally = Tally {
            total: 100,
            this_step: 2,
            ..tally(step)
        };
        self.says(worker, heartbeat(count, tally, moved, None))
    }

    /// Both beat until something is told, for `time` at most: how long that took, and what was told. The first has moved `of_donor` bytes
    /// after so long, the second `of_loader`.
    fn loads(
        &mut self,
        time: Duration,
        of_donor: impl Fn(Duration) -> u64,
        of_loader: impl Fn(Duration) -> u64,
    ) -> (Duration, Vec<String>) {
        let begin = self.now;
        while self.now - begin < time {
            let since = self.now - begin;
            self.moved(1, 1, 5, of_donor(since));
            self.moved(2, 1, 0, of_loader(since));
            let told = self.passes(BEAT);
            if !told.is_empty() {
                return (self.now - begin, told);
            }
        }
        (time, vec![])
    }
}

fn nothing(_: Duration) -> u64 {
    0
}

fn slowly(since: Duration) -> u64 {
    since.as_secs() * SLOW
}

#[test]
fn who_loads_is_waited_for_while_something_comes() {
    let mut job = Job::loading();
    assert_eq!(job.loads(4 * HOUR, nothing, slowly).1, [""; 0]);
}

#[test]
fn who_loads_and_gets_nothing_more_is_left_out() {
    let stops = 2 * HOUR;
    let mut job = Job::loading();
    let (after, told) = job.loads(4 * HOUR, nothing, |since| slowly(since.min(stops)));
    assert_eq!(told[..2], ["kill w2", "to w2: dismiss"]);
    let patience = after - stops;
    // The last bytes came a little before, when they were enough to count.
    let counted = Duration::from_secs(STALL_UNKNOWN.as_secs() * LEAST_BYTES_A_SECOND / SLOW) + 2 * BEAT;
    assert!(
        patience <= STALL_UNKNOWN && patience + counted >= STALL_UNKNOWN,
        "{patience:?}"
    );
    let mut job = Job::loading();
    let (after, told) = job.loads(4 * HOUR, nothing, nothing);
    assert_eq!((after, told[0].as_str()), (STALL_UNKNOWN, "kill w2"));
}

#[test]
fn a_byte_a_second_is_nothing() {
    let mut job = Job::loading();
    let (after, told) = job.loads(4 * HOUR, nothing, |since| since.as_secs());
    assert_eq!((after, told[0].as_str()), (STALL_UNKNOWN, "kill w2"));
    let mut job = Job::loading();
    let twice_the_least = |since: Duration| 2 * since.as_secs() * LEAST_BYTES_A_SECOND;
    assert_eq!(job.loads(4 * HOUR, nothing, twice_the_least).1, [""; 0]);
}

#[test]
fn who_says_without_end_that_it_loads_is_left_out_at_last() {
    let mut job = Job::loading();
    let (after, told) = job.loads(2 * LOAD_MOST, nothing, slowly);
    assert_eq!((after, told[0].as_str()), (LOAD_MOST, "kill w2"));
}

/// It hashes the state before it hands it over.
#[test]
fn who_waits_for_a_donor_that_is_busy_with_it_is_waited_for() {
    let mut job = Job::loading();
    assert_eq!(job.loads(4 * HOUR, slowly, nothing).1, [""; 0]);
}

/// Its training thread is at it, and a halt waits for that.
#[test]
fn a_halt_waits_for_who_loads_and_for_no_other() {
    let halting = || {
        let mut job = Job::loading();
        job.link_broken(1, 1, 2);
        job
    };
    let mut job = halting();
    job.halted(1, 2, 5);
    while job.now < HOUR {
        let bytes = slowly(job.now);
        job.moved(1, 2, 5, 0);
        job.moved(2, 2, 0, bytes);
        let told = job.passes(BEAT);
        assert!(told.iter().all(|said| said == "to w2: halt g1.2"), "{told:?}");
    }
    let mut job = halting();
    job.halted(2, 2, 0);
    let mut told = vec![];
    while !told.contains(&"kill w1".to_owned()) {
        assert!(job.now < HALT_PATIENCE, "who has the state has none to load");
        let bytes = slowly(job.now);
        job.moved(1, 2, 5, bytes);
        job.moved(2, 2, 0, 0);
        told = job.passes(BEAT);
    }
    assert_eq!(job.now, HALT_PATIENCE);
}
