//! Whether a thousand connections that say nothing move the step times of a job.
//!
//! Three worker processes train; then a crowd comes to their coordinator at once and says nothing: either each finishes its handshake
//! and is silent (as a process that wants to enrol: no certificate is needed for that), or none of them ever answers the coordinator's
//! half of it. A gradient sleeps, so that the host's processors are there for the coordinator as they would be if each worker had its
//! own. All is on one host, over loopback, and the crowd's own half of the handshakes takes processors, too: what is printed is more
//! than a crowd elsewhere would cost.
//!
//! `cargo bench -p sardana-chaos-tests --bench silent [-- CONNECTIONS]`; 1,000 unless told otherwise.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use sardana::hosts::{JoinFile, Missing, Moment, PrivateFolder};
use sardana::launch::{Event, Launched, launch};
use sardana::{GenerationEvent, JobEvent, WorkerEvent};
use sardana_chaos_tests::journal::{Journal, now_ns};
use sardana_chaos_tests::pace::{Pace, print_parts};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Trial;
use tokio::time::{sleep, timeout};

#[path = "silent/crowd.rs"]
mod crowd;

use crowd::{Crowd, Manner};

const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

const WORKERS: u32 = 3;

/// A gradient's sleep: three of them make a step of 40 ms.
const REST_US: u64 = 13_300;

/// A run that takes longer is stuck.
const LIMIT: Duration = Duration::from_secs(90);

/// How many strangers come, and how long each of the three parts of a run lasts.
#[derive(Debug, Clone, Copy)]
struct Size {
    connections: usize,
    span: Duration,
}

/// The three parts of a run, each from when to when, in nanoseconds since 1970, and what the crowd met with.
#[derive(Debug, Default)]
struct Run {
    before: (u64, u64),
    during: (u64, u64),
    after: (u64, u64),
    met: String,
    remarks: Vec<String>,
}

impl Run {
    async fn watch(&mut self, launched: &mut Launched, door: &JoinFile, manner: Manner, size: Size) -> Result<()> {
        loop {
            let event = launched.next_event().await.context("the job ended")?;
            if matches!(event, Event::Job(JobEvent::Steps(_))) {
                break;
            }
        }
        self.part(launched, size.span).await?;
        self.before = self.part(launched, size.span).await?;
        let crowd = Crowd::come(manner, door.clone(), size.connections)?;
        self.during = self.part(launched, size.span).await?;
        self.met = crowd.go()?;
        self.after = self.part(launched, size.span).await?;
        Ok(())
    }

    /// Lets the job train for so long. Returns from when to when that was.
    async fn part(&mut self, launched: &mut Launched, span: Duration) -> Result<(u64, u64)> {
        let begun = now_ns();
        let over = sleep(span);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return Ok((begun, now_ns())),
                event = launched.next_event() => {
                    if let Event::Job(told @ (JobEvent::Worker(WorkerEvent::Lost { .. }) | JobEvent::Generation(GenerationEvent::Halting { .. }))) = event.context("the job ended")? {
                        self.remarks.push(format!("{told:?}"));
                    }
                }
            }
        }
    }

    fn print(&self, name: &str, pace: &Pace) -> Result<()> {
        println!("{name}: {}", self.met);
        let parts = [
            ("before", self.before),
            ("while they are there", self.during),
            ("after", self.after),
        ];
        print_parts(pace, parts)?;
        self.remarks.iter().for_each(|remark| println!("  {remark}"));
        Ok(())
    }
}

async fn measure(manner: Manner, size: Size) -> Result<()> {
    let name = format!("silent/{} connections/{}", size.connections, manner.words());
    let setup = Setup {
        steps: 1 << 40,
        restarts: u32::MAX,
        rest_us: REST_US,
        ..Setup::new(WORKERS)
    };
    let trial = Trial::new(WORKER, setup)?;
    let mut launched = launch(trial.config()?).await?;
    let place = PrivateFolder::open(&trial.folder().join("operators"), Missing::Create)?;
    let door = JoinFile::read(launched.operator_join_file(&place)?, Moment::of(SystemTime::now()))?;
    let mut run = Run::default();
    let outcome = timeout(LIMIT, run.watch(&mut launched, &door, manner, size)).await;
    launched.steering().request_stop();
    let summary = timeout(LIMIT, launched.finish(|_, _| {}))
        .await
        .context("the job does not end")?;
    match outcome {
        Ok(outcome) => outcome?,
        Err(_) => bail!("{name}: it takes more than {LIMIT:?}: {run:?}"),
    }
    trial.counts_agree(&summary?)?;
    run.print(&name, &Pace::of(&Journal::read(trial.folder())?))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let given = arguments.iter().find(|argument| !argument.starts_with("--"));
    // Tests of all targets run this as well; then it only has to work.
    let (connections, seconds) = if benchmark { (1_000, 5) } else { (50, 1) };
    let size = Size {
        connections: given.map_or(Ok(connections), |given| given.parse())?,
        span: Duration::from_secs(seconds),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for manner in [Manner::Nobody, Manner::Silent, Manner::HalfWay] {
        runtime.block_on(measure(manner, size))?;
    }
    Ok(())
}
