//! A job whose coordinator is a process of its own, or several that follow each other, or are there at once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use sardana::AgentEvent;
use sardana::hosts::agent::AgentHost;
use sardana::hosts::{AgentJoin, InviteConfig, Missing, PrivateFolder, Role, agent, enrol, invite};
use sardana_chaos_tests::gate::Closed;
use sardana_chaos_tests::journal::{Deed, Journal};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::{Trial, send};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::{WORKER, trial};

const COORDINATOR: &str = env!("CARGO_BIN_EXE_chaos_coordinator");

/// What has not happened by then never will.
const LIMIT: Duration = Duration::from_secs(150);

/// From this step on training waits for the test, a little longer each step.
pub(crate) const GATE: u64 = 4;

/// Any free port of this machine.
const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How many processes this one has invited.
static INVITED: AtomicU32 = AtomicU32::new(0);

/// A job and its coordinator.
pub(crate) struct Site {
    pub(crate) trial: Trial,
    pub(crate) state: PathBuf,
    pub(crate) address: SocketAddr,
    fault: Option<String>,
    pub(crate) coordinator: Life,
}

/// One life of a coordinator.
pub(crate) struct Life {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// All that it has said.
    pub(crate) said: Vec<String>,
}

/// How the job ended, as the coordinator says it.
pub(crate) struct Done {
    pub(crate) hash: String,
    pub(crate) recomputed: u64,
    pub(crate) unknown: u64,
}

pub(crate) fn setup(workers: u32) -> Setup {
    Setup {
        steps: 40,
        gate_step: GATE,
        samples: 320,
        ..Setup::new(workers)
    }
}

impl Life {
    fn begin(trial: &Trial, state: &Path, listen: SocketAddr, fault: Option<&str>, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(COORDINATOR);
        command.arg(state).arg(listen.to_string()).args(arguments);
        command.envs(trial.environment()).env("RUST_LOG", "off");
        if let Some(fault) = fault {
            command.env("SARDANA_FAULT", fault);
            command.env("SARDANA_FAULT_DIR", trial.folder().join("marks"));
        }
        Self::of(command)
    }

    /// A process that says on standard output what happens.
    pub(crate) fn of(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let output = process.stdout.take().context("standard output is a pipe")?;
        Ok(Self {
            process,
            lines: BufReader::new(output).lines(),
            said: Vec::new(),
        })
    }

    /// The next line it says that begins so.
    pub(crate) async fn until(&mut self, beginning: &str) -> Result<String> {
        self.until_one(beginning, |line| line.starts_with(beginning)).await
    }

    /// The next thing it says of which `is` is true: `what` it is, in words.
    pub(crate) async fn until_one(&mut self, what: &str, is: impl Fn(&str) -> bool) -> Result<String> {
        let found = timeout(LIMIT, async {
            loop {
                let Some(line) = self.lines.next_line().await? else {
                    bail!("waited for {what:?}; the process ended; it said {:#?}", self.said);
                };
                self.said.push(line.clone());
                if is(&line) {
                    return Ok(line);
                }
            }
        });
        match found.await {
            Ok(found) => found,
            Err(_) => bail!("waited for {what:?}; the process said {:#?}", self.said),
        }
    }

    pub(crate) fn said(&self, beginning: &str) -> bool {
        self.said.iter().any(|line| line.starts_with(beginning))
    }

    /// Its process's number.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.process.id().context("it runs")
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        send(self.pid()?, signal)
    }

    /// Reads all that it still says, and what its children do that have its standard output.
    pub(crate) async fn is_silent(&mut self) -> Result<()> {
        let reading = async {
            while let Some(line) = self.lines.next_line().await? {
                self.said.push(line);
            }
            Ok(())
        };
        timeout(LIMIT, reading).await?
    }

    async fn ended(&mut self) -> Result<ExitStatus> {
        let ended = timeout(LIMIT, self.process.wait()).await;
        Ok(ended.with_context(|| format!("it lives, and said {:#?}", self.said))??)
    }

    pub(crate) async fn dead(&mut self) -> Result<()> {
        ensure!(!self.ended().await?.success(), "it was killed");
        Ok(())
    }

    /// It ends by itself, and all is well.
    pub(crate) async fn over(&mut self) -> Result<()> {
        let ended = self.ended().await?;
        ensure!(ended.success(), "{ended}; it said {:#?}", self.said);
        Ok(())
    }

    /// It ends by itself, with a failure. Returns why.
    pub(crate) async fn fails(&mut self) -> Result<String> {
        let why = self.until("failed ").await?;
        let ended = self.ended().await?;
        ensure!(ended.code() == Some(1), "{why}; {ended}");
        Ok(why)
    }
}

impl Site {
    pub(crate) async fn new(setup: Setup, fault: Option<String>) -> Result<Self> {
        Self::with(setup, fault, &[]).await
    }

    pub(crate) async fn with(setup: Setup, fault: Option<String>, arguments: &[&str]) -> Result<Self> {
        let trial = trial(setup)?;
        let state = trial.folder().join("state");
        // It is started again at the same address, which no other process may have taken meanwhile.
        let address = standby();
        let coordinator = Life::begin(&trial, &state, address, fault.as_deref(), arguments)?;
        let mut site = Self {
            trial,
            state,
            address,
            fault,
            coordinator,
        };
        site.until("listening ").await?;
        Ok(site)
    }

    /// The job goes on at full speed, and ends in the right state; then the host of its workers does.
    pub(crate) async fn ends(&mut self, pace: Closed, host: AgentHost) -> Result<Done> {
        drop(pace);
        let done = self.done().await?;
        host.end().await;
        Ok(done)
    }

    /// A host with so many workers.
    pub(crate) async fn host(&self, workers: u32) -> Result<AgentHost> {
        self.host_in(workers, []).await
    }

    /// The same, whose workers find these variables in their environment as well.
    pub(crate) async fn host_in(
        &self,
        workers: u32,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<AgentHost> {
        let mut join = self.joins(workers).await?;
        join.environment.extend(environment);
        Ok(agent(join).await?)
    }

    /// The same, with a folder for checkpoints, of a host that is called so.
    pub(crate) async fn host_with(&self, workers: u32, keeps: Option<(&Path, &str)>) -> Result<AgentHost> {
        let mut join = self.joins(workers).await?;
        join.host = keeps.map(|(_, name)| name.parse()).transpose()?;
        join.checkpoint_dir = keeps.map(|(folder, _)| folder.to_owned());
        Ok(agent(join).await?)
    }

    /// How an agent joins the job.
    async fn joins(&self, workers: u32) -> Result<AgentJoin> {
        Ok(AgentJoin {
            host: None,
            checkpoint_dir: None,
            enrolled: enrol(&self.invitation(Role::Agent)?, Role::Agent).await?,
            listen: None,
            advertise: None,
            workers,
            restarts: 8,
            output: sardana::launch::Output::Inherit,
            program: WORKER.into(),
            arguments: vec![],
            environment: self.trial.environment(),
            device: Default::default(),
        })
    }

    /// A join file for one more process.
    pub(crate) fn invitation(&self, role: Role) -> Result<PathBuf> {
        let serial = INVITED.fetch_add(1, Ordering::Relaxed);
        let out = self.trial.folder().join(format!("{serial}.join"));
        invite(&InviteConfig {
            state_dir: self.state.clone(),
            role,
            expires: Duration::from_secs(600),
            uses: 1,
            out: out.clone(),
        })?;
        Ok(out)
    }

    /// The next line the coordinator says that begins so.
    pub(crate) async fn until(&mut self, beginning: &str) -> Result<String> {
        self.coordinator.until(beginning).await
    }

    pub(crate) async fn until_step(&mut self, step: u64) -> Result<()> {
        loop {
            let line = self.until("step ").await?;
            if line["step ".len()..].parse::<u64>()? >= step {
                return Ok(());
            }
        }
    }

    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.coordinator.signal(Signal::KILL)?;
        self.dead().await
    }

    pub(crate) async fn dead(&mut self) -> Result<()> {
        self.coordinator.dead().await
    }

    /// The coordinator's next life.
    pub(crate) async fn start_again(&mut self, arguments: &[&str]) -> Result<()> {
        self.coordinator = Life::begin(&self.trial, &self.state, self.address, self.fault.as_deref(), arguments)?;
        self.until("listening ").await?;
        Ok(())
    }

    /// A second coordinator, at any address, in the same state directory.
    pub(crate) fn second(&self, arguments: &[&str]) -> Result<Life> {
        Life::begin(&self.trial, &self.state, ANYWHERE, None, arguments)
    }

    /// Another coordinator begins at `address`, which has nothing of this one but its authority, and is this job's coordinator from now on.
    /// Returns the one before, which may live.
    pub(crate) fn is_taken_over(&mut self, address: SocketAddr, arguments: &[&str]) -> Result<Life> {
        let elsewhere = self.trial.folder().join("elsewhere");
        PrivateFolder::open(&elsewhere, Missing::Create)?;
        std::fs::copy(self.state.join("authority.json"), elsewhere.join("authority.json"))?;
        let life = Life::begin(&self.trial, &elsewhere, address, None, &[&["take-over"], arguments].concat())?;
        (self.state, self.address) = (elsewhere, address);
        Ok(std::mem::replace(&mut self.coordinator, life))
    }

    /// The newest step that any worker has applied.
    fn applied(&self) -> Result<u64> {
        let journal = Journal::read(self.trial.folder())?;
        let updates = journal.lines.iter().filter(|line| matches!(line.deed, Deed::Update { .. }));
        Ok(updates.map(|line| line.step).max().unwrap_or(0))
    }

    /// Training goes on by so many steps, whichever process sees it.
    pub(crate) async fn trains_on(&self, steps: u64) -> Result<()> {
        let from = self.applied()?;
        let further = async {
            while self.applied()? < from + steps {
                sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        timeout(LIMIT, further).await.context("training stands still")?
    }

    pub(crate) async fn done(&mut self) -> Result<Done> {
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
        let computed: u64 = computed.parse()?;
        let done = Done {
            hash: hash.to_owned(),
            recomputed: recomputed.parse()?,
            unknown: unknown.parse()?,
        };
        let whole = u64::from(setup.shards) * setup.steps;
        let said = &self.coordinator.said;
        ensure!(done.unknown > 0 || computed == whole + done.recomputed, "{line}; {said:#?}");
        Ok(done)
    }

    pub(crate) fn said(&self, beginning: &str) -> bool {
        self.coordinator.said(beginning)
    }

    /// No worker has halted, and none was started beside the first `workers`.
    pub(crate) fn nobody_noticed(&self, workers: usize) -> Result<()> {
        let said = &self.coordinator.said;
        ensure!(!self.said("halting") && !self.said("forming"), "{said:#?}");
        let journal = Journal::read(self.trial.folder())?;
        let lives: BTreeSet<_> = journal.lines.iter().map(|line| line.life).collect();
        ensure!(lives.len() == workers, "{} workers have trained; {said:#?}", lives.len());
        Ok(())
    }
}

/// An address for a coordinator: of a loopback host that no other process uses. (A port that was held for it would stay
/// taken a while longer, by each child of this process that is between its fork and its program.)
pub(crate) fn standby() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(7_000);
    let host = Ipv4Addr::from_bits(0x7f80_0000 | (std::process::id() & 0x007f_ffff));
    SocketAddr::from((host, NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Kills one of the host's workers.
pub(crate) async fn kill_one(host: &mut AgentHost) -> Result<()> {
    let event = timeout(LIMIT, async {
        loop {
            if let Some(AgentEvent::Started { pid, .. }) = host.next_event().await {
                return pid;
            }
        }
    });
    send(event.await?, Signal::KILL)
}
