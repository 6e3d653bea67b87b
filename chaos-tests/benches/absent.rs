//! What the absence of a coordinator costs the job.
//!
//! Three worker processes train, each on steps of about 40 ms; their coordinator, a process of its own, is killed with SIGKILL and started
//! again after a while. Printed are the steps' times before, meanwhile and afterwards, how many steps were lost, and how many gradients
//! were computed again. A gradient sleeps, so that the host's processors are there for each worker as if it had its own.
//!
//! `cargo bench -p sardana-chaos-tests --bench absent [-- SECONDS]`; 10 s before, 10 s of absence, 10 s after unless told otherwise.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sardana::hosts::agent::AgentJoin;
use sardana::hosts::{AgentHost, InviteConfig, Role, agent, enrol, invite};
use sardana::launch::Output;
use sardana_chaos_tests::journal::{Journal, now_ns};
use sardana_chaos_tests::pace::{Pace, print_parts};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Trial;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

const COORDINATOR: &str = env!("CARGO_BIN_EXE_chaos_coordinator");

const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

const WORKERS: u32 = 3;

/// A gradient's sleep: three of them make a step of 40 ms.
const REST_US: u64 = 13_300;

const STEP: Duration = Duration::from_millis(40);

/// Beyond what the steps take.
const LIMIT: Duration = Duration::from_secs(60);

/// A coordinator that runs, and what it says.
struct Life {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Life {
    fn begin(trial: &Trial, state: &Path, listen: SocketAddr) -> Result<Self> {
        let mut command = Command::new(COORDINATOR);
        command.arg(state).arg(listen.to_string());
        command.envs(trial.environment()).env("RUST_LOG", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let output = process.stdout.take().context("standard output is a pipe")?;
        let lines = BufReader::new(output).lines();
        Ok(Self { process, lines })
    }

    /// The next line it says that begins so. Before it, it must not say that a worker halts.
    async fn until(&mut self, beginning: &str, within: Duration) -> Result<String> {
        let found = timeout(within, async {
            loop {
                let line = self.lines.next_line().await?.context("the coordinator ended")?;
                ensure!(!line.starts_with("halting"), "{line}");
                if line.starts_with(beginning) {
                    return Ok(line);
                }
            }
        });
        found.await.with_context(|| format!("waited for {beginning:?}"))?
    }

    /// Lets it train for so long.
    async fn pass(&mut self, time: Duration) -> Result<()> {
        match self.until("done", time).await {
            Ok(line) => bail!("it ended too early: {line}"),
            Err(error) if error.root_cause().is::<tokio::time::error::Elapsed>() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

async fn host(trial: &Trial, state: PathBuf) -> Result<AgentHost> {
    let join = trial.folder().join("agent.join");
    invite(&InviteConfig {
        state_dir: state,
        role: Role::Agent,
        expires: Duration::from_secs(600),
        uses: 1,
        out: join.clone(),
    })?;
    let host = agent(AgentJoin {
        host: None,
        checkpoint_dir: None,
        enrolled: enrol(&join, Role::Agent).await?,
        listen: None,
        advertise: None,
        workers: WORKERS,
        restarts: 0,
        output: Output::Inherit,
        program: WORKER.into(),
        arguments: vec![],
        environment: trial.environment(),
        device: Default::default(),
    });
    Ok(host.await?)
}

/// How many updates of the job's steps were not applied exactly once by each worker.
fn lost_steps(journal: &Journal, steps: u64) -> Result<u64> {
    let mut updates = std::collections::BTreeMap::<_, u64>::new();
    for (life, step, _) in journal.updates() {
        let next = updates.entry(life).or_default();
        ensure!(step == *next, "a worker applied step {step}, expected {next}");
        *next += 1;
    }
    ensure!(updates.len() == WORKERS as usize, "{} processes trained", updates.len());
    Ok(updates.values().map(|applied| steps - applied).sum())
}

async fn measure(span: Duration) -> Result<()> {
    let steps = (span * 7 / 2).as_millis() / STEP.as_millis();
    let setup = Setup {
        steps: u64::try_from(steps)?,
        rest_us: REST_US,
        restarts: 0,
        ..Setup::new(WORKERS)
    };
    let trial = Trial::new(WORKER, setup)?;
    let state = trial.folder().join("state");
    let mut life = Life::begin(&trial, &state, SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address: SocketAddr = life.until("listening ", LIMIT).await?["listening ".len()..].parse()?;
    let host = host(&trial, state.clone()).await?;
    life.until("step ", LIMIT).await?;
    let began = now_ns();
    life.pass(span).await?;
    let gone = now_ns();
    life.process.kill().await?;
    sleep(span).await;
    let mut life = Life::begin(&trial, &state, address)?;
    life.until("adopted ", LIMIT).await?;
    let back = now_ns();
    let done = life.until("done ", span * 2 + LIMIT).await?;
    host.end().await;
    let words: Vec<&str> = done.split(' ').collect();
    let [_, _, hash, computed, recomputed, unknown] = words[..] else {
        bail!("{done}")
    };
    let reference = trial.setup.reference()?;
    ensure!(
        hash == reference.hash.to_string(),
        "BITS-1: {done}, expected {}",
        reference.hash
    );
    let journal = Journal::read(trial.folder())?;
    let (gradients, _) = journal.gradients();
    let again = gradients as u64 - u64::from(trial.setup.shards) * trial.setup.steps;
    let lost = lost_steps(&journal, trial.setup.steps)?;
    println!(
        "absent/coordinator away for {:.1} s/{WORKERS}: {lost} steps lost, {again} gradients computed again (the coordinator's own count: \
         {computed} computed, {recomputed} again, {unknown} unknown)",
        (back - gone) as f64 / 1e9
    );
    let parts = [
        ("before", (began, gone)),
        ("while it is away", (gone, back)),
        ("after", (back, u64::MAX)),
    ];
    print_parts(&Pace::of(&journal), parts)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let given = arguments.iter().find(|argument| !argument.starts_with("--"));
    // Tests of all targets run this as well; then it only has to work.
    let seconds = given.map_or(Ok(if benchmark { 10.0 } else { 1.0 }), |given| given.parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(Duration::from_secs_f64(seconds)))
}
