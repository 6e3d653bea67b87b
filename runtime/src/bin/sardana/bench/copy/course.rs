//! A job of this bench as the process that launched it follows it, event by event.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sardana::launch::{Event, LaunchConfig, Launched, launch};
use sardana::{AgentEvent, GenerationEvent, JobEvent, WorkerId};
use tokio::time::timeout;

use crate::ending::Failure;

/// A job in which nothing happens for so long is stuck.
const LIMIT: Duration = Duration::from_secs(120);

/// A job that runs.
pub(super) struct Course {
    launched: Launched,
    /// All processes that were started.
    pub(super) pids: Vec<u32>,
    /// The members of the newest generation, in rank order.
    pub(super) members: Vec<WorkerId>,
    steps: u64,
}

impl Course {
    /// Launches a job.
    ///
    /// # Errors
    /// When it cannot be launched.
    pub(super) async fn begin(config: LaunchConfig) -> Result<Self, Failure> {
        Ok(Self {
            launched: launch(config).await.map_err(Failure::failed)?,
            pids: Vec::new(),
            members: Vec::new(),
            steps: 0,
        })
    }

    /// The job.
    pub(super) const fn launched(&self) -> &Launched {
        &self.launched
    }

    /// What happens next.
    ///
    /// # Errors
    /// When the job fails, or nothing happens.
    pub(super) async fn next(&mut self) -> Result<Event, Failure> {
        let event = timeout(LIMIT, self.launched.next_event()).await;
        let stuck = || Failure::Failed(format!("nothing happened in the job for {LIMIT:?}"));
        let event = event.map_err(|_| stuck())?;
        let event = event.ok_or_else(|| Failure::Failed("the job ended before all was measured".to_owned()))?;
        match &event {
            Event::Agent(AgentEvent::Started { pid, .. }) => self.pids.push(*pid),
            Event::Job(JobEvent::Steps(steps)) => self.steps += steps.len() as u64,
            Event::Job(JobEvent::Failed { reason }) => {
                return Err(Failure::Failed(format!("the job failed: {reason}")));
            }
            Event::Agent(AgentEvent::Exhausted | AgentEvent::NotStarted { .. }) => {
                let died = "workers cannot be started, or end by themselves; their own words are above";
                return Err(Failure::Failed(died.to_owned()));
            }
            Event::Job(event) => {
                if let Some(members) = members_of(event) {
                    self.members = members.to_vec();
                }
            }
            Event::Agent(_) => {}
        }
        Ok(event)
    }

    /// Waits for so many more steps, and shows all that happens meanwhile.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(super) async fn steps(&mut self, more: u64, mut see: impl FnMut(&Event)) -> Result<(), Failure> {
        let until = self.steps + more;
        while self.steps < until {
            see(&self.next().await?);
        }
        Ok(())
    }

    /// Sends a worker SIGKILL.
    ///
    /// # Errors
    /// When it has no process any more.
    pub(super) fn kill(&self, worker: WorkerId) -> Result<(), Failure> {
        let pid = self
            .launched
            .pid(worker)
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.ok_or_else(|| Failure::Failed(format!("worker {worker} ended by itself")))?;
        kill_process(pid, Signal::KILL).map_err(Failure::failed)
    }

    /// Ends the job at a boundary, and shows all that happens meanwhile.
    ///
    /// # Errors
    /// When it fails.
    pub(super) async fn stop(self, mut see: impl FnMut(&Event)) -> Result<(), Failure> {
        self.launched.steering().request_stop();
        let ended = timeout(LIMIT, self.launched.finish(|_, event| see(event))).await;
        let stuck = |_| Failure::Failed(format!("the job did not end within {LIMIT:?}"));
        ended.map_err(stuck)?.map_err(Failure::failed)?;
        Ok(())
    }
}

/// The members of the generation that this event tells of.
pub(super) fn members_of(event: &JobEvent) -> Option<&[WorkerId]> {
    match event {
        JobEvent::Generation(GenerationEvent::Forming { members, .. } | GenerationEvent::Switched { members, .. }) => {
            Some(members)
        }
        JobEvent::Generation(
            GenerationEvent::Halting { .. }
            | GenerationEvent::Formed { .. }
            | GenerationEvent::Resumed { .. }
            | GenerationEvent::Adopted { .. },
        )
        | JobEvent::Worker(_)
        | JobEvent::Checkpoint(_)
        | JobEvent::Steps(_)
        | JobEvent::Snapshot { .. }
        | JobEvent::Waiting { .. }
        | JobEvent::StateLost { .. }
        | JobEvent::Fenced { .. }
        | JobEvent::NotRecorded { .. }
        | JobEvent::RecordedAgain { .. }
        | JobEvent::Done(_)
        | JobEvent::Failed { .. } => None,
    }
}
