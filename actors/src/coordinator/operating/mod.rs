//! What operators ask of the coordinator, and what it keeps for them. Changes the membership only by the machine's own events.

mod agents;
mod serving;
mod whom;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sardana_protocol::limits::{MAX_AUXILIARY, MAX_TEXT_BYTES, MAX_WORKERS};
use sardana_protocol::membership::{Event, JobEvent, WorkerEvent};
use sardana_protocol::memory::DeviceMemory;
use sardana_protocol::messages::{AgentOrder, StepReport};
use sardana_protocol::rate::Rate;
use sardana_protocol::status::Stage;
use sardana_protocol::status::{DeviceView, JobStatus, LinksView, OperatorAnswer, OperatorRequest, Overview, WorkerView};
use sardana_protocol::words::{Generation, Step, WorkerId, count, few};

pub(super) use agents::Agents;
pub(super) use words::plain;

use super::actor::{Life, State};
use crate::operator::limits::{EVENT_BYTES, KEPT_EVENTS};

/// Why the machine is asked for a change, as people read it.
const OPERATOR: &str = "an operator wants it";

/// What is kept only for operators. It costs little: a text for each event that is no step, and the newest step.
#[derive(Debug, Default)]
pub(super) struct Operating {
    pub(super) agents: Agents,
    auxiliary: Vec<String>,
    last: Option<StepReport>,
    rate: Rate,
    events: VecDeque<(Duration, String)>,
}

impl Operating {
    /// The first worker says what the job's auxiliary sums are called.
    pub(super) fn named(&mut self, auxiliary: &[String]) {
        let names = auxiliary.iter().take(MAX_AUXILIARY);
        self.auxiliary = names.map(|name| plain(name, MAX_TEXT_BYTES)).collect();
    }

    /// Names of the model's auxiliary sums.
    pub(super) fn auxiliary(&self) -> &[String] {
        &self.auxiliary
    }

    /// People are told this.
    pub(super) fn note(&mut self, now: Duration, event: &JobEvent) {
        // A status says anyhow how many steps are applied.
        if let JobEvent::Steps(reports) = event {
            self.rate.count(now, reports.len() as u64);
            if let Some(last) = reports.last() {
                let mut last = last.clone();
                last.sums.truncate(MAX_AUXILIARY);
                self.last = Some(last);
            }
            return;
        }
        if let JobEvent::Worker(WorkerEvent::Left { worker, .. }) = event {
            self.agents.left(*worker);
        }
        self.remember(now, &event.to_string());
    }

    /// Keeps what happened, and forgets what is older than the last [`KEPT_EVENTS`].
    pub(super) fn remember(&mut self, now: Duration, words: &str) {
        if self.events.len() == KEPT_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back((now, plain(words, EVENT_BYTES)));
    }
}

impl State {
    /// Does what an operator asks, and says so.
    pub(super) fn asked(&mut self, request: &OperatorRequest) -> OperatorAnswer {
        let outcome = match request {
            OperatorRequest::Status => return OperatorAnswer::Status(Box::new(self.status())),
            OperatorRequest::Drain { whom } => self.drain(whom),
            OperatorRequest::Kill { whom } => self.kill(whom),
            OperatorRequest::Scale { workers } => self.scale(*workers),
            OperatorRequest::Stop => self.stop(),
        };
        match outcome {
            Ok(what) => {
                tracing::info!(target: "sardana::event::operator", %what, "an operator's request");
                self.operating.remember(self.started.elapsed(), &format!("operator: {what}"));
                OperatorAnswer::Done { what }
            }
            Err(reason) => {
                tracing::info!(target: "sardana::event::operator", %reason, "an operator's request was refused");
                OperatorAnswer::Refused { reason }
            }
        }
    }

    fn status(&self) -> JobStatus {
        let now = self.started.elapsed();
        let overview = self.overview(now);
        let round_trips = self.workers.iter().take(MAX_WORKERS as usize);
        let running = overview.stage == Stage::Running;
        JobStatus {
            job: self.config.registrar.job(),
            spec: self.job.as_ref().map(|(identity, _)| identity.spec.clone()),
            auxiliary: self.operating.auxiliary.clone(),
            overview,
            last: self.operating.last.clone(),
            steps_per_second: if running { self.operating.rate.per_second(now) } else { 0.0 },
            age: now,
            agents: self.operating.agents.status(),
            round_trips: round_trips
                .map(|(worker, connected)| (*worker, connected.outlet.connection.rtt()))
                .collect(),
            events: self
                .operating
                .events
                .iter()
                .map(|(at, words)| (now.saturating_sub(*at), words.clone()))
                .collect(),
            recording: self.recording(),
            links: self.links(now),
            devices: self.devices(),
            device_memory: self.device_memory(),
        }
    }

    fn devices(&self) -> Vec<DeviceView> {
        let mut by_device: BTreeMap<&str, Vec<WorkerId>> = BTreeMap::new();
        for (worker, connected) in self.workers.iter().take(MAX_WORKERS as usize) {
            by_device.entry(&connected.device).or_default().push(*worker);
        }
        let view = |(device, workers): (&str, _)| DeviceView {
            device: device.to_owned(),
            workers,
        };
        by_device.into_iter().map(view).collect()
    }

    fn device_memory(&self) -> Vec<(WorkerId, DeviceMemory)> {
        let workers = self.workers.iter().take(MAX_WORKERS as usize);
        workers
            .filter_map(|(worker, connected)| Some((*worker, connected.device_memory.clone()?)))
            .collect()
    }

    fn links(&self, now: Duration) -> LinksView {
        let membership = self.job.as_ref().map(|(_, membership)| membership);
        membership.map_or_else(LinksView::default, |membership| membership.links(now))
    }

    fn overview(&self, now: Duration) -> Overview {
        let mut overview = match &self.job {
            Some((_, membership)) => membership.overview(now),
            None => Overview {
                stage: if self.life == Life::Over {
                    Stage::Done
                } else {
                    Stage::Gathering
                },
                generation: Generation::new(self.config.incarnation, 0),
                step: Step::ZERO,
                workers: Vec::new(),
                checkpoints: None,
            },
        };
        overview.workers.truncate(MAX_WORKERS as usize);
        overview
    }

    fn drain(&mut self, whom: &str) -> Result<String, String> {
        let workers = self.present()?;
        let meant = whom::select(whom, &workers, &self.operating.agents)?;
        let asked: Vec<WorkerId> = workers
            .iter()
            .filter(|view| meant.contains(&view.worker) && !view.leaving)
            .map(|view| view.worker)
            .collect();
        self.leave(&asked, OPERATOR);
        Ok(match asked.as_slice() {
            [] => format!("{} leave already", few(&meant, ", ")),
            [one] => format!("{one} leaves at the next boundary"),
            several => format!("{} leave at the next boundary", few(several, ", ")),
        })
    }

    fn kill(&mut self, whom: &str) -> Result<String, String> {
        let workers = self.present()?;
        let worker = whom::select_one(whom, &workers, &self.operating.agents)?;
        if self.order_kill(worker) {
            return Ok(format!("the agent of {worker} was told to kill it"));
        }
        let address = workers.iter().find(|view| view.worker == worker).map(|view| view.address);
        let place = address.map_or_else(|| "an unknown address".to_owned(), |address| address.to_string());
        Err(format!(
            "{worker} runs under no agent that is connected: expected one that can kill it, found a worker at {place}; end its \
             process on its host by hand"
        ))
    }

    /// Whether an agent was told to kill this worker.
    fn order_kill(&self, worker: WorkerId) -> bool {
        let agent = self.operating.agents.parent(worker).and_then(|agent| self.agents.get(&agent));
        agent.is_some_and(|agent| agent.say(AgentOrder::Kill { worker }))
    }

    /// A worker that lives and does nothing is of no use, and would never end by itself.
    pub(in crate::coordinator) fn kill_hanging(&self, worker: WorkerId) {
        if !self.order_kill(worker) {
            tracing::warn!(%worker, "it hangs, and runs under no agent that is connected: end its process on its host by hand");
        }
    }

    fn scale(&mut self, wanted: u32) -> Result<String, String> {
        if wanted == 0 || wanted > MAX_WORKERS {
            return Err(format!(
                "expected 1 to {MAX_WORKERS} workers, found {wanted}; to end the job, stop it"
            ));
        }
        if wanted < self.config.min {
            return Err(format!(
                "expected at least {} workers, which the job was started with as its least, found {wanted}; to end the job, stop it",
                self.config.min
            ));
        }
        if self.life == Life::Over {
            return Err(over());
        }
        let now = self.started.elapsed();
        let workers = self.overview(now).workers;
        let staying: Vec<WorkerId> = workers.iter().filter(|view| !view.leaving).map(|view| view.worker).collect();
        let connected = &self.workers;
        let coming = self.operating.agents.coming(|worker| connected.contains_key(&worker), now);
        let there = u32::try_from(staying.len()).unwrap_or(u32::MAX).saturating_add(coming);
        if wanted > there {
            self.start_more(wanted - there, now)
        } else if wanted < there {
            self.drain_highest(&staying, there - wanted)
        } else {
            Ok(format!("the job has {} already", count(there, "worker")))
        }
    }

    fn start_more(&mut self, more: u32, now: Duration) -> Result<String, String> {
        let orders = self.operating.agents.spread(more);
        if orders.is_empty() {
            return Err(format!(
                "expected an agent that starts {more} more, found none connected that stays; start one with `sardana agent`"
            ));
        }
        let mut told = Vec::new();
        for (agent, workers) in orders {
            if let Some(outlet) = self.agents.get(&agent) {
                // A session that is over has said so, or will; the workers that are missing then can be asked for again.
                outlet.say(AgentOrder::Start { workers });
                self.operating.agents.ordered(agent, workers, now);
                told.push(format!("{workers} on {}", self.operating.agents.host_of(agent)));
            }
        }
        Ok(format!("{more} more are started: {}", few(&told, ", ")))
    }

    /// Lets `fewer` of the workers that stay leave, the last first: workers without a rank, then the highest ranks.
    fn drain_highest(&mut self, staying: &[WorkerId], fewer: u32) -> Result<String, String> {
        let leaving: Vec<WorkerId> = staying.iter().rev().take(fewer as usize).copied().collect();
        if leaving.is_empty() {
            return Err("the workers that are too many are not connected yet: ask again in a moment".to_owned());
        }
        self.leave(&leaving, OPERATOR);
        Ok(format!("{} leave at the next boundary", few(&leaving, ", ")))
    }

    fn stop(&mut self) -> Result<String, String> {
        if self.life == Life::Over {
            return Err(over());
        }
        self.stop_requested();
        Ok("the job ends at the next boundary".to_owned())
    }

    /// These workers are to leave at the next boundary.
    pub(super) fn leave(&mut self, workers: &[WorkerId], reason: &str) {
        for &worker in workers {
            self.decide(Event::LeaveRequested {
                worker,
                reason: reason.to_owned(),
            });
        }
    }

    /// An agent leaves, and its children with it.
    pub(super) fn agent_leaves(&mut self, agent: u64, reason: &str) {
        let children = self.operating.agents.leaves(agent, reason);
        let host = self.operating.agents.host_of(agent).to_owned();
        tracing::info!(target: "sardana::event::agent_leaves", host, reason, "an agent's workers leave");
        let now = self.started.elapsed();
        self.operating.remember(now, &format!("the agent on {host} leaves: {reason}"));
        self.leave(&children, &format!("its agent on {host} leaves: {reason}"));
    }

    /// An agent that was to leave stays, and starts workers again.
    pub(super) fn agent_stays(&mut self, agent: u64, reason: &str) {
        if !self.operating.agents.stays(agent) {
            return;
        }
        let host = self.operating.agents.host_of(agent).to_owned();
        tracing::info!(target: "sardana::event::agent_stays", host, reason, "an agent that was to leave stays");
        let now = self.started.elapsed();
        self.operating.remember(now, &format!("the agent on {host} stays: {reason}"));
    }

    /// The connected workers, if the job goes on.
    fn present(&self) -> Result<Vec<WorkerView>, String> {
        if self.life == Life::Over {
            return Err(over());
        }
        Ok(self.overview(self.started.elapsed()).workers)
    }
}

fn over() -> String {
    "the job is over: there is nothing left to change".to_owned()
}
