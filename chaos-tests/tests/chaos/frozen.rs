//! SIGSTOP: a worker that says nothing is left out; one that wakes up later changes nothing (GEN-3).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sardana::launch::Event;
use sardana::{AgentEvent, JobEvent, Loss, WorkerId};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Ended, Told, reported};

use crate::trial;

/// Stops the member of rank 1 at step 3. It is woken up once it was left out, if `wake` says so; the job cannot end before it has
/// ended then.
async fn freeze(wake: Wake) -> Result<()> {
    let trial = trial(Setup {
        gate_step: 8,
        ..Setup::new(3)
    })?;
    let mut frozen: Option<WorkerId> = None;
    let ended = trial
        .run(&[Place::Step, Place::Late], |hands, event| {
            if frozen.is_none() && reported(event).is_some_and(|step| step >= 3) {
                let worker = hands.members()[1];
                hands.signal(worker, Signal::STOP);
                frozen = Some(worker);
            }
            match event {
                Event::Job(JobEvent::Lost { worker, .. }) if Some(*worker) == frozen => {
                    hands.open(Place::Step);
                    match wake {
                        Wake::Never => hands.open(Place::Late),
                        Wake::WhenLeftOut => hands.signal(*worker, Signal::CONT),
                    }
                }
                Event::Agent(AgentEvent::Ended { worker, .. }) if Some(*worker) == frozen => hands.open(Place::Late),
                Event::Job(_) | Event::Agent(_) => {}
            }
        })
        .await?;
    let verdict = trial.judge(&ended)?;
    let frozen = frozen.context("a worker was stopped")?;
    trial.explain(&ended, left_out(&ended, frozen))?;
    ensure!(!verdict.state_lost, "two workers still had the state");
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    Never,
    WhenLeftOut,
}

/// It was left out for its silence, some seconds after it was stopped: how many depends on how regularly it had beaten.
fn left_out(ended: &Ended, frozen: WorkerId) -> Result<()> {
    let at = |wanted: &dyn Fn(&Told) -> bool| ended.told.iter().find(|(_, told)| wanted(told)).map(|(at, _)| *at);
    let stopped = at(&|told| matches!(told, Told::Signal(_, Signal::STOP))).context("it was stopped")?;
    let silent = |told: &Told| matches!(told, Told::Event(Event::Job(JobEvent::Lost { worker, cause: Loss::Silent { .. }, .. })) if *worker == frozen);
    let lost = at(&silent).context("it was not left out for its silence")?;
    let after = lost.saturating_sub(stopped);
    ensure!(
        (Duration::from_secs(2)..Duration::from_secs(14)).contains(&after),
        "left out after {after:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_frozen_worker_is_left_out() -> Result<()> {
    freeze(Wake::Never).await
}

#[tokio::test]
async fn a_frozen_worker_that_wakes_up_changes_nothing() -> Result<()> {
    freeze(Wake::WhenLeftOut).await
}
