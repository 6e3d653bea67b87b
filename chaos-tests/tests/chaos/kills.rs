//! SIGKILL from outside: each rank, several at once, all at once, spares, and with too few left.

use anyhow::{Result, ensure};
use sardana::launch::{Event, LaunchError};
use sardana::{AgentEvent, Compression, GenerationEvent, JobEvent, Order, WorkerEvent, WorkerId};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::reported;
use sardana_chaos_tests::verdict::Verdict;

use crate::trial;

/// Kills the members of these ranks at step 3, while the others cannot get beyond step 8 before the first loss is told.
async fn kill_ranks(setup: Setup, ranks: &[usize]) -> Result<Verdict> {
    let trial = trial(Setup { gate_step: 8, ..setup })?;
    let mut first: Vec<(WorkerId, u32)> = Vec::new();
    let mut killed: Vec<WorkerId> = Vec::new();
    let mut last = Vec::new();
    let ended = trial
        .run(&[Place::Step], |hands, event| {
            if killed.is_empty() && reported(event).is_some_and(|step| step >= 3) {
                let members = hands.members().to_vec();
                first = members.iter().filter_map(|&one| Some((one, hands.pid(one)?))).collect();
                killed = ranks.iter().map(|&rank| members[rank]).collect();
                killed.iter().for_each(|&worker| hands.kill(worker));
            }
            if matches!(event, Event::Job(JobEvent::Worker(WorkerEvent::Lost { .. }))) {
                hands.open(Place::Step);
            }
            last = hands.members().iter().map(|&one| (one, hands.pid(one))).collect();
        })
        .await?;
    let verdict = trial.judge(&ended)?;
    let survivors = first.iter().filter(|(worker, _)| !killed.contains(worker));
    for &(worker, pid) in survivors {
        let same = last.contains(&(worker, Some(pid)));
        trial.demand(&ended, same, "survivors stay, in the same processes")?;
    }
    let replaced = ended.processes.len() <= trial.setup.workers as usize + killed.len();
    trial.demand(&ended, replaced, "only the dead are replaced")?;
    Ok(verdict)
}

#[tokio::test]
async fn each_rank_in_turn() -> Result<()> {
    for rank in 0..4 {
        let verdict = kill_ranks(Setup::new(4), &[rank]).await?;
        ensure!(!verdict.state_lost && verdict.summary.unknown == 0, "{:?}", verdict.summary);
    }
    Ok(())
}

#[tokio::test]
async fn all_but_one() -> Result<()> {
    for survivor in 0..3 {
        let ranks: Vec<usize> = (0..3).filter(|&rank| rank != survivor).collect();
        let verdict = kill_ranks(Setup::new(3), &ranks).await?;
        ensure!(!verdict.state_lost, "{:?}", verdict.summary);
    }
    Ok(())
}

#[tokio::test]
async fn all_at_once_lose_the_state_and_start_again() -> Result<()> {
    for workers in [1, 3] {
        let ranks: Vec<usize> = (0..workers as usize).collect();
        let verdict = kill_ranks(Setup::new(workers), &ranks).await?;
        ensure!(verdict.state_lost, "nobody was left at step 3: {:?}", verdict.summary);
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_or_a_spare_beside_spares() -> Result<()> {
    for rank in [0, 1, 3] {
        let setup = Setup {
            shards: 2,
            ..Setup::new(4)
        };
        kill_ranks(setup, &[rank]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn with_empty_shards() -> Result<()> {
    let setup = Setup {
        samples: 69,
        ..Setup::new(3)
    };
    kill_ranks(setup, &[2]).await?;
    Ok(())
}

#[tokio::test]
async fn fast_order_ends_as_well() -> Result<()> {
    for compression in [Compression::None, Compression::Bf16] {
        let setup = Setup {
            order: Order::Fast,
            compression,
            ..Setup::new(4)
        };
        kill_ranks(setup, &[1]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn below_min_the_job_waits_for_the_replacement() -> Result<()> {
    let trial = trial(Setup {
        min: 3,
        gate_step: 8,
        ..Setup::new(3)
    })?;
    let mut killed = None;
    let ended = trial
        .run(&[Place::Step], |hands, event| {
            if killed.is_none() && reported(event).is_some_and(|step| step >= 3) {
                // The replacement cannot join before the door is opened again.
                hands.close(Place::Door, &trial);
                let worker = hands.members()[1];
                hands.kill(worker);
                killed = Some(worker);
            }
            if matches!(event, Event::Job(JobEvent::Waiting { have: 2, .. })) {
                hands.open(Place::Step);
                hands.open(Place::Door);
            }
        })
        .await?;
    let verdict = trial.judge(&ended)?;
    // It may have told so at its start as well.
    let trained = ended.job_events().skip_while(|event| !matches!(event, JobEvent::Steps(_)));
    let waits = trained.filter(|event| matches!(event, JobEvent::Waiting { .. }));
    trial.demand(&ended, waits.count() == 1, "the job waits once")?;
    let small = |event: &JobEvent| matches!(event, JobEvent::Generation(GenerationEvent::Forming { members, .. }) if members.len() < 3);
    trial.demand(&ended, ended.count(small) == 0, "nobody trains below min")?;
    ensure!(!verdict.state_lost, "two workers still had the state");
    Ok(())
}

#[tokio::test]
async fn when_restarts_are_exhausted_the_launcher_says_so() -> Result<()> {
    let trial = trial(Setup {
        restarts: 2,
        gate_step: 1,
        ..Setup::new(2)
    })?;
    let ended = trial
        .run(&[Place::Step], |hands, event| {
            if let Event::Agent(AgentEvent::Started { worker, .. }) = event {
                hands.kill(*worker);
            }
        })
        .await?;
    let exhausted = matches!(ended.outcome, Err(LaunchError::NoWorkers { .. })) && ended.processes.len() == 4;
    trial.demand(&ended, exhausted, "no workers are left, after two replacements")
}

#[tokio::test]
async fn below_min_without_restarts_the_launcher_says_so() -> Result<()> {
    let trial = trial(Setup {
        min: 3,
        restarts: 0,
        gate_step: 8,
        ..Setup::new(3)
    })?
    .faults(["in-gradient@3"]);
    let ended = trial.run(&[Place::Step], |_, _| {}).await?;
    let too_few = matches!(ended.outcome, Err(LaunchError::TooFew { left: 2, .. }));
    trial.demand(&ended, too_few && trial.not_fired().is_empty(), "two workers are too few")
}
