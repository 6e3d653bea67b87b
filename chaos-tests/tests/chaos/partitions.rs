//! Partitions: a worker's host is cut off from all others, from a neighbour of its own, or from the coordinator, both ways or in one
//! direction only, for less and for more than each timeout, and comes back. Needs root and `ip`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sardana::{GenerationEvent, JobEvent, WorkerEvent, WorkerId};
use sardana_chaos_tests::gate::Place;

use crate::hosts::{COORDINATOR, Site};
use crate::network::Host;
use crate::paced::slow;

/// Less than any timeout.
const SHORT: Duration = Duration::from_secs(2);

/// More than the silence after which a worker is left out (5 s), less than a connection lasts without a packet (10 s).
const SILENT: Duration = Duration::from_secs(7);

/// More than both, and than an end that says something now and then needs to notice (12 s). Less than two generations in a row take to fail,
/// after which one of two neighbours is left out: the first may find a connection that one end takes for whole (2 s), and the next one dials
/// for 5 s, but says nothing in the last of these.
const LONG: Duration = Duration::from_secs(14);

/// So many more steps show that the job trains.
const STEPS: u64 = 3;

/// What the host of the member of rank 1 is cut off from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    All,
    /// The last rank: of three the owner of a star, and next to rank 1 where the sum runs from rank to rank.
    Neighbour,
    Coordinator,
}

/// What is lost: what that host sends, what it is sent, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Sent,
    Received,
    Both,
}

/// What became of the worker on that host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// No other process has missed it.
    Stayed,
    /// Others have had to halt; it was a member all the time.
    Halted,
    /// It was left out, and came back as the same process.
    CameBack,
    /// Its process was dismissed, and its agent has started another one.
    Replaced,
}

/// A partition and what may come of it.
#[derive(Debug, Clone, Copy)]
struct Case {
    from: From,
    lost: Lost,
    /// For so long; otherwise until a worker was left out and all train again.
    lasts: Option<Duration>,
    expected: &'static [Fate],
}

fn host(site: &Site, worker: WorkerId) -> Result<Host> {
    site.host(worker).with_context(|| format!("{worker} runs"))
}

fn cut(site: &Site, worker: WorkerId, from: From, lost: Lost) -> Result<()> {
    let own = host(site, worker)?;
    let others: Vec<Host> = match from {
        From::All => site.network.all().filter(|&host| host != own).collect(),
        From::Neighbour => vec![host(site, *site.members.last().context("there are members")?)?],
        From::Coordinator => vec![COORDINATOR],
    };
    let sent = others.iter().map(|&other| (own, other)).filter(|_| lost != Lost::Received);
    let received = others.iter().map(|&other| (other, own)).filter(|_| lost != Lost::Sent);
    site.network.cut(sent.chain(received))
}

/// What has become of `worker` by the events since it was cut off.
fn fate<'a>(worker: WorkerId, members: &[WorkerId], events: impl Iterator<Item = &'a JobEvent>) -> Fate {
    let (mut lost, mut halted) = (false, false);
    for event in events {
        lost |= matches!(event, JobEvent::Worker(WorkerEvent::Lost { worker: one, .. }) if *one == worker);
        halted |= matches!(event, JobEvent::Generation(GenerationEvent::Halting { .. }));
    }
    match (lost, halted) {
        (true, _) if members.contains(&worker) => Fate::CameBack,
        (true, _) => Fate::Replaced,
        (false, true) => Fate::Halted,
        (false, false) => Fate::Stayed,
    }
}

/// All members run, and are as many as there should be.
fn is_whole(site: &Site) -> bool {
    site.members.len() == site.trial.setup.workers as usize && site.members.iter().all(|&member| site.host(member).is_some())
}

/// Waits until all train, by some more steps.
async fn all_train(site: &mut Site) -> Result<()> {
    let step = site.step;
    site.until("all train", |site| is_whole(site) && site.step >= step + STEPS)
        .await
}

impl Case {
    /// Cuts a worker off and lets it come back. The job ends as if nothing had been.
    async fn run(self) -> Result<()> {
        let Some(mut site) = Site::new(slow(3))? else {
            return Ok(());
        };
        let pace = Place::Pace.close(site.trial.folder())?;
        site.start().await?;
        site.until("all train", |site| is_whole(site) && site.step >= STEPS).await?;
        let (worker, before) = (site.members[1], site.ended.told.len());
        let began = Instant::now();
        cut(&site, worker, self.from, self.lost)?;
        match self.lasts {
            Some(time) => site.pass(time).await,
            None => {
                let lost = |site: &Site| {
                    site.job_events_since(before)
                        .any(|event| matches!(event, JobEvent::Worker(WorkerEvent::Lost { .. })))
                };
                site.until("somebody is left out", lost).await?;
                all_train(&mut site).await?;
            }
        }
        site.network.heal()?;
        let lasted = began.elapsed();
        // On a host that was busy for a while: what has lasted longer than it should may end connections that otherwise it would not.
        let was_held_up = self.lasts.is_some_and(|time| lasted > time + time / 10);
        // What is not to be noticed may be noticed until the end; what is noticed late is waited for.
        let noticed = |site: &Site| {
            let fate = fate(worker, &site.members, site.job_events_since(before));
            self.expected.contains(&Fate::Stayed) || fate != Fate::Stayed
        };
        site.until("it is noticed", noticed).await?;
        all_train(&mut site).await?;
        drop(pace);
        let (verdict, site) = site.end().await?;
        let fate = fate(worker, &site.members, site.job_events_since(before));
        let started = site.ended.processes.len();
        let replaced = started - site.trial.setup.workers as usize;
        let demand = |holds, what: &str| site.trial.demand(&site.ended, holds, what);
        demand(
            self.expected.contains(&fate) || (was_held_up && fate == Fate::Halted),
            &format!("{self:?}, which lasted {lasted:?}, found {fate:?}"),
        )?;
        demand(!verdict.state_lost, "two workers have the state")?;
        // A worker that is missed late may be back in the step that misses it: whether what it has of that step is used is not counted.
        let unsure = u32::from(fate == Fate::CameBack);
        demand(verdict.summary.unknown <= unsure, "every count becomes known")?;
        let left_out = usize::from(fate == Fate::Replaced || self.lasts.is_none());
        demand(
            replaced == left_out,
            "nobody ends but who is left out, and somebody comes for it",
        )
    }
}

/// The same for so long in all directions: what is sent is lost, what is received, and both.
async fn partitions(from: From, time: Duration, expected: [&'static [Fate]; 3]) -> Result<()> {
    let case = |lost, expected| Case {
        from,
        lost,
        lasts: Some(time),
        expected,
    };
    let [sent, received, both] = expected;
    tokio::try_join!(
        case(Lost::Sent, sent).run(),
        case(Lost::Received, received).run(),
        case(Lost::Both, both).run()
    )?;
    Ok(())
}

#[tokio::test]
async fn a_short_one_from_all_is_noticed_by_nobody() -> Result<()> {
    partitions(From::All, SHORT, [&[Fate::Stayed]; 3]).await
}

#[tokio::test]
async fn a_short_one_from_a_neighbour_is_noticed_by_nobody() -> Result<()> {
    partitions(From::Neighbour, SHORT, [&[Fate::Stayed]; 3]).await
}

#[tokio::test]
async fn a_short_one_from_the_coordinator_is_noticed_by_nobody() -> Result<()> {
    partitions(From::Coordinator, SHORT, [&[Fate::Stayed]; 3]).await
}

/// As long as steps advance, silence is no reason; and links last longer.
#[tokio::test]
async fn after_a_silence_only_who_is_cut_off_from_all_is_left_out() -> Result<()> {
    // Dismissed at once, if it hears; otherwise when it is back, unless its connection ends first. A worker that is heard is not left out.
    let from_all: [&[Fate]; 3] = [&[Fate::Replaced], &[Fate::Stayed], &[Fate::Replaced, Fate::CameBack]];
    tokio::try_join!(
        partitions(From::All, SILENT, from_all),
        partitions(From::Coordinator, SILENT, [&[Fate::Stayed]; 3]),
        partitions(From::Neighbour, SILENT, [&[Fate::Stayed]; 3])
    )?;
    Ok(())
}

#[tokio::test]
async fn after_a_long_one_from_all_a_worker_comes_back_unless_it_has_heard_that_it_is_left_out() -> Result<()> {
    partitions(From::All, LONG, [&[Fate::Replaced], &[Fate::CameBack], &[Fate::CameBack]]).await
}

#[tokio::test]
async fn after_a_long_one_from_the_coordinator_a_worker_comes_back() -> Result<()> {
    partitions(From::Coordinator, LONG, [&[Fate::CameBack]; 3]).await
}

#[tokio::test]
async fn after_a_long_one_from_a_neighbour_all_are_there() -> Result<()> {
    partitions(From::Neighbour, LONG, [&[Fate::Halted]; 3]).await
}

/// Two workers that never reach each other again: one is left out, and its replacement has another place in the ring.
#[tokio::test]
async fn two_that_never_reach_each_other_do_not_stop_the_job() -> Result<()> {
    let case = Case {
        from: From::Neighbour,
        lost: Lost::Both,
        lasts: None,
        expected: &[Fate::Replaced, Fate::Halted],
    };
    case.run().await
}
