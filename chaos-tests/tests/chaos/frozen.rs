//! Workers that stand still. By SIGSTOP: their agent sees it, and they are left out and replaced at once. Without their agent's knowledge,
//! as in a container that is paused: they are left out for their silence, and a worker that wakes up later changes nothing (GEN-3).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sardana::launch::Event;
use sardana::{AgentEvent, JobEvent, Loss, WorkerEvent, WorkerId};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Ended, Told, Trial, reported};

use crate::freezer::{Frozen, can_freeze};
use crate::trial;

fn gated() -> Result<Trial> {
    trial(held(Setup::new(3)))
}

/// A job that does not go beyond step 8 until it is let.
fn held(setup: Setup) -> Setup {
    Setup { gate_step: 8, ..setup }
}

/// Freezes the member of rank 1 at step 3. It is thawed once it was left out, if `wakes` says so; the job cannot end before it has
/// ended then.
async fn freeze(setup: Setup, wakes: bool) -> Result<()> {
    if !can_freeze() {
        return Ok(());
    }
    let trial = trial(held(setup))?;
    let mut frozen: Option<(WorkerId, Result<Frozen, String>)> = None;
    let ended = trial
        .run(&[Place::Step, Place::Late], |hands, event| {
            if frozen.is_none() && reported(event).is_some_and(|step| step >= 3) {
                let worker = hands.members()[1];
                let pid = hands.pid(worker).ok_or("a member has a process".to_owned());
                frozen = Some((worker, pid.and_then(Frozen::new)));
            }
            let Some((frozen, group)) = &frozen else { return };
            match event {
                Event::Job(JobEvent::Worker(WorkerEvent::Lost { worker, .. })) if worker == frozen => {
                    hands.open(Place::Step);
                    if !wakes {
                        hands.open(Place::Late);
                    } else if let Ok(group) = group {
                        group.thaw().expect("what was frozen can be thawed");
                    }
                }
                Event::Agent(AgentEvent::Ended { worker, .. }) if worker == frozen => hands.open(Place::Late),
                Event::Job(_) | Event::Agent(_) => {}
            }
        })
        .await?;
    let verdict = trial.judge(&ended)?;
    let (frozen, group) = frozen.context("a worker was frozen")?;
    ensure!(group.is_ok(), "{group:?}");
    let silent = matches!(cause(&ended, frozen), Some(Loss::Silent { .. }));
    trial.demand(&ended, silent, "it is left out for its silence")?;
    ensure!(!verdict.state_lost, "the others still had the state");
    Ok(())
}

/// Why a worker was left out.
fn cause(ended: &Ended, left_out: WorkerId) -> Option<&Loss> {
    let (_, cause) = ended.losses().find(|(worker, _)| *worker == left_out)?;
    Some(cause)
}

#[tokio::test]
async fn a_frozen_worker_is_left_out() -> Result<()> {
    freeze(Setup::new(3), false).await
}

#[tokio::test]
async fn a_frozen_worker_that_wakes_up_changes_nothing() -> Result<()> {
    freeze(Setup::new(3), true).await
}

/// What it was reading in the others' memory, they have left to it.
#[tokio::test]
async fn nor_does_one_that_wakes_up_over_memory_of_the_others() -> Result<()> {
    let large = |workers| Setup {
        shards: 4,
        elements: 150_000,
        ..Setup::new(workers)
    };
    for workers in [3, 4] {
        freeze(large(workers), true).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_that_its_agent_sees_stopped_is_left_out_and_replaced() -> Result<()> {
    let trial = gated()?;
    let mut stopped: Option<WorkerId> = None;
    let mut joined = 0;
    let ended = trial
        .run(&[Place::Step, Place::Pace], |hands, event| {
            // The job does not end before another one has come in its place.
            joined += u32::from(matches!(event, Event::Job(JobEvent::Worker(WorkerEvent::Joined { .. }))));
            if joined > trial.setup.workers {
                hands.open(Place::Pace);
            }
            if stopped.is_none() && reported(event).is_some_and(|step| step >= 3) {
                let worker = hands.members()[1];
                hands.signal(worker, Signal::STOP);
                stopped = Some(worker);
            }
            // All have begun again, the successor among them.
            let whole = hands.members().len() == 3 && stopped.is_some_and(|stopped| !hands.members().contains(&stopped));
            if whole || matches!(event, Event::Job(JobEvent::Worker(WorkerEvent::Lost { .. }))) {
                hands.open(Place::Step);
            }
        })
        .await?;
    let verdict = trial.judge(&ended)?;
    let stopped = stopped.context("a worker was stopped")?;
    let seen = matches!(cause(&ended, stopped), Some(Loss::Stopped { .. }));
    trial.demand(&ended, seen, "its agent has seen it stand still, and it is left out for that")?;
    let at = |wanted: &dyn Fn(&Told) -> bool| ended.told.iter().find(|(_, told)| wanted(told)).map(|(at, _)| *at);
    trial.demand(&ended, ended.was_killed(stopped), "its agent was told to kill it")?;
    trial.demand(&ended, ended.processes.len() == 4, "another was started in its place")?;
    ensure!(!verdict.state_lost, "two workers still had the state");
    let begin = at(&|told| matches!(told, Told::Signal(_, Signal::STOP))).unwrap_or(Duration::ZERO);
    let lost = at(&|told| matches!(told, Told::Event(Event::Job(JobEvent::Worker(WorkerEvent::Lost { .. })))));
    println!("left out {:?} after SIGSTOP", lost.map(|lost| lost.saturating_sub(begin)));
    Ok(())
}
