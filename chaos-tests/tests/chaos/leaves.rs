//! Workers leave in good order: at a boundary, without any work lost.

use anyhow::Result;
use rustix::process::Signal;
use sardana::launch::Event;
use sardana::{AgentEvent, JobEvent, WorkerEvent, WorkerId};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Hands;

use crate::paced::{Paced, paced, slow};

/// How a worker is asked to leave.
#[derive(Debug, Clone, Copy)]
enum Asked {
    ByRequest,
    BySignal,
}

impl Asked {
    fn leave(self, hands: &mut Hands<'_>, worker: WorkerId) {
        match self {
            Self::ByRequest => hands.drain(worker),
            Self::BySignal => hands.signal(worker, Signal::TERM),
        }
    }
}

/// The members of `ranks` are asked to leave at step 3; then so many workers are wanted, if any number is. Enough has happened when
/// all leavers have ended, and `whole` members train.
async fn leave(setup: Setup, asked: Asked, ranks: &[usize], scale: Option<usize>, whole: usize) -> Result<Paced> {
    let mut leavers = Vec::new();
    let strike = |hands: &mut Hands<'_>| {
        leavers.extend(ranks.iter().map(|&rank| hands.members()[rank]));
        leavers.iter().for_each(|&worker| asked.leave(hands, worker));
        if let Some(workers) = scale {
            hands.scale(workers);
        }
        (leavers.clone(), 0)
    };
    let watch = |(leavers, ended): &mut (Vec<WorkerId>, usize), hands: &mut Hands<'_>, event: &Event| {
        if let Event::Agent(AgentEvent::Ended { worker, .. }) = event {
            *ended += usize::from(leavers.contains(worker));
        }
        let members = hands.members();
        *ended == leavers.len() && members.len() == whole && !members.iter().any(|member| leavers.contains(member))
    };
    let paced = paced(setup, "", strike, watch).await?;
    in_good_order(&paced, &leavers)?;
    let processes = paced.ended.processes.len();
    paced.demand(
        processes == whole + ranks.len(),
        "who has left is not replaced, but by request",
    )?;
    Ok(paced)
}

fn in_good_order(paced: &Paced, leavers: &[WorkerId]) -> Result<()> {
    for leaver in leavers {
        let left =
            |event: &JobEvent| matches!(event, JobEvent::Worker(WorkerEvent::Left { worker, .. }) if worker == leaver);
        paced.demand(paced.ended.count(left) == 1, "it has left")?;
        let lost =
            |event: &JobEvent| matches!(event, JobEvent::Worker(WorkerEvent::Lost { worker, .. }) if worker == leaver);
        paced.demand(paced.ended.count(lost) == 0, "nobody misses it")?;
        let well = |event: &&Event| matches!(event, Event::Agent(AgentEvent::Ended { worker, how }) if worker == leaver && how == "exit code 0");
        let well = paced.ended.events().filter(well).count();
        paced.demand(well == 1, "its process ends well")?;
    }
    let summary = &paced.verdict.summary;
    paced.demand((summary.recomputed, summary.unknown) == (0, 0), "nothing is computed again")?;
    paced.demand(!paced.verdict.state_lost, "the state is kept")
}

#[tokio::test]
async fn each_rank_by_request() -> Result<()> {
    for rank in 0..3 {
        leave(slow(3), Asked::ByRequest, &[rank], None, 2).await?.nobody_halts()?;
    }
    Ok(())
}

#[tokio::test]
async fn each_rank_by_sigterm() -> Result<()> {
    for rank in 0..3 {
        leave(slow(3), Asked::BySignal, &[rank], None, 2).await?.nobody_halts()?;
    }
    Ok(())
}

#[tokio::test]
async fn two_at_once() -> Result<()> {
    for ranks in [[0, 1], [1, 3], [2, 3]] {
        leave(slow(4), Asked::ByRequest, &ranks, None, 2).await?.nobody_halts()?;
    }
    Ok(())
}

#[tokio::test]
async fn all_but_one() -> Result<()> {
    leave(slow(3), Asked::BySignal, &[0, 2], None, 1).await?.nobody_halts()
}

#[tokio::test]
async fn one_leaves_while_another_joins() -> Result<()> {
    for rank in 0..3 {
        leave(slow(3), Asked::ByRequest, &[rank], Some(3), 3).await?.nobody_halts()?;
    }
    Ok(())
}

#[tokio::test]
async fn the_last_holder_waits_for_the_one_that_comes() -> Result<()> {
    leave(slow(1), Asked::ByRequest, &[0], Some(1), 1).await?.nobody_halts()
}

#[tokio::test]
async fn all_holders_hand_over_to_those_that_come() -> Result<()> {
    leave(slow(2), Asked::ByRequest, &[0, 1], Some(2), 2).await?;
    Ok(())
}

#[tokio::test]
async fn below_min_training_pauses_until_another_has_come() -> Result<()> {
    let setup = Setup { min: 3, ..slow(3) };
    let paced = leave(setup, Asked::ByRequest, &[1], Some(3), 3).await?;
    let trained = paced
        .ended
        .job_events()
        .skip_while(|event| !matches!(event, JobEvent::Steps(_)));
    let trained: Vec<&JobEvent> = trained.collect();
    // A worker that comes before the other has left is waited for without a word.
    let of_interest =
        |event: &&JobEvent| matches!(event, JobEvent::Worker(WorkerEvent::Joined { .. } | WorkerEvent::Left { .. }));
    let came_first = matches!(
        trained.iter().copied().find(of_interest),
        Some(JobEvent::Worker(WorkerEvent::Joined { .. }))
    );
    let waits = trained
        .iter()
        .filter(|event| matches!(event, JobEvent::Waiting { have: 2, .. }));
    paced.demand(
        waits.count() == usize::from(!came_first),
        "the job waits, once, where somebody is missing",
    )
}
