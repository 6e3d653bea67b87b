//! A training thread that hangs while its process lives: the others wait for it for a while, then it is killed and replaced.

use anyhow::{Context, Result, ensure};
use sardana::launch::Event;
use sardana::{JobEvent, Loss, WorkerEvent};
use sardana_chaos_tests::gate::{Place, Trap};
use sardana_chaos_tests::setup::Setup;

use crate::trial;

#[tokio::test]
async fn a_worker_whose_training_thread_hangs_is_replaced() -> Result<()> {
    let trial = trial(Setup {
        gate_step: 8,
        restarts: 1,
        ..Setup::new(3)
    })?;
    Trap::set(trial.folder())?;
    let mut joined = 0;
    // The job does not end before another one has come in its place.
    let ended = trial.run(&[Place::Pace], |hands, event| {
        joined += u32::from(matches!(event, Event::Job(JobEvent::Worker(WorkerEvent::Joined { .. }))));
        if joined > trial.setup.workers {
            hands.open(Place::Pace);
        }
    });
    let ended = ended.await?;
    let verdict = trial.judge(&ended)?;
    let (hung, cause) = ended.losses().next().context("it was not left out")?;
    let stalled = matches!(cause, Loss::Stalled { .. });
    trial.demand(&ended, stalled, "it is left out because it does nothing")?;
    trial.demand(&ended, ended.was_killed(hung), "its agent was told to kill it")?;
    ensure!(!verdict.state_lost, "two workers still had the state");
    Ok(())
}
