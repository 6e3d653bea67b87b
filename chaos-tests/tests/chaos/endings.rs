//! How a job ends, or nearly does. Only some workers had applied a step when they died: the others take the sum from those ahead, or
//! compute the same bits again. A job that waits for workers is stopped: what the workers that are left have is kept.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sardana::launch::{Event, Launched};
use sardana::{CheckpointEvent, JobEvent, Step, WorkerEvent, WorkerId};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::journal::{Deed, Journal};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Trial, reported, send};
use tokio::time::timeout;

use crate::checkpoints::{Job, LIMIT};
use crate::{checkpoints, trial};

/// The first worker to apply step 6 dies; at the same moment so do all that are not named by `spared`, by rank.
async fn first_to_apply_dies(workers: u32, spared: usize) -> Result<()> {
    let trial = trial(Setup::new(workers))?.faults(["after-apply@6"]);
    let mut struck = false;
    let ended = trial
        .run(&[], |hands, event| {
            if !struck && matches!(event, Event::Job(JobEvent::Worker(WorkerEvent::Lost { .. }))) {
                struck = true;
                let others = hands.members().to_vec();
                let others = others.into_iter().enumerate().filter(|(rank, _)| *rank != spared);
                others.for_each(|(_, worker)| hands.kill(worker));
            }
        })
        .await?;
    trial.judge(&ended)?;
    trial.demand(&ended, struck, "somebody is lost")
}

#[tokio::test]
async fn the_holder_of_the_newest_state_dies_and_others_with_it() -> Result<()> {
    for spared in 0..3 {
        first_to_apply_dies(3, spared).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_that_comes_at_the_last_step_changes_nothing() -> Result<()> {
    let trial = trial(Setup {
        gate_step: 11,
        ..Setup::new(3)
    })?
    .faults(["in-gradient@9"]);
    let mut joined = 0;
    let ended = trial
        .run(&[Place::Step], |hands, event| {
            joined += u32::from(matches!(event, Event::Job(JobEvent::Worker(WorkerEvent::Joined { .. }))));
            // Three from the start, and the replacement.
            if joined == 4 {
                hands.open(Place::Step);
            }
        })
        .await?;
    trial.judge(&ended)?;
    Ok(())
}

/// How many gradients were computed of steps before this one.
fn computed_before(trial: &Trial, step: Step) -> Result<usize> {
    let lines = Journal::read(trial.folder())?.lines;
    let gradients = lines.iter().filter(|line| matches!(line.deed, Deed::Gradient { .. }));
    Ok(gradients.filter(|line| line.step < step.get()).count())
}

fn kill(launched: &Launched, worker: WorkerId) -> Result<()> {
    send(launched.pid(worker).context("a member has a process")?, Signal::KILL)
}

#[tokio::test]
async fn a_job_that_is_stopped_while_it_waits_for_workers_keeps_its_last_state() -> Result<()> {
    let mut job = Job::of(trial(Setup {
        min: 2,
        ..checkpoints::setup(2)
    })?)?;
    // No checkpoint is due for long: what is kept, is kept because of the stop.
    let launched = job.launch(2, "1000").await?;
    let (mut members, mut killed, mut door) = (Vec::new(), None, None);
    let (mut asked, mut kept) = (false, None);
    let finishing = launched.finish(|launched, event| match event {
        Event::Job(JobEvent::Worker(WorkerEvent::Joined { worker, .. })) => members.push(*worker),
        Event::Job(JobEvent::Steps(_)) if killed.is_none() && reported(event) >= Some(6) => {
            // The successor does not join before all is over.
            door = Some(Place::Door.close(job.trial.folder()));
            killed = Some(kill(launched, members[0]));
        }
        Event::Job(JobEvent::Waiting { have: 1, .. }) if killed.is_some() && !asked => {
            asked = true;
            launched.steering().request_stop();
        }
        Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { key, .. })) => kept = Some(key.step),
        Event::Job(JobEvent::Done(_)) => door = None,
        Event::Job(_) | Event::Agent(_) => {}
    });
    let stopped = timeout(LIMIT, finishing).await.context("the job hangs")??;
    killed.context("a worker was killed")??;
    ensure!(asked, "the job waits for workers");
    ensure!(
        stopped.step.get() >= 7 && stopped.step.get() < job.trial.setup.steps,
        "{stopped:?}"
    );
    ensure!(kept == Some(stopped.step), "{kept:?}, expected {}", stopped.step);
    let before = computed_before(&job.trial, stopped.step)?;
    let resumed = job.resumes(2, "1000").await?.resumed;
    ensure!(resumed == kept, "{resumed:?}, expected {kept:?}");
    let after = computed_before(&job.trial, stopped.step)?;
    ensure!(
        before == after,
        "{} gradients of what was kept were computed again",
        after - before
    );
    Ok(())
}
