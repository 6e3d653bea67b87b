//! Kills two workers: one in the middle of training, one while the ring is re-forming after the first.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use sardana::launch::{Event, Launched};
use sardana::{JobEvent, WorkerId};

/// The step at which the first worker is killed.
const AT_STEP: u64 = 230;

/// What the killer does next.
#[derive(Debug)]
enum Plan {
    /// Nothing any more.
    Idle,
    /// Kill the member of rank 1 once training is well under way.
    First,
    /// Kill another as soon as everybody is halted for the next generation.
    Second { spared: WorkerId },
}

/// Watches the job, and kills.
#[derive(Debug)]
pub(crate) struct Killer {
    plan: Plan,
    members: Vec<WorkerId>,
}

/// A kill that was done.
#[derive(Debug)]
pub(crate) struct Kill {
    pub(crate) worker: WorkerId,
    pub(crate) rank: usize,
    pub(crate) when: &'static str,
    pub(crate) at: Instant,
}

impl Killer {
    pub(crate) fn new() -> Self {
        Self {
            plan: Plan::First,
            members: Vec::new(),
        }
    }

    pub(crate) fn idle() -> Self {
        Self {
            plan: Plan::Idle,
            members: Vec::new(),
        }
    }

    /// Looks at an event; kills if it is time.
    pub(crate) fn watch(&mut self, launched: &Launched, event: &Event) -> Option<Kill> {
        if let Event::Job(JobEvent::Forming { members, .. }) = event {
            self.members.clone_from(members);
        }
        let (rank, when) = match (&self.plan, event) {
            (Plan::First, Event::Job(JobEvent::Steps(reports))) if reports.last()?.step.get() >= AT_STEP => {
                (1, "in the middle of training")
            }
            (Plan::Second { spared }, Event::Job(JobEvent::Halting { .. })) => {
                let rank = self.members.iter().rposition(|worker| worker != spared)?;
                (rank, "while the ring is re-forming")
            }
            _ => return None,
        };
        let worker = *self.members.get(rank)?;
        let pid = Pid::from_raw(i32::try_from(launched.pid(worker)?).ok()?)?;
        kill_process(pid, Signal::KILL).ok()?;
        self.plan = match self.plan {
            Plan::First => Plan::Second { spared: worker },
            Plan::Second { .. } | Plan::Idle => Plan::Idle,
        };
        Some(Kill {
            worker,
            rank,
            when,
            at: Instant::now(),
        })
    }
}
