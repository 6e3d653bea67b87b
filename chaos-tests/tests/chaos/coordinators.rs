//! The coordinator is a process of its own, and is killed: training goes on, and the next one takes the job up where it is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use sardana::AgentEvent;
use sardana::fault::Point;
use sardana::hosts::agent::AgentHost;
use sardana::hosts::{AgentJoin, InviteConfig, Role, agent, enrol, invite};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::journal::{Deed, Journal};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Trial;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::{WORKER, trial};

const COORDINATOR: &str = env!("CARGO_BIN_EXE_chaos_coordinator");

/// What has not happened by then never will.
const LIMIT: Duration = Duration::from_secs(150);

/// From this step on training waits for the test, a little longer each step.
const GATE: u64 = 4;

/// A job whose coordinator is a process of its own.
struct Site {
    trial: Trial,
    state: PathBuf,
    address: SocketAddr,
    fault: Option<String>,
    coordinator: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// All that this life of the coordinator has said.
    said: Vec<String>,
}

/// How the job ended, as the coordinator says it.
struct Done {
    hash: String,
    computed: u64,
    recomputed: u64,
    unknown: u64,
}

fn setup(workers: u32) -> Setup {
    Setup {
        steps: 40,
        gate_step: GATE,
        samples: 320,
        ..Setup::new(workers)
    }
}

impl Site {
    async fn new(setup: Setup, fault: Option<String>) -> Result<Self> {
        Self::with(setup, fault, &[]).await
    }

    async fn with(setup: Setup, fault: Option<String>, arguments: &[&str]) -> Result<Self> {
        let trial = trial(setup)?;
        let state = trial.folder().join("state");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let (coordinator, lines) = spawn(&trial, &state, listen, fault.as_deref(), arguments)?;
        let mut site = Self {
            trial,
            state,
            address: listen,
            fault,
            coordinator,
            lines,
            said: Vec::new(),
        };
        let listening = site.until("listening ").await?;
        site.address = listening["listening ".len()..].parse()?;
        Ok(site)
    }

    /// A host with so many workers.
    async fn host(&self, workers: u32) -> Result<AgentHost> {
        let out = self.trial.folder().join(format!("agent-{workers}-{}.join", self.said.len()));
        invite(&InviteConfig {
            state_dir: self.state.clone(),
            role: Role::Agent,
            expires: Duration::from_secs(600),
            uses: 1,
            out: out.clone(),
        })?;
        let enrolled = enrol(&out, Role::Agent).await?;
        let host = agent(AgentJoin {
            enrolled,
            listen: None,
            advertise: None,
            workers,
            restarts: 8,
            output: sardana::launch::Output::Inherit,
            program: WORKER.into(),
            arguments: vec![],
            environment: self.trial.environment(),
        });
        Ok(host.await?)
    }

    /// The next thing the coordinator says that begins so.
    async fn until(&mut self, beginning: &str) -> Result<String> {
        let found = timeout(LIMIT, async {
            loop {
                let Some(line) = self.lines.next_line().await? else {
                    bail!("the coordinator ended; it said {:#?}", self.said);
                };
                self.said.push(line.clone());
                if line.starts_with(beginning) {
                    return Ok(line);
                }
            }
        });
        match found.await {
            Ok(found) => found,
            Err(_) => bail!("waited for {beginning:?}; the coordinator said {:#?}", self.said),
        }
    }

    async fn until_step(&mut self, step: u64) -> Result<()> {
        loop {
            let line = self.until("step ").await?;
            if line["step ".len()..].parse::<u64>()? >= step {
                return Ok(());
            }
        }
    }

    async fn kill(&mut self) -> Result<()> {
        self.coordinator.start_kill()?;
        self.dead().await
    }

    async fn dead(&mut self) -> Result<()> {
        let ended = timeout(LIMIT, self.coordinator.wait()).await;
        let ended = ended.with_context(|| format!("it lives, and said {:#?}", self.said))??;
        ensure!(!ended.success(), "it was killed");
        Ok(())
    }

    /// Its next life.
    async fn start_again(&mut self, arguments: &[&str]) -> Result<()> {
        let address = self.address;
        let (coordinator, lines) = spawn(&self.trial, &self.state, address, self.fault.as_deref(), arguments)?;
        (self.coordinator, self.lines, self.said) = (coordinator, lines, Vec::new());
        self.until("listening ").await?;
        Ok(())
    }

    /// Another one begins at `address`, which has nothing of the lost one but its authority.
    fn is_taken_over(&mut self, address: SocketAddr) -> Result<()> {
        let old = std::mem::replace(&mut self.state, self.trial.folder().join("elsewhere"));
        sardana::hosts::PrivateFolder::open(&self.state, sardana::hosts::Otherwise::Make)?;
        std::fs::copy(old.join("authority.json"), self.state.join("authority.json"))?;
        std::fs::remove_dir_all(old)?;
        let (coordinator, lines) = spawn(&self.trial, &self.state, address, None, &["take-over"])?;
        (self.coordinator, self.lines, self.said) = (coordinator, lines, Vec::new());
        Ok(())
    }

    /// The newest step that any worker has applied.
    fn applied(&self) -> Result<u64> {
        let journal = Journal::read(self.trial.folder())?;
        let updates = journal.lines.iter().filter(|line| matches!(line.deed, Deed::Update { .. }));
        Ok(updates.map(|line| line.step).max().unwrap_or(0))
    }

    /// Training goes on by so many steps, whoever sees it.
    async fn trains_on(&self, steps: u64) -> Result<()> {
        let from = self.applied()?;
        let further = async {
            while self.applied()? < from + steps {
                sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        timeout(LIMIT, further).await.context("training stands still")?
    }

    async fn done(&mut self) -> Result<Done> {
        let line = self.until("done ").await?;
        let words: Vec<&str> = line.split(' ').collect();
        let [_, step, hash, computed, recomputed, unknown] = words[..] else {
            bail!("{line}");
        };
        let setup = &self.trial.setup;
        ensure!(step == setup.steps.to_string(), "{line}");
        let reference = setup.reference()?;
        ensure!(
            hash == reference.hash.to_string(),
            "BITS-1: {line}, expected {}",
            reference.hash
        );
        let done = Done {
            hash: hash.to_owned(),
            computed: computed.parse()?,
            recomputed: recomputed.parse()?,
            unknown: unknown.parse()?,
        };
        let whole = u64::from(setup.shards) * setup.steps;
        ensure!(
            done.unknown > 0 || done.computed == whole + done.recomputed,
            "{line}; {:#?}",
            self.said
        );
        Ok(done)
    }

    fn said(&self, beginning: &str) -> bool {
        self.said.iter().any(|line| line.starts_with(beginning))
    }
}

fn spawn(
    trial: &Trial,
    state: &std::path::Path,
    listen: SocketAddr,
    fault: Option<&str>,
    arguments: &[&str],
) -> Result<(Child, Lines<BufReader<ChildStdout>>)> {
    let mut command = Command::new(COORDINATOR);
    command.arg(state).arg(listen.to_string()).args(arguments);
    command.envs(trial.environment()).env("RUST_LOG", "off");
    if let Some(fault) = fault {
        command.env("SARDANA_FAULT", fault);
        command.env("SARDANA_FAULT_DIR", trial.folder().join("marks"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut coordinator = command.spawn()?;
    let output = coordinator.stdout.take().context("standard output is a pipe")?;
    Ok((coordinator, BufReader::new(output).lines()))
}

/// Kills one of the host's workers.
async fn kill_one(host: &mut AgentHost) -> Result<()> {
    let event = timeout(LIMIT, async {
        loop {
            if let Some(AgentEvent::Started { pid, .. }) = host.next_event().await {
                return pid;
            }
        }
    });
    let pid = Pid::from_raw(i32::try_from(event.await?)?).context("a process has a number")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

#[tokio::test]
async fn a_coordinator_that_dies_and_comes_back_is_noticed_by_nobody() -> Result<()> {
    let mut site = Site::new(setup(3), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(3).await?;
    site.until_step(GATE).await?;
    site.kill().await?;
    site.trains_on(5).await?;
    site.start_again(&[]).await?;
    site.until("adopted g1.1").await?;
    drop(pace);
    let done = site.done().await?;
    assert!(!site.said("halting") && !site.said("forming"), "{:#?}", site.said);
    assert_eq!((done.recomputed, done.unknown), (0, 0), "{}", done.hash);
    host.end().await;
    let lives: std::collections::BTreeSet<_> = Journal::read(site.trial.folder())?
        .lines
        .iter()
        .map(|line| line.life)
        .collect();
    assert_eq!(lives.len(), 3, "no worker was started again");
    Ok(())
}

#[tokio::test]
async fn a_worker_that_dies_while_there_is_no_coordinator_is_replaced_once_there_is() -> Result<()> {
    let mut site = Site::new(setup(3), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let mut host = site.host(3).await?;
    site.until_step(GATE).await?;
    site.kill().await?;
    kill_one(&mut host).await?;
    site.start_again(&[]).await?;
    site.until("forming g2.").await?;
    drop(pace);
    let done = site.done().await?;
    assert_eq!(done.unknown, 0, "its agent saw it end: {:#?}", site.said);
    host.end().await;
    Ok(())
}

#[tokio::test]
async fn without_its_records_it_learns_from_the_workers() -> Result<()> {
    let mut site = Site::new(setup(2), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    site.until_step(GATE).await?;
    site.kill().await?;
    std::fs::remove_dir_all(site.state.join("records"))?;
    site.start_again(&[]).await?;
    site.until("adopted g1.1").await?;
    drop(pace);
    let done = site.done().await?;
    assert!(done.unknown > 0, "it says that it does not know all that was counted");
    host.end().await;
    Ok(())
}

#[tokio::test]
async fn another_takes_over_with_nothing_but_the_authority() -> Result<()> {
    let mut site = Site::new(setup(2), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    site.until_step(GATE).await?;
    // Twice, so that the lost one was not the first.
    site.kill().await?;
    site.start_again(&[]).await?;
    site.until("adopted g1.1").await?;
    site.kill().await?;
    site.is_taken_over(site.address)?;
    site.until("adopted g1.1").await?;
    drop(pace);
    let done = site.done().await?;
    assert!(done.unknown > 0);
    host.end().await;
    Ok(())
}

/// On another host: at an address that the join files have named beforehand.
#[tokio::test]
async fn another_takes_over_at_another_address() -> Result<()> {
    // The port stays taken until it is needed.
    let standby = std::net::UdpSocket::bind(("127.0.0.2", 0))?;
    let address = standby.local_addr()?;
    let mut site = Site::with(setup(2), None, &[&format!("standby={address}")]).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let mut host = site.host(2).await?;
    site.until_step(GATE).await?;
    site.kill().await?;
    drop(standby);
    site.is_taken_over(address)?;
    site.until("adopted g1.1").await?;
    // Its agent has found it as well: it reports a death, and starts another worker with the coordinator's certificate.
    kill_one(&mut host).await?;
    site.until("forming g2.").await?;
    drop(pace);
    site.done().await?;
    host.end().await;
    Ok(())
}

/// A job in which a third worker joins, and then one dies, with a coordinator that dies at `point` on the way.
async fn dies_at(point: Point) -> Result<()> {
    let workers = if point == Point::CoordinatorForms { 3 } else { 2 };
    let mut site = Site::new(setup(workers), Some(format!("{}@{GATE}", point.name()))).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let mut host = site.host(workers).await?;
    site.until_step(GATE).await?;
    let late = site.host(1).await?;
    let mut pace = Some(pace);
    // The others come up while the third joins.
    if [Point::CoordinatorHalt, Point::CoordinatorForm, Point::CoordinatorForms].contains(&point) {
        kill_one(&mut host).await?;
    } else if point == Point::CoordinatorComplete {
        drop(pace.take());
    }
    site.dead().await?;
    site.start_again(&[]).await?;
    drop(pace);
    site.done().await?;
    late.end().await;
    host.end().await;
    Ok(())
}

#[tokio::test]
async fn a_coordinator_may_die_at_each_of_its_fault_points() -> Result<()> {
    for point in Point::OF_COORDINATOR {
        dies_at(point).await.with_context(|| format!("at {}", point.name()))?;
    }
    Ok(())
}
