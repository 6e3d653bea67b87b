//! The job with gradients that NCCL sums, in worker processes on a twin driver and a twin of NCCL. In fast order the final state depends on the workers, so that
//! it is only near the plain loop's.

use std::ffi::OsString;

use sardana::Summary;
use sardana_twins::{DriverFiles, Planted};

use super::runs::{Environment, Run, Seen, env};
use super::site::{Site, site};

const BEGUN: &str = "all ranks sum by NCCL";

/// Workers on these GPUs, whose gradients NCCL sums; and where they meet.
fn run(site: &Site, workers: u32, gpus: &[&str], more: impl IntoIterator<Item = (OsString, OsString)>) -> (Seen, Summary) {
    let meetings = tempfile::tempdir().unwrap();
    let berths: Vec<Environment> = gpus.iter().map(|gpu| site.gpu(gpu)).collect();
    let mut run = Run::new(site, workers).on(&berths);
    run.waits_for_all = true;
    run.arguments = vec!["--nccl".into()];
    run.environment.extend([
        env("TWIN_NCCL", meetings.path()),
        env("RUST_LOG", "warn,sardana_actors::worker::rings=info"),
    ]);
    run.environment.extend(more);
    run.ends()
}

/// Compares what is found on held-out images, of which there are few.
fn is_near(site: &Site, (seen, summary): &(Seen, Summary)) {
    let [(_, found), (_, expected)] = [&summary.results[0], &site.expected().results[0]];
    assert!((found - expected).abs() < 0.11, "{found}, and not {expected}; {}", seen.logs);
}

#[test]
fn workers_sum_by_nccl_and_one_that_is_killed_in_the_middle_is_replaced_in_the_next_communicator() {
    let Some(site) = site() else { return };
    let undisturbed = run(site, 3, &["GPU-a", "GPU-b", "GPU-c"], []);
    is_near(site, &undisturbed);
    let logs = &undisturbed.0.logs;
    // In each generation: shards may move to a faster one.
    assert!(logs.matches(BEGUN).count() >= 3, "{logs}");
    assert!(!logs.contains("links sum"), "{logs}");

    let marks = tempfile::tempdir().unwrap();
    let mark = marks.path().join("dead");
    let planted = DriverFiles::planted(Planted::DieInLaunch, 500, &mark);
    let killed = run(site, 3, &["GPU-a", "GPU-b", "GPU-c"], planted);
    is_near(site, &killed);
    let (seen, _) = &killed;
    assert!(
        mark.exists() && seen.steps_before_the_first_end > 0,
        "it was not in the middle"
    );
    assert!(seen.ends.iter().any(|how| how.contains("signal 9")), "{:?}", seen.ends);
    assert_eq!(seen.started, 4, "one takes the dead one's place");
    assert!(
        seen.logs.matches(BEGUN).count() >= 6,
        "the next generation sums by it, too: {}",
        seen.logs
    );
    assert!(!seen.logs.contains("links sum"), "{}", seen.logs);
}

#[test]
fn workers_that_share_a_gpu_train_all_the_same_and_say_why_not_by_nccl() {
    let Some(site) = site() else { return };
    let shared = run(site, 2, &["GPU-a"], []);
    is_near(site, &shared);
    let said = "links sum, and not NCCL: expected a device of its own for each worker, found r0 and r1 on one";
    let logs = &shared.0.logs;
    assert!(
        logs.matches(said).count() >= 2 && !logs.contains(BEGUN),
        "both say so in each generation: {logs}"
    );
}
