//! Workers come and go: two are killed, one is drained, two join, and one of those is killed while it joins.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use sardana::launch::{Event, Launched, OperatorRequest};
use sardana::{GenerationEvent, JobEvent, WorkerEvent, WorkerId};

/// The step at which the first worker is killed.
const AT_STEP: u64 = 60;

/// The next thing that is done to the job.
#[derive(Debug)]
enum Plan {
    /// Nothing any more.
    Idle,
    /// Kill the member of rank 1 once training is well under way.
    First,
    /// Kill another as soon as all workers are halted for the next generation.
    Second { spared: WorkerId },
    /// Drain a worker once there are four again.
    Drain,
    /// Start two more once it has left.
    Grow,
    /// Kill one of the newcomers in the middle of its join.
    Joiner { newcomers: Vec<WorkerId> },
}

/// Watches the job, and acts.
#[derive(Debug)]
pub(crate) struct Adversary {
    plan: Plan,
    workers: usize,
    members: Vec<WorkerId>,
}

/// What was done, for people.
#[derive(Debug)]
pub(crate) enum Deed {
    /// A worker was sent SIGKILL.
    Kill {
        worker: WorkerId,
        whose: String,
        when: &'static str,
        at: Instant,
    },
    /// A worker was asked to leave.
    Drain { worker: WorkerId },
    /// More workers were asked for.
    Grow { by: usize },
}

impl Adversary {
    pub(crate) fn new(workers: u32) -> Self {
        Self {
            plan: Plan::First,
            workers: workers as usize,
            members: Vec::new(),
        }
    }

    pub(crate) fn idle() -> Self {
        Self {
            plan: Plan::Idle,
            ..Self::new(0)
        }
    }

    /// Whether it has done all that it wants.
    pub(crate) const fn has_done_all(&self) -> bool {
        matches!(self.plan, Plan::Idle)
    }

    /// Looks at an event; acts if it is time.
    pub(crate) fn watch(&mut self, launched: &Launched, event: &Event) -> Option<Deed> {
        if let Event::Job(JobEvent::Generation(
            GenerationEvent::Forming { members, .. } | GenerationEvent::Switched { members, .. },
        )) = event
        {
            self.members.clone_from(members);
        }
        match (&mut self.plan, event) {
            (Plan::First, Event::Job(JobEvent::Steps(reports))) if reports.last()?.step.get() >= AT_STEP => {
                let spared = *self.members.get(1)?;
                self.plan = Plan::Second { spared };
                kill(launched, spared, "rank 1".to_owned(), "in the middle of training")
            }
            (Plan::Second { spared }, Event::Job(JobEvent::Generation(GenerationEvent::Halting { .. }))) => {
                let rank = self.members.iter().rposition(|worker| worker != spared)?;
                self.plan = Plan::Drain;
                kill(
                    launched,
                    self.members[rank],
                    format!("rank {rank}"),
                    "while the ring is re-forming",
                )
            }
            (Plan::Drain, Event::Job(JobEvent::Generation(GenerationEvent::Switched { .. })))
                if self.members.len() == self.workers =>
            {
                let worker = *self.members.first()?;
                self.plan = Plan::Grow;
                launched.steering().request(OperatorRequest::Drain {
                    whom: worker.to_string(),
                });
                Some(Deed::Drain { worker })
            }
            (Plan::Grow, Event::Job(JobEvent::Worker(WorkerEvent::Left { .. }))) => {
                self.plan = Plan::Joiner { newcomers: Vec::new() };
                let workers = u32::try_from(self.workers + 1).ok()?;
                launched.steering().request(OperatorRequest::Scale { workers });
                Some(Deed::Grow { by: 2 })
            }
            (Plan::Joiner { newcomers }, Event::Job(JobEvent::Worker(WorkerEvent::Joined { worker, .. }))) => {
                newcomers.push(*worker);
                None
            }
            (Plan::Joiner { newcomers }, Event::Job(JobEvent::Snapshot { .. })) => {
                let worker = *newcomers.last()?;
                self.plan = Plan::Idle;
                kill(launched, worker, "a newcomer".to_owned(), "while it copies the state")
            }
            _ => None,
        }
    }
}

fn kill(launched: &Launched, worker: WorkerId, whose: String, when: &'static str) -> Option<Deed> {
    let pid = Pid::from_raw(i32::try_from(launched.pid(worker)?).ok()?)?;
    kill_process(pid, Signal::KILL).ok()?;
    Some(Deed::Kill {
        worker,
        whose,
        when,
        at: Instant::now(),
    })
}
