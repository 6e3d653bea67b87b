//! Only some had applied a step when they died: the others take the sum from those ahead, or compute the same bits again.

use anyhow::Result;
use sardana::launch::Event;
use sardana::{JobEvent, WorkerEvent};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;

use crate::trial;

/// The worker that had applied step 6 first dies; at the same moment so do all that are not named by `spared`, by rank.
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
