//! Workers join while the others train on, and die in the middle of it, or their donors do.

use anyhow::{Result, ensure};
use sardana::launch::Event;
use sardana::{AgentEvent, GenerationEvent, JobEvent, WorkerEvent, WorkerId};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::journal::Deed;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Hands;

use crate::paced::{Paced, paced, slow};
use crate::{deaths, trial};

/// `joins` more workers than at first are wanted; enough has happened when all are members, after the deaths at `faults`.
async fn join(workers: u32, joins: u32, faults: &str) -> Result<Paced> {
    let all = (workers + joins) as usize;
    let strike = |hands: &mut Hands<'_>| hands.scale(all);
    let armed = faults.split_whitespace().count();
    let watch = |_: &mut (), hands: &mut Hands<'_>, _: &Event| {
        // A member that has just died may still be listed.
        let running = hands.members().iter().all(|worker| hands.running().contains(worker));
        hands.ended() >= armed && running && hands.members().len() == all
    };
    paced(slow(workers), faults, strike, watch).await
}

#[tokio::test]
async fn a_joiner_stops_nobody() -> Result<()> {
    for (workers, joins) in [(1, 1), (3, 1), (2, 2)] {
        let paced = join(workers, joins, "").await?;
        paced.nobody_halts()?;
        let formed = |event: &JobEvent| matches!(event, JobEvent::Generation(GenerationEvent::Forming { .. }));
        let formed = paced.ended.count(formed);
        paced.demand(formed == 1, "only the first generation is formed while all stand still")?;
        let summary = &paced.verdict.summary;
        paced.demand((summary.recomputed, summary.unknown) == (0, 0), "nothing is computed again")?;
        let processes = paced.ended.processes.len() == (workers + joins) as usize;
        paced.demand(processes, "no joiner begins anew in another process")?;
    }
    Ok(())
}

/// Deaths while a worker joins three, or two.
async fn deaths(workers: u32, faults: &str) -> Result<()> {
    let paced = join(workers, 1, faults).await?;
    let summary = &paced.verdict.summary;
    paced.demand(!paced.verdict.state_lost, "somebody still had the state")?;
    paced.demand(summary.unknown == 0, "all ends were seen")
}

// Processes die while one worker joins. A joiner has no rank before it takes its place: `#4294967295`.
deaths! {
    ALL, deaths:
    joiner_copying: 3, "copying@1";
    joiner_copied: 3, "copied@1";
    joiner_following: 3, "following@1";
    joiner_prepared: 3, "prepared#4294967295@1";
    joiner_switched: 3, "switched#3@1";
    joiner_in_its_first_gradient: 3, "in-gradient#3@1";
    joiner_copying_and_the_next_following: 2, "copying@1 following@1";

    donor_serving_a_share: 3, "serving-share@1";
    both_holders_of_a_share: 4, "serving-share@1 serving-share@1";
    donor_serving_a_sum: 3, "serving-sum@1";
    both_keepers_of_a_sum: 4, "serving-sum@1 serving-sum@1";
    donor_and_joiner: 3, "serving-share@1 copied@1";
    donor_of_two: 2, "serving-share@1";

    two_snapshotting: 4, "snapshot@1 snapshotted@1";
    two_prepared: 3, "prepared@1 prepared@1";
    two_switched: 3, "switched@1 switched@1";
    death_before_a_join: 3, "in-gradient@4";
    death_during_a_join: 3, "in-gradient@12";
    death_during_the_copy_and_in_the_next_halt: 4, "copied@1 in-gradient@12 halt@8";
}

/// Every point that a member comes to while another worker joins, on each rank.
#[tokio::test]
async fn members_of_each_rank() -> Result<()> {
    for point in ["snapshot", "snapshotted", "prepared", "switched"] {
        let [first, second, third] = [0, 1, 2].map(|rank| format!("{point}#{rank}@1"));
        tokio::try_join!(deaths(3, &first), deaths(3, &second), deaths(3, &third))?;
    }
    Ok(())
}

/// A joiner waits at the door, and is let in when a member was killed.
#[tokio::test]
async fn a_join_during_a_death() -> Result<()> {
    let setup = slow(3);
    let trial = trial(setup)?;
    let (mut scaled, mut killed, mut opened) = (false, None, false);
    let ended = trial
        .run(&[Place::Pace], |hands, event| {
            let told = sardana_chaos_tests::trial::reported(event).is_some_and(|step| step >= 3);
            if told && !scaled {
                scaled = true;
                hands.close(Place::Door, &trial);
                hands.scale(4);
            }
            if scaled && killed.is_none() && matches!(event, Event::Agent(AgentEvent::Started { .. })) {
                let worker = hands.members()[1];
                hands.kill(worker);
                killed = Some(worker);
            }
            if matches!(event, Event::Job(JobEvent::Worker(WorkerEvent::Lost { .. }))) && !opened {
                opened = true;
                hands.open(Place::Door);
            }
            let alive = !killed.is_some_and(|worker: WorkerId| hands.members().contains(&worker));
            if opened && alive && hands.members().len() == 4 {
                hands.open(Place::Pace);
            }
        })
        .await?;
    let verdict = trial.judge(&ended)?;
    ensure!(!verdict.state_lost && verdict.summary.unknown == 0, "{:?}", verdict.summary);
    Ok(())
}

/// A worker beyond `max` computes nothing, until a death makes it step in.
#[tokio::test]
async fn a_spare_joins_and_steps_in() -> Result<()> {
    let setup = Setup {
        max: 3,
        restarts: 0,
        ..slow(3)
    };
    let mut killed = None;
    let mut spare = None;
    let strike = |hands: &mut Hands<'_>| hands.scale(4);
    let watch = |_: &mut (), hands: &mut Hands<'_>, event: &Event| {
        if killed.is_none() && hands.members().len() == 4 {
            spare = hands.members().get(3).copied();
            let worker = hands.members()[1];
            hands.kill(worker);
            killed = Some(worker);
        }
        killed.is_some() && matches!(event, Event::Job(JobEvent::Generation(GenerationEvent::Resumed { .. })))
    };
    let paced = paced(setup, "", strike, watch).await?;
    let pid = spare.and_then(|spare| paced.ended.processes.get(&spare));
    paced.demand(pid.is_some(), "the spare is the last of four")?;
    let mut switched = paced.ended.job_events().filter_map(|event| {
        let JobEvent::Generation(GenerationEvent::Switched { step, .. }) = event else {
            return None;
        };
        Some(step.get())
    });
    let mut stepped_in = paced.ended.job_events().filter_map(|event| {
        let JobEvent::Generation(GenerationEvent::Forming { step, fetching: 0, .. }) = event else {
            return None;
        };
        (step.get() > 0).then_some(step.get())
    });
    let (switched, stepped_in) = (switched.next(), stepped_in.next());
    paced.demand(switched.is_some() && stepped_in >= switched, "it is there at once")?;
    let lines = paced.verdict.journal.lines.iter();
    let own: Vec<u64> = lines
        .filter(|line| Some(&line.life.0) == pid && matches!(line.deed, Deed::Gradient { .. }))
        .map(|line| line.step)
        .collect();
    paced.demand(own.iter().all(|step| Some(*step) >= stepped_in), "a spare computes nothing")?;
    paced.demand(!own.is_empty(), "it steps in")
}
