//! One whole run: the cluster trains, faults come and end, then everything heals, and the job must end in the bits of a plain loop.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::Result;
use sardana::reference::{self, Reference};
use sardana::{JobEvent, StepReport, Summary};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::air::{Air, since};
use super::checked;
use super::circumstances::{Circumstances, Trouble};
use super::cluster::{Cluster, Ending, Happening};
use super::panics;
use super::story::{Story, Telling};
use super::trace::{Datagram, Traffic};
use super::weather::Weather;
use crate::model::Touchy;

/// Once everything is healed, a step must be applied at least this often: a dead worker is noticed, a state lost for good is given up, and a
/// worker comes in less.
const PROGRESS: Duration = Duration::from_secs(90);

/// How long workers may take to end once their job is done. A worker that was cut off at that moment looks for its coordinator for an
/// hour, as it should.
const ENDING: Duration = Duration::from_secs(40);

/// What became of a run.
#[derive(Debug)]
pub struct Played {
    /// What did not hold, if something did not.
    pub violation: Option<String>,
    /// The whole trace as one number.
    pub digest: u64,
    /// Every datagram.
    pub datagrams: Vec<Datagram>,
    /// How many datagrams had which fate.
    pub traffic: Traffic,
    /// What people were told.
    pub story: Vec<String>,
    /// How long it took, in its own time.
    pub took: Duration,
    /// How often each kind of fault came, and each thing happened that people are told of.
    pub counts: Counts,
}

/// How often something happened, by what it is called.
pub type Counts = BTreeMap<&'static str, u64>;

/// Plays the run of `seed`.
///
/// # Errors
/// When the run could not begin: that is this machine's fault, or a mistake in the simulation.
pub fn play(seed: u64, trouble: Trouble, telling: Telling) -> Result<Played> {
    let circumstances = Circumstances::draw(seed, trouble);
    let job = circumstances.setup.job()?;
    let states = checked::expected(job.spec(), &circumstances.setup)?;
    let expected = reference::train(job.spec(), &mut Touchy::plain(&circumstances.setup))?;
    panics::watch();
    panics::seen();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(async {
        let air = Air::new(seed, circumstances.weather.clone());
        tokio::spawn(air.clone().carry());
        let (cluster, happenings) = Cluster::new(seed, circumstances, states, air)?;
        let mut run = Run {
            cluster,
            expected,
            story: Story::new(telling),
            violation: None,
            done: None,
            counts: Counts::default(),
            open: 0,
            numbered: 0,
            reached: 0,
            progressed: Instant::now(),
        };
        run.play(happenings).await?;
        let panicked = panics::seen();
        if panicked > 0 {
            run.violated(format!("{panicked} tasks panicked; what they said is above"));
        }
        Ok(run.finish())
    })
}

pub(super) struct Run {
    pub(super) cluster: Cluster,
    expected: Reference,
    story: Story,
    violation: Option<String>,
    done: Option<Summary>,
    counts: Counts,
    /// Faults that are not over.
    pub(super) open: u64,
    /// The number of the newest fault that lasts.
    pub(super) numbered: u64,
    /// The newest step that was reported, and when something was reached that was not before.
    reached: u64,
    progressed: Instant,
}

impl Run {
    async fn play(&mut self, mut happenings: mpsc::UnboundedReceiver<Happening>) -> Result<()> {
        let began = Instant::now();
        let mut faults: VecDeque<_> = self.cluster.circumstances.faults.clone().into();
        self.tell(&format!("{:?}", self.cluster.circumstances));
        self.cluster.start_coordinator().await?;
        for _ in 0..self.cluster.circumstances.setup.workers {
            self.cluster.start_worker();
        }
        while self.violation.is_none() && self.done.is_none() {
            let healed = faults.is_empty() && self.open == 0;
            if healed {
                self.cluster.air.turn(Weather::calm_down);
            } else {
                self.progressed = Instant::now();
            }
            let next = match faults.front() {
                Some((at, _)) => began + *at,
                None => self.progressed + PROGRESS,
            };
            tokio::select! {
                biased;
                happening = happenings.recv() => match happening {
                    Some(happening) => self.happen(happening).await?,
                    None => self.violated("nothing happens any more".to_owned()),
                },
                () = sleep_until(next) => match faults.pop_front() {
                    Some((_, fault)) => self.strike(fault),
                    None if healed => self.violated(format!("no step for {PROGRESS:?} although all is well; reached s{}", self.reached)),
                    None => {}
                },
            }
        }
        self.end(&mut happenings).await
    }

    /// The job is done: its coordinator ends, and the workers after it.
    async fn end(&mut self, happenings: &mut mpsc::UnboundedReceiver<Happening>) -> Result<()> {
        self.cluster.air.turn(Weather::calm_down);
        if self.violation.is_some() {
            return Ok(());
        }
        if let Some(life) = self.cluster.coordinator.take() {
            life.coordinator.end().await;
        }
        let all = async {
            while !self.cluster.workers.is_empty() && self.violation.is_none() {
                match happenings.recv().await {
                    Some(happening) => self.happen(happening).await?,
                    None => break,
                }
            }
            Ok::<(), anyhow::Error>(())
        };
        if let Ok(ended) = timeout(ENDING, all).await {
            ended?;
        }
        let left = self.cluster.workers.len();
        self.tell(&format!("over; {left} workers have not heard of it"));
        Ok(())
    }

    async fn happen(&mut self, happening: Happening) -> Result<()> {
        match happening {
            Happening::Job(incarnation, event) => {
                let present = self.cluster.coordinator.as_ref();
                if present.is_some_and(|life| life.incarnation == incarnation) {
                    self.tell(&format!("i{incarnation}: {event}"));
                    self.hear(event);
                }
            }
            Happening::Enrolled(serial, id) => {
                self.tell(&format!("worker {serial} has enrolled as {id}"));
                if let Some(member) = self.cluster.workers.get_mut(&serial) {
                    member.id = Some(id);
                }
            }
            Happening::Ended(serial, ending) => self.ended(serial, ending),
            Happening::Start if self.done.is_none() => {
                let serial = self.cluster.start_worker();
                self.tell(&format!("worker {serial} is started"));
            }
            Happening::StartCoordinator if self.done.is_none() => {
                self.cluster.start_coordinator().await?;
                self.open -= 1;
                self.tell("the coordinator is started again");
            }
            Happening::Start | Happening::StartCoordinator => {}
            Happening::Over(number) => self.over(number),
        }
        Ok(())
    }

    fn ended(&mut self, serial: u64, ending: Ending) {
        // A worker that was killed says nothing any more.
        if self.cluster.workers.remove(&serial).is_none() {
            return;
        }
        self.tell(&format!("worker {serial} ended: {ending}"));
        match ending {
            Ending::Done(step, hash) => {
                if (step, hash) != (self.cluster.job().spec().steps, self.expected.hash) {
                    self.violated(format!(
                        "BITS-1: worker {serial} ended at {step} with {hash}, expected {}",
                        self.expected.hash
                    ));
                }
            }
            Ending::Drained | Ending::Anew(_) => self.replace(),
            Ending::Wrong(why) => self.violated(format!("worker {serial} ended as none may: {why}")),
        }
    }

    pub(super) fn replace(&self) {
        self.cluster.later(self.cluster.circumstances.restart, Happening::Start);
    }

    fn hear(&mut self, event: JobEvent) {
        self.count(event.name());
        if let JobEvent::Steps(reports) = event {
            self.check(&reports);
        } else if let JobEvent::Done(summary) = event {
            if summary.hash != self.expected.hash || summary.step != self.cluster.job().spec().steps {
                self.violated(format!(
                    "BITS-1: the job ended at {} with {}, expected {}",
                    summary.step, summary.hash, self.expected.hash
                ));
            }
            self.done = Some(summary);
        } else if let JobEvent::Failed { reason } = event {
            self.violated(format!("the job failed: {reason}"));
        } else if let JobEvent::StateLost { .. } = event {
            self.reached = 0;
        }
    }

    /// Each step's samples and sums are those of the plain loop.
    fn check(&mut self, reports: &[StepReport]) {
        for report in reports {
            let at = usize::try_from(report.step.get()).ok();
            let expected = at.and_then(|at| self.expected.reports.get(at));
            if expected != Some(report) {
                self.violated(format!("BITS-1: {report:?} was reported, expected {expected:?}"));
            }
            if report.step.get() + 1 > self.reached {
                self.reached = report.step.get() + 1;
                self.progressed = Instant::now();
            }
        }
    }

    /// The n-th of the workers that are there, counted round and round.
    pub(super) fn choose(&self, who: u64) -> Option<u64> {
        let count = self.cluster.workers.len() as u64;
        let at = usize::try_from(who.checked_rem(count)?).ok()?;
        self.cluster.workers.keys().nth(at).copied()
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_insert(0) += 1;
    }

    fn violated(&mut self, what: String) {
        self.tell(&format!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
    }

    pub(super) fn tell(&mut self, what: &str) {
        let sent = self.cluster.air.trace(|trace| trace.traffic.sent);
        self.story.tell(since(&self.cluster.air), sent, what);
    }

    fn finish(self) -> Played {
        let took = since(&self.cluster.air);
        let (digest, traffic, datagrams) = self
            .cluster
            .air
            .trace(|trace| (trace.digest(), trace.traffic, trace.datagrams.clone()));
        Played {
            violation: self.violation,
            digest,
            datagrams,
            traffic,
            story: self.story.into_lines(),
            took,
            counts: self.counts,
        }
    }
}
