//! Every fault point: the process that reaches it first dies there, and the others end in the same state.

use anyhow::{Context, Result, ensure};
use sardana::AgentEvent;
use sardana::fault::{self, Point, Role};
use sardana::launch::Event;
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;

use crate::{checkpoints, deaths, joins, replicas, trial};

/// No worker gets beyond this step before all deaths below it have happened: else the job would end before a replacement has come.
const GATE: u64 = 8;

/// Deaths at the points of `faults`, separated by spaces, one process each.
async fn deaths(workers: u32, faults: &str) -> Result<()> {
    deaths_with(Setup::new(workers), faults).await
}

/// The same where all workers are needed: a replacement is waited for, and fetches the state while the others stand still.
async fn deaths_of_the_needed(workers: u32, faults: &str) -> Result<()> {
    let setup = Setup {
        min: workers,
        ..Setup::new(workers)
    };
    deaths_with(setup, faults).await
}

async fn deaths_with(setup: Setup, faults: &str) -> Result<()> {
    let below = |fault: &str| {
        fault
            .split_once('@')
            .is_some_and(|(_, step)| step.parse().is_ok_and(|step: u64| step < GATE))
    };
    let mut awaited = faults
        .split(' ')
        .filter(|fault| below(fault) && !fault.starts_with("finished"))
        .count();
    let closed: &[Place] = if awaited > 0 { &[Place::Step] } else { &[] };
    let setup = Setup {
        gate_step: GATE,
        ..setup
    };
    let trial = trial(setup)?.faults(faults.split(' '));
    let ended = trial
        .run(closed, |hands, event| {
            if matches!(event, Event::Agent(AgentEvent::Ended { .. })) && awaited > 0 {
                awaited -= 1;
                if awaited == 0 {
                    hands.open(Place::Step);
                }
            }
        })
        .await?;
    trial.judge(&ended)?;
    Ok(())
}

// A worker that halts for a death, and then forms, may be one step behind the dead.
deaths! {
    OF_MEMBERS, deaths:
    one_in_gradient: 3, "in-gradient@3";
    one_tallied: 3, "tallied@3";
    one_before_pass: 3, "before-pass@3";
    one_while_passing: 3, "while-passing@3";
    one_after_pass: 3, "after-pass@3";
    one_before_apply: 3, "before-apply@3";
    one_in_apply: 3, "in-apply@3";
    one_after_apply: 3, "after-apply@3";
    one_after_apply_of_two: 2, "after-apply@5";
    one_after_apply_of_five: 5, "after-apply@5";
    one_at_the_first_forming: 3, "form@0";
    one_at_the_first_linking: 3, "linked@0";
    one_finished: 3, "finished@0";
    one_in_the_last_apply: 3, "in-apply@11";
    one_after_the_last_apply: 3, "after-apply@11";
    one_with_the_last_sum: 2, "before-apply@11";

    then_one_halting: 3, "in-gradient@3 halt@2";
    then_one_halted: 3, "in-gradient@3 halted@2";
    then_one_forming: 3, "in-gradient@3 form@2";
    then_one_linked: 3, "in-gradient@3 linked@2";
    then_one_in_the_next_gradient: 3, "in-gradient@3 in-gradient@3";
    then_one_passing_in_the_retry: 3, "before-pass@3 while-passing@3";
    then_one_with_the_retried_sum: 3, "while-passing@3 before-apply@3";

    two_had_the_sum: 3, "before-apply@4 before-apply@4";
    two_in_apply: 3, "in-apply@4 in-apply@4";
    two_had_applied: 3, "after-apply@4 after-apply@4";
    two_of_two_had_applied: 2, "after-apply@4 after-apply@4";
    two_halted: 4, "after-apply@4 halted@3";
    two_linked: 4, "tallied@4 linked@3";
    two_forming: 4, "after-pass@4 form@3";
    two_finished: 3, "finished@0 finished@0";
    two_at_the_end: 3, "in-apply@11 finished@0";
    two_halting_at_the_end: 4, "before-pass@11 halt@10";
    three_in_a_row: 4, "in-gradient@2 before-apply@5 after-apply@8";
    three_at_once: 5, "in-apply@6 in-apply@6 in-apply@6";
}

deaths! {
    OF_THE_NEEDED, deaths_of_the_needed:
    then_one_fetching: 3, "in-gradient@3 fetch@2";
    two_fetched: 3, "after-apply@4 fetch@3";
    two_joining: 4, "in-apply@4 fetch@3 fetch@3";
}

/// Gradients of so many chunks that other processes read them where they lie: of two workers the sum is passed on as it is, of four each owns some chunks.
#[tokio::test]
async fn where_gradients_are_read_in_place() -> Result<()> {
    const POINTS: [&str; 5] = [
        "in-gradient@3",
        "before-pass@3",
        "while-passing@3",
        "after-pass@3",
        "before-apply@3",
    ];
    let one = [2, 4].into_iter().flat_map(|workers| POINTS.map(|point| (workers, point)));
    let another_in_the_retry = [(4, "before-pass@3 while-passing@3")];
    // One after the other: each is compared with a plain loop in this process, and that takes a while.
    for (workers, faults) in one.chain(another_in_the_retry) {
        let setup = Setup {
            shards: 4,
            elements: 150_000,
            ..Setup::new(workers)
        };
        let died = deaths_with(setup, faults).await;
        died.with_context(|| format!("{workers} workers, {faults}"))?;
    }
    Ok(())
}

/// Every point that every rank comes to in a job that no worker joins, on `rank` of three.
async fn each_point_on(rank: u32) -> Result<()> {
    const ALWAYS: [&str; 9] = [
        "in-gradient",
        "tallied",
        "before-apply",
        "in-apply",
        "after-apply",
        "form",
        "linked",
        "halt",
        "halted",
    ];
    // The last rank closes the sum: it passes none on.
    const PASSING: [&str; 3] = ["before-pass", "while-passing", "after-pass"];
    let passing = if rank < 2 { &PASSING[..] } else { &[] };
    for point in ALWAYS.iter().chain(passing) {
        let fault = match *point {
            "form" | "linked" => format!("{point}#{rank}@0"),
            // Another worker must die first. The workers that halt may be one step behind.
            "halt" | "halted" => format!("in-gradient#{}@3 {point}#{rank}@2", (rank + 1) % 3),
            _ => format!("{point}#{rank}@3"),
        };
        deaths(3, &fault).await?;
    }
    deaths(3, &format!("finished#{rank}@0")).await
}

#[tokio::test]
async fn each_point_on_rank_0() -> Result<()> {
    each_point_on(0).await
}

#[tokio::test]
async fn each_point_on_rank_1() -> Result<()> {
    each_point_on(1).await
}

#[tokio::test]
async fn each_point_on_rank_2() -> Result<()> {
    each_point_on(2).await
}

#[test]
fn fault_points_are_compiled_in_and_each_is_met() {
    const { assert!(fault::COMPILED_IN) };
    let faults = [
        OF_MEMBERS,
        OF_THE_NEEDED,
        joins::ALL,
        checkpoints::OF_WRITERS,
        checkpoints::OF_READERS,
        checkpoints::OF_COORDINATORS,
        &[replicas::GIVING],
    ];
    let faults = faults.concat();
    for point in Point::ALL {
        let mut met = faults.iter().flat_map(|faults| faults.split(' '));
        let here = |fault: &str| fault.split(['#', '@']).next() == Some(point.name());
        // A coordinator dies at all of its own points.
        assert!(met.any(here) || point.role() == Role::Coordinator, "no death at {point:?}");
    }
}

#[tokio::test]
async fn a_fault_that_does_not_fire_fails() -> Result<()> {
    let trial = trial(Setup::new(2))?.faults(["in-gradient@12"]);
    let ended = trial.run(&[], |_, _| {}).await?;
    ensure!(trial.judge(&ended).is_err(), "the job has no step 12");
    Ok(())
}
