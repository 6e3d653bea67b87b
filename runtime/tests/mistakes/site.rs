//! A coordinator in this process, and workers on threads of it, over real QUIC on loopback.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use sardana::model::{ModelError, StateHash, Trainable};
use sardana::worker::{ProcessError, serve};
use sardana::{Job, JobEvent, JobSpec, WorkerEvent};
use sardana_actors::agent::Bundle;
use sardana_actors::coordinator::Coordinator;
use sardana_actors::worker::Ended;
use sardana_net::trust::{Authority, Credentials, Role};
use sardana_protocol::words::JobId;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::loopback::{PATIENCE, bundle, coordinator};

pub(crate) struct Site {
    runtime: Runtime,
    pub(crate) authority: Arc<Authority>,
    coordinator: Coordinator,
    events: mpsc::UnboundedReceiver<JobEvent>,
}

/// A worker's end, when it comes.
pub(crate) struct Worker(Receiver<Result<Ended, ProcessError>>);

impl Worker {
    pub(crate) fn outcome(self) -> Result<Ended, ProcessError> {
        self.0.recv_timeout(PATIENCE).expect("the worker ends and does not panic")
    }

    /// The state that it ended with, at the job's end.
    pub(crate) fn state(self) -> StateHash {
        match self.outcome().unwrap() {
            Ended::Done { hash, .. } => hash,
            left @ Ended::Drained { .. } => panic!("it was not asked to leave: {left:?}"),
        }
    }

    /// The reason for which it gave up.
    pub(crate) fn refusal(self) -> String {
        let error = self.outcome().unwrap_err();
        assert_eq!(error.exit_code(), sardana::worker::EXIT_GIVE_UP, "{error}");
        error.to_string()
    }

    /// Requires that it gave up, with these words.
    pub(crate) fn gives_up(self, words: &[&str]) {
        let refusal = self.refusal();
        assert!(words.iter().all(|word| refusal.contains(word)), "{refusal}");
    }
}

impl Site {
    /// A coordinator that waits for `workers` workers.
    pub(crate) fn new(workers: u32) -> Self {
        Self::of(Authority::new(JobId::new([5; 16])).unwrap(), workers)
    }

    /// The same, of this authority.
    pub(crate) fn of(authority: Authority, workers: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let authority = Arc::new(authority);
        let (coordinator, events) = runtime.block_on(coordinator(&authority, workers));
        Self {
            runtime,
            authority,
            coordinator,
            events,
        }
    }

    pub(crate) fn bundle(&self, credentials: Credentials) -> Bundle {
        bundle(&self.coordinator, credentials)
    }

    /// Starts the worker `id`.
    pub(crate) fn worker<M: Trainable>(
        &self,
        id: u64,
        job: Job,
        build: impl FnOnce(&JobSpec) -> Result<M, ModelError> + Send + 'static,
    ) -> Worker {
        self.start(self.authority.issue(Role::Worker, id).unwrap(), job, build)
    }

    /// Starts a worker with these credentials.
    pub(crate) fn start<M: Trainable>(
        &self,
        credentials: Credentials,
        job: Job,
        build: impl FnOnce(&JobSpec) -> Result<M, ModelError> + Send + 'static,
    ) -> Worker {
        let bundle = self.bundle(credentials);
        let (ended, outcome) = channel();
        thread::spawn(move || {
            // The test may have failed already.
            let _ = ended.send(serve(bundle, &job, build));
        });
        Worker(outcome)
    }

    pub(crate) fn event(&mut self) -> JobEvent {
        let event = self.runtime.block_on(async { timeout(PATIENCE, self.events.recv()).await });
        event.expect("something happens in time").expect("the coordinator lives")
    }

    /// Waits until a worker has joined.
    pub(crate) fn joined(&mut self) {
        while !matches!(self.event(), JobEvent::Worker(WorkerEvent::Joined { .. })) {}
    }

    /// The job's end: the final state's hash, or why it failed.
    pub(crate) fn end(&mut self) -> Result<sardana::Summary, String> {
        loop {
            match self.event() {
                JobEvent::Done(summary) => return Ok(summary),
                JobEvent::Failed { reason } => return Err(reason),
                _other => {}
            }
        }
    }
}
