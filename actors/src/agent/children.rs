//! How an agent's workers are started, seen to end, and replaced. Part of its actor.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ractor::ActorRef;
use sardana_net::trust::Credentials;
use sardana_protocol::messages::{AgentMessage, Motion, Tally};
use sardana_protocol::words::WorkerId;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::actor::{Message, State};
use super::away::Mode;
use super::child::{Ending, Order, Process, Streams};
use super::ends::Ends;
use super::start_error::StartError;
use super::{AgentEvent, Bundle};
use crate::worker::TallyFile;

/// A child that runs, or has ended and is not gone: the system is still taking back its memory.
#[derive(Debug)]
pub(super) struct Running {
    task: AbortHandle,
    pub(super) orders: mpsc::UnboundedSender<Order>,
    started: Instant,
    tally: PathBuf,
    /// Its place among the agent's children, from 0 on.
    berth: usize,
    /// Whether it leaves because of a notice.
    pub(super) leaving: bool,
    /// As last seen.
    pub(super) motion: Motion,
    /// So long after it is gone another one is started in its place, once it has ended and if one is.
    successor: Option<Duration>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process is killed with its task.
        self.task.abort();
    }
}

impl State {
    /// Asks for the certificate of one more worker, which is started when it comes.
    pub(super) fn start(&mut self, myself: &ActorRef<Message>) {
        if self.mode != Mode::Keeping {
            self.pending = self.pending.saturating_sub(1);
            self.one_less();
            return;
        }
        match self.certificates.ask(Instant::now()) {
            // It is said again on the next connection if there is none.
            Ok(message) => drop(self.reporting.say(message)),
            Err(error) => self.not_started(myself, &StartError::System(error)),
        }
    }

    /// A new worker's certificate came.
    pub(super) fn certified(&mut self, myself: &ActorRef<Message>, worker: WorkerId, certificate: Vec<u8>) {
        let Some(certified) = self.certificates.certified(worker, certificate) else {
            return;
        };
        let spawned = certified
            .map_err(StartError::System)
            .and_then(|credentials| self.spawn(myself, worker, credentials));
        match spawned {
            Ok(pid) => {
                self.pending = self.pending.saturating_sub(1);
                self.reporting.report(AgentMessage::ChildStarted { worker, pid });
                self.tell(AgentEvent::Started { worker, pid });
            }
            Err(error) => self.not_started(myself, &error),
        }
    }

    pub(super) fn not_started(&mut self, myself: &ActorRef<Message>, error: &StartError) {
        self.pending = self.pending.saturating_sub(1);
        self.tell(AgentEvent::NotStarted {
            reason: error.to_string(),
        });
        if self.restarts_left > 0 && error.may_pass() {
            start_after(self.replace_after(Duration::ZERO, None), myself);
        } else {
            self.some_failed = true;
            self.one_less();
        }
    }

    /// No worker is started any more: those that wait for their certificates will not be.
    pub(super) fn drop_starts(&mut self) {
        let dropped = self.certificates.give_up_all();
        self.pending = self.pending.saturating_sub(dropped);
        if dropped > 0 {
            self.one_less();
        }
    }

    fn spawn(&mut self, myself: &ActorRef<Message>, worker: WorkerId, credentials: Credentials) -> Result<u32, StartError> {
        let tally = self.counts.of(worker);
        std::fs::write(&tally, []).map_err(|error| StartError::System(format!("{}: {error}", tally.display())))?;
        let log = match &self.printer {
            Some(printer) => printer.log(worker).map_err(|error| StartError::System(error.to_string()))?,
            None => None,
        };
        let streams = self.printer.as_ref().map_or(Streams::Inherited, |_| Streams::Piped);
        let berth = self.free_berth();
        let mut process =
            Process::start(&self.program, &self.in_berth(berth), streams).map_err(|source| StartError::Program {
                program: self.program.program.clone(),
                source,
            })?;
        if let Some(printer) = &self.printer {
            let (stdout, stderr) = process.output();
            printer.carry(worker, log, stdout, stderr);
        }
        let pid = process
            .pid()
            .ok_or_else(|| StartError::System("a process has no id".to_owned()))?;
        let ends = Ends::beside(&tally);
        let bundle = Bundle {
            credentials,
            coordinator: self.config.coordinator.clone(),
            listen: self.config.listen,
            advertise: self.config.advertise,
            tally: Some(tally.clone()),
            memory: self.memory.map(|memory| memory / u64::from(self.wanted())),
            ends: ends.paths().to_vec(),
        };
        let agent = myself.clone();
        let (orders, given) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let (how, ending) = process.run(&bundle, ends, given).await;
            // The agent is gone only if the program ends.
            let _ = agent.cast(Message::Ended { worker, how, ending });
            process.gone().await;
            let _ = agent.cast(Message::Gone { worker });
        });
        self.processes().insert(worker, pid);
        self.children.insert(
            worker,
            Running {
                task: task.abort_handle(),
                orders,
                started: Instant::now(),
                tally,
                berth,
                leaving: false,
                motion: Motion::Runs,
                successor: None,
            },
        );
        Ok(pid)
    }

    /// The lowest berth that no child has, nor one that is not gone.
    fn free_berth(&self) -> usize {
        let all = self.children.values().chain(self.going.values());
        let taken: BTreeSet<usize> = all.map(|child| child.berth).collect();
        let mut all = 0..;
        all.find(|berth| !taken.contains(berth))
            .expect("there are more numbers than children")
    }

    /// It does no more work, whether it is gone or not.
    pub(super) fn ended(&mut self, myself: &ActorRef<Message>, worker: WorkerId, mut how: String, ending: Ending) {
        self.processes().remove(&worker);
        let Some(mut child) = self.children.remove(&worker) else {
            return;
        };
        let tally = TallyFile::read(&child.tally);
        // Read once: a host has thousands of children in the life of a long job. A file that cannot be removed goes with its folder.
        let _ = std::fs::remove_file(&child.tally);
        let lived = child.started.elapsed();
        let keeping = self.mode == Mode::Keeping;
        // A worker that left because of a notice that is withdrawn by now has done nothing that its successor could repeat.
        let returning = keeping && child.leaving && self.left() < self.absence.wanted();
        let failed = keeping && !child.leaving && ending == Ending::Bad && self.restarts_left > 0;
        let restarting = returning || failed;
        let did_well = ending == Ending::Good && tally.is_some();
        self.some_failed |= keeping && !child.leaving && !restarting && !did_well;
        match ending {
            // All that tells a program that is no worker from a worker is that it does nothing.
            Ending::Good if keeping && tally.is_none() => how += " before it computed anything",
            Ending::GaveUp => how += ", it would fail again in the same way",
            Ending::Good | Ending::Bad => {}
        }
        // The coordinator first: others wait for this.
        self.reporting.report(AgentMessage::ChildExited {
            worker,
            how: how.clone(),
            tally,
            restarting,
        });
        self.tell(AgentEvent::Ended { worker, how });
        if failed {
            child.successor = Some(self.replace_after(lived, tally));
        }
        let leaving = child.leaving;
        self.going.insert(worker, child);
        if returning {
            self.start_one_more(myself);
        } else if !(failed || keeping && leaving) {
            self.one_less();
        }
    }

    /// In the place of one that is going and has no successor, if there is one: two may not fit into the memory, nor on one GPU. Else at once.
    pub(super) fn start_one_more(&mut self, myself: &ActorRef<Message>) {
        self.pending += 1;
        match self.going.values_mut().find(|child| child.successor.is_none()) {
            Some(going) => going.successor = Some(Duration::ZERO),
            // The actor itself handles it.
            None => drop(myself.cast(Message::Start)),
        }
    }

    /// All that it had is free for others.
    pub(super) fn gone(&mut self, myself: &ActorRef<Message>, worker: WorkerId) {
        if let Some(wait) = self.going.remove(&worker).and_then(|child| child.successor) {
            start_after(wait, myself);
        }
    }

    /// The children had their time. After the job those whose part in it has ended well go on with what their program still does, as saving
    /// what it has computed; all others are ended.
    pub(super) fn end_children(&mut self) {
        let after_job = self.mode == Mode::Leaving;
        let go_on: BTreeSet<WorkerId> = self
            .children
            .iter()
            .filter(|(_, child)| after_job && TallyFile::is_over(&child.tally))
            .map(|(&worker, _)| worker)
            .collect();
        if !go_on.is_empty() {
            tracing::info!(target: "sardana::event::waits_for_programs", programs = go_on.len(), "the job is over; these programs have done their part and still run, and are waited for");
        }
        self.processes().retain(|worker, _| go_on.contains(worker));
        self.children.retain(|worker, _| go_on.contains(worker));
        self.going.clear();
    }

    /// How many run or will be started.
    pub(super) fn left(&self) -> u32 {
        let running = u32::try_from(self.children.len()).unwrap_or(u32::MAX);
        running.saturating_add(self.pending)
    }

    /// A worker ended, or could not be started, and none is started in its place.
    fn one_less(&self) {
        let left = self.left();
        if self.mode == Mode::Away {
            // They may all come back.
        } else if left == 0 {
            let well = self.mode == Mode::Keeping && !self.some_failed;
            self.tell(if well { AgentEvent::Drained } else { AgentEvent::Exhausted });
        } else if self.mode == Mode::Keeping {
            self.tell(AgentEvent::Short { left });
        }
    }

    /// A worker is to be started for one that ended, or could not be started: after how long.
    fn replace_after(&mut self, lived: Duration, tally: Option<Tally>) -> Duration {
        self.restarts_left -= 1;
        self.pending += 1;
        self.replacing.wait(lived, tally)
    }
}

fn start_after(wait: Duration, myself: &ActorRef<Message>) {
    let agent = myself.clone();
    tokio::spawn(async move {
        sleep(wait).await;
        // The agent is gone only if the program ends.
        let _ = agent.cast(Message::Start);
    });
}
