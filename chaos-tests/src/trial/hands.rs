//! What an adversary can do to a running job, and what it has seen of it.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use sardana::launch::{Event, Launched, OperatorRequest};
use sardana::{AgentEvent, WorkerId};

use super::{Told, Trial, members_of, send};
use crate::gate::{Closed, Place};

/// What the adversary has at hand.
#[derive(Debug)]
pub struct Hands<'a> {
    pub(super) launched: &'a Launched,
    pub(super) record: &'a mut Record,
    pub(super) gates: &'a mut Vec<(Place, Closed)>,
}

/// What has happened so far.
#[derive(Debug, Default)]
pub(super) struct Record {
    members: Vec<WorkerId>,
    pub(super) processes: BTreeMap<WorkerId, u32>,
    running: Vec<WorkerId>,
    pub(super) told: Vec<(Duration, Told)>,
    pub(super) kills: u32,
    pub(super) stops: u32,
}

impl Record {
    pub(super) fn note(&mut self, event: &Event) {
        if let Event::Job(event) = event
            && let Some(members) = members_of(event)
        {
            self.members = members.to_vec();
        }
        if let Event::Agent(AgentEvent::Started { worker, pid }) = event {
            self.processes.insert(*worker, *pid);
            self.running.push(*worker);
        }
        if let Event::Agent(AgentEvent::Ended { worker, .. }) = event {
            self.running.retain(|running| running != worker);
        }
    }
}

impl Hands<'_> {
    /// The members of the newest generation in rank order.
    #[must_use]
    pub fn members(&self) -> &[WorkerId] {
        &self.record.members
    }

    /// The worker processes that run, in the order in which they were started.
    #[must_use]
    pub fn running(&self) -> &[WorkerId] {
        &self.record.running
    }

    /// How many worker processes have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.record.processes.len() - self.record.running.len()
    }

    /// The process of a worker, if it runs.
    #[must_use]
    pub fn pid(&self, worker: WorkerId) -> Option<u32> {
        self.launched.pid(worker)
    }

    /// Sends a signal to a worker, if it runs.
    pub fn signal(&mut self, worker: WorkerId, signal: Signal) {
        self.send(worker, signal);
    }

    /// Sends a signal to a worker: whether there was such a process.
    pub fn send(&mut self, worker: WorkerId, signal: Signal) -> bool {
        let sent = self.pid(worker).is_some_and(|pid| send(pid, signal).is_ok());
        if sent {
            let at = self.record.told.last().map_or(Duration::ZERO, |(at, _)| *at);
            self.record.told.push((at, Told::Signal(worker, signal)));
            self.record.kills += u32::from(signal == Signal::KILL);
            self.record.stops += u32::from(signal == Signal::STOP);
        }
        sent
    }

    /// Asks for something as an operator does.
    pub fn request(&mut self, request: OperatorRequest) {
        let at = self.record.told.last().map_or(Duration::ZERO, |(at, _)| *at);
        self.record.told.push((at, Told::Request(request.clone())));
        self.launched.steering().request(request);
    }

    /// Lets a worker leave at the next boundary.
    pub fn drain(&mut self, worker: WorkerId) {
        let whom = worker.to_string();
        self.request(OperatorRequest::Drain { whom });
    }

    /// Starts workers, or lets some leave, until there are so many.
    pub fn scale(&mut self, workers: usize) {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX);
        self.request(OperatorRequest::Scale { workers });
    }

    /// Kills a worker, if it runs.
    pub fn kill(&mut self, worker: WorkerId) {
        self.signal(worker, Signal::KILL);
    }

    /// Opens a gate.
    pub fn open(&mut self, place: Place) {
        self.gates.retain(|(closed, _)| *closed != place);
    }

    /// Closes a gate.
    ///
    /// # Panics
    /// When the gate's file cannot be locked.
    pub fn close(&mut self, place: Place, trial: &Trial) {
        let closed = place
            .close(trial.folder())
            .expect("a file in the trial's own folder can be locked");
        self.gates.push((place, closed));
    }
}
