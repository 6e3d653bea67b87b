//! What it costs the workers that train that one more joins them, and how soon it computes shards.
//!
//! Three worker processes train; a fourth is asked for. A gradient sleeps, so that the host's processors are there for the join as
//! they would be if each worker had its own; the runs named `no sleep` do without. The state's size is independent of the
//! gradient's: most of it is not trained. All times are those of one host, over loopback.
//!
//! `cargo bench -p sardana-chaos-tests --bench join [-- [MIB,MIB...] [KILLS]]`; sizes of 1 and 100 MiB unless told otherwise: 1,000 MiB
//! take much memory (each process holds copies of the state) and minutes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use sardana::launch::{Event, Launched, OperatorRequest, launch};
use sardana::{AgentEvent, GenerationEvent, JobEvent, WorkerEvent, WorkerId};
use sardana_chaos_tests::dice::Dice;
use sardana_chaos_tests::journal::{Journal, now_ns};
use sardana_chaos_tests::pace::{Pace, quantile};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Trial, members_of, send};
use tokio::time::{sleep, timeout};

#[path = "join/stream.rs"]
mod stream;

const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

const WORKERS: u32 = 3;

/// A gradient's sleep: three of them make a step of 40 ms.
const REST_US: u64 = 13_300;

/// How long training goes on before the fourth worker is asked for, and after it computes shards.
const STEADY: Duration = Duration::from_millis(2_500);

/// One join, or one replacement, that takes longer is stuck.
const LIMIT: Duration = Duration::from_secs(90);

/// A worker that lived shorter than this is replaced late, to spare a host whose program cannot start.
const GROWN_UP: Duration = Duration::from_millis(2_100);

/// Between two kills.
const PACE: Duration = Duration::from_millis(1_050);

/// When what happened, in nanoseconds since 1970; 0 if it has not.
#[derive(Debug, Default)]
struct Moments {
    asked: u64,
    started: u64,
    joined: u64,
    snapshot: u64,
    caught_up: u64,
    switched: u64,
    ended: u64,
}

/// One join.
#[derive(Debug, Default)]
struct Join {
    at: Moments,
    newcomer: Option<(WorkerId, u32)>,
    remarks: Vec<String>,
}

impl Join {
    fn see(&mut self, event: &Event) {
        let is_newcomer = |worker: &WorkerId| self.newcomer.is_some_and(|(newcomer, _)| newcomer == *worker);
        match event {
            Event::Agent(AgentEvent::Started { worker, pid }) if self.at.asked != 0 => {
                self.newcomer = Some((*worker, *pid));
                self.at.started = now_ns();
            }
            Event::Job(JobEvent::Worker(WorkerEvent::Joined { worker, .. })) if is_newcomer(worker) => {
                self.at.joined = now_ns()
            }
            Event::Job(JobEvent::Snapshot { .. }) if self.at.joined != 0 => self.at.snapshot = now_ns(),
            Event::Job(JobEvent::Worker(WorkerEvent::CaughtUp { worker, .. })) if is_newcomer(worker) => {
                self.at.caught_up = now_ns()
            }
            Event::Job(JobEvent::Generation(GenerationEvent::Switched { members, .. }))
                if members.iter().any(is_newcomer) =>
            {
                self.at.switched = now_ns();
            }
            Event::Job(
                told @ (JobEvent::Worker(WorkerEvent::JoinsAnew { .. })
                | JobEvent::Worker(WorkerEvent::Held { .. })
                | JobEvent::Worker(WorkerEvent::Lost { .. })
                | JobEvent::Generation(GenerationEvent::Halting { .. })),
            ) if self.at.asked != 0 => {
                self.remarks.push(format!("{told:?}"));
            }
            Event::Job(_) | Event::Agent(_) => {}
        }
    }

    async fn run(&mut self, launched: &mut Launched) -> Result<()> {
        loop {
            let event = launched.next_event().await.context("the job ended")?;
            if matches!(event, Event::Job(JobEvent::Steps(_))) {
                break;
            }
        }
        self.watch_for(launched, STEADY).await?;
        self.at.asked = now_ns();
        launched.steering().request(OperatorRequest::Scale { workers: WORKERS + 1 });
        while self.at.switched == 0 {
            let event = launched.next_event().await.context("the job ended")?;
            self.see(&event);
        }
        self.watch_for(launched, STEADY).await?;
        self.at.ended = now_ns();
        Ok(())
    }

    async fn watch_for(&mut self, launched: &mut Launched, time: Duration) -> Result<()> {
        let over = sleep(time);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return Ok(()),
                event = launched.next_event() => self.see(&event.context("the job ended")?),
            }
        }
    }

    fn print(&self, name: &str, trial: &Trial, stream: f64) -> Result<()> {
        let at = &self.at;
        let (_, pid) = self.newcomer.context("a worker was started")?;
        let journal = Journal::read(trial.folder())?;
        let steps = Pace::of(&journal, Some(pid));
        let mut before: Vec<f64> = steps.within(0, at.asked).collect();
        let mut after: Vec<f64> = steps.within(at.switched, at.ended).collect();
        let median = quantile(&mut before, 0.5);
        let longest = |from, to| steps.within(from, to).fold(f64::NAN, f64::max);
        println!(
            "{name}: a step takes {median:.2} ms (p99 {:.2}, longest {:.2}), afterwards {:.2} ms",
            quantile(&mut before, 0.99),
            quantile(&mut before, 1.0),
            quantile(&mut after, 0.5)
        );
        for (what, from, to) in [
            ("while its process starts", at.asked, at.joined),
            ("from its hello to caught up", at.joined, at.caught_up),
            (
                "from there, and a second of taking part",
                at.caught_up,
                at.switched + 1_000_000_000,
            ),
        ] {
            let longest = longest(from, to);
            println!(
                "  longest step {what:<40} {longest:>9.2} ms, {:.2} of the median",
                longest / median
            );
        }
        let span = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e6;
        println!(
            "  process start to hello {:.1} ms; hello to snapshot {:.1}, to caught up {:.1}, to its shards {:.1} ms; from process \
             start {:.1} ms",
            span(at.started, at.joined),
            span(at.joined, at.snapshot),
            span(at.joined, at.caught_up),
            span(at.joined, at.switched),
            span(at.started, at.switched)
        );
        let (begin, end) = journal.last_load(pid).context("the newcomer loaded the state")?;
        let mib = trial.setup.ballast as f64 / f64::from(1 << 20);
        let bandwidth = mib / (span(at.snapshot, begin) / 1e3);
        println!(
            "  copied and compared in {:.1} ms, {bandwidth:.0} MiB/s: {:.2} of one plain stream; loaded in {:.1} ms",
            span(at.snapshot, begin),
            bandwidth / stream,
            span(begin, end)
        );
        self.remarks.iter().for_each(|remark| println!("  {remark}"));
        Ok(())
    }
}

fn setup(ballast: usize, rest_us: u64) -> Setup {
    Setup {
        steps: 1 << 40,
        restarts: u32::MAX,
        ballast,
        rest_us,
        ..Setup::new(WORKERS)
    }
}

async fn join(name: &str, mib: usize, rest_us: u64, stream: f64) -> Result<()> {
    let trial = Trial::new(WORKER, setup(mib << 20, rest_us))?;
    let mut launched = launch(trial.config()?).await?;
    let mut join = Join::default();
    let outcome = timeout(LIMIT, join.run(&mut launched)).await;
    launched.steering().request_stop();
    let summary = timeout(LIMIT, launched.finish(|_, _| {}))
        .await
        .context("the job does not end")?;
    match outcome {
        Ok(outcome) => outcome?,
        Err(_) => bail!("{name}: nobody joined within {LIMIT:?}: {join:?}"),
    }
    trial.counts_agree(&summary?)?;
    join.print(&format!("join/{mib} MiB/{name}"), &trial, stream)
}

/// Kills and replacements.
#[derive(Debug)]
struct Replacing {
    members: Vec<WorkerId>,
    born: BTreeMap<WorkerId, Instant>,
    killed: Option<(WorkerId, Instant)>,
    resumed: Vec<f64>,
    replaced: Vec<f64>,
    dice: Dice,
}

impl Replacing {
    fn see(&mut self, event: &Event) {
        let ms = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
        if let Event::Agent(AgentEvent::Started { worker, .. }) = event {
            self.born.insert(*worker, Instant::now());
        }
        let Event::Job(event) = event else { return };
        if let Some(members) = members_of(event) {
            self.members = members.to_vec();
            let all = members.len() >= WORKERS as usize;
            if let Some((_, since)) = self.killed.take_if(|(victim, _)| all && !members.contains(victim)) {
                self.replaced.push(ms(since));
            }
        } else if let JobEvent::Generation(GenerationEvent::Resumed { .. }) = event
            && let Some((_, since)) = self.killed.filter(|_| self.resumed.len() == self.replaced.len())
        {
            self.resumed.push(ms(since));
        }
    }

    /// Kills a member that has grown up, if all are there.
    fn strike(&mut self, launched: &Launched) -> Result<()> {
        let grown_up = |worker: &&WorkerId| self.born.get(worker).is_some_and(|born| born.elapsed() >= GROWN_UP);
        let victims: Vec<WorkerId> = self.members.iter().filter(grown_up).copied().collect();
        if self.killed.is_some() || self.members.len() < WORKERS as usize {
            return Ok(());
        }
        let Some(victim) = self.dice.pick(&victims) else {
            return Ok(());
        };
        let pid = launched.pid(victim).context("a member has a process")?;
        self.killed = Some((victim, Instant::now()));
        send(pid, Signal::KILL)
    }

    async fn run(&mut self, launched: &mut Launched, kills: usize) -> Result<()> {
        let mut due = tokio::time::interval(PACE);
        while self.replaced.len() < kills {
            tokio::select! {
                event = launched.next_event() => self.see(&event.context("the job ended")?),
                _ = due.tick() => self.strike(launched)?,
            }
        }
        Ok(())
    }
}

async fn replace(name: &str, mib: usize, kills: usize) -> Result<()> {
    let trial = Trial::new(WORKER, setup(mib << 20, REST_US))?;
    let mut launched = launch(trial.config()?).await?;
    let mut replacing = Replacing {
        members: Vec::new(),
        born: BTreeMap::new(),
        killed: None,
        resumed: Vec::new(),
        replaced: Vec::new(),
        dice: Dice::new(1),
    };
    let outcome = timeout(LIMIT, replacing.run(&mut launched, kills)).await;
    launched.steering().request_stop();
    timeout(LIMIT, launched.finish(|_, _| {}))
        .await
        .context("the job does not end")??;
    println!("replace/{mib} MiB/{name}: {} kills, steps of 40 ms", replacing.replaced.len());
    for (what, values) in [
        ("SIGKILL to the next applied step", &mut replacing.resumed),
        ("SIGKILL to the replacement's shards", &mut replacing.replaced),
    ] {
        let [p50, max] = [0.5, 1.0].map(|share| quantile(values, share));
        println!("  {what:<40} p50 {p50:>8.1} ms   max {max:>8.1} ms");
    }
    outcome.context("the kills took too long")?
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let mut given = arguments.iter().filter(|argument| !argument.starts_with("--"));
    // Tests of all targets run this as well; then it only has to work.
    let (sizes, kills) = if benchmark { ("1,100", 20) } else { ("1", 1) };
    let sizes = given.next().map_or(sizes, String::as_str);
    let sizes = sizes.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let kills = given.next().map_or(Ok(kills), |kills| kills.parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for &mib in &sizes {
        let stream = stream::bandwidth(mib << 20, Ipv4Addr::LOCALHOST.into(), Ok)?;
        println!("one plain stream of {mib} MiB: {stream:.0} MiB/s");
        runtime.block_on(join("steps of 40 ms", mib, REST_US, stream))?;
        if mib <= 100 {
            runtime.block_on(join("no sleep", mib, 0, stream))?;
        } else {
            // An update that reads and writes so much takes longer than 40 ms by itself.
            runtime.block_on(join("steps of 400 ms", mib, 10 * REST_US, stream))?;
        }
    }
    if kills == 0 {
        return Ok(());
    }
    runtime.block_on(replace("steps of 40 ms", sizes.first().copied().unwrap_or(1), kills))
}
