//! Frozen while workers come and go, and thawed once the others go on without: a worker that wakes up is let go, or joins anew.

use anyhow::{Context, Result};
use sardana::launch::Event;
use sardana::{AgentEvent, JobEvent, WorkerEvent, WorkerId};
use sardana_chaos_tests::trial::Hands;

use crate::freezer::{Frozen, can_freeze};
use crate::paced::{paced, slow};

/// What is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// When it is admitted.
    Joiner,
    /// The first member, when the snapshot is there.
    Donor,
    /// When it is known that it leaves.
    Leaver,
}

impl Whom {
    fn strike(self, hands: &mut Hands<'_>) {
        match self {
            Self::Joiner | Self::Donor => hands.scale(4),
            Self::Leaver => {
                let worker = hands.members()[1];
                hands.drain(worker);
            }
        }
    }

    /// The worker to freeze at this event.
    fn found(self, hands: &Hands<'_>, event: &Event) -> Option<WorkerId> {
        match (self, event) {
            (Self::Joiner, Event::Job(JobEvent::Worker(WorkerEvent::Joined { worker, .. })))
            | (Self::Leaver, Event::Job(JobEvent::Worker(WorkerEvent::Leaving { worker, .. }))) => Some(*worker),
            (Self::Donor, Event::Job(JobEvent::Snapshot { .. })) => hands.members().first().copied(),
            (Self::Joiner | Self::Donor | Self::Leaver, Event::Job(_) | Event::Agent(_)) => None,
        }
    }
}

/// Enough has happened when the frozen one was left out, woken up, and has ended or come back, and as many as the job wants are members.
/// It ends if it reads that it was dismissed before it notices that its connection is closed.
async fn freeze(whom: Whom) -> Result<()> {
    let whole = if whom == Whom::Leaver { 3 } else { 4 };
    let (mut frozen, mut stopped, mut left_out, mut ended) = (None, None, false, false);
    let strike = |hands: &mut Hands<'_>| whom.strike(hands);
    let watch = |_: &mut (), hands: &mut Hands<'_>, event: &Event| {
        if stopped.is_none()
            && let Some(worker) = whom.found(hands, event)
        {
            let pid = hands.pid(worker).expect("who comes or trains has a process");
            frozen = Some(Frozen::new(pid).expect("it could be tried"));
            stopped = Some(worker);
        }
        match event {
            Event::Job(
                JobEvent::Worker(WorkerEvent::Lost { worker, .. }) | JobEvent::Worker(WorkerEvent::Left { worker, .. }),
            ) if Some(*worker) == stopped => {
                if let Some(frozen) = &frozen {
                    frozen.thaw().expect("what was frozen can be thawed");
                }
                left_out = true;
            }
            Event::Agent(AgentEvent::Ended { worker, .. }) => ended |= Some(*worker) == stopped,
            Event::Job(_) | Event::Agent(_) => {}
        }
        let without = stopped.is_some_and(|stopped| !hands.members().contains(&stopped));
        let settled = if without { ended } else { left_out && whom != Whom::Leaver };
        settled && hands.members().len() >= whole.min(hands.running().len())
    };
    let paced = paced(slow(3), "", strike, watch).await?;
    stopped.context("somebody was frozen")?;
    paced.demand(!paced.verdict.state_lost, "the others still had the state")
}

#[tokio::test]
async fn a_joiner_a_donor_and_a_leaver() -> Result<()> {
    if !can_freeze() {
        return Ok(());
    }
    tokio::try_join!(freeze(Whom::Joiner), freeze(Whom::Donor), freeze(Whom::Leaver))?;
    Ok(())
}
