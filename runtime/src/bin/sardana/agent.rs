//! `sardana agent`: workers of a job whose coordinator runs on another host.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use sardana::AgentEvent;
use sardana::hosts::{AgentJoin, Role, agent, enrol_kept};
use sardana::launch::Event;
use sardana::train;

use crate::access::KeyringPlace;
use crate::ending::{EndSignals, Failure, runtime};
use crate::notices::{Heeding, Whose};
use crate::run::{Computing, Linking, Printing, split};
use crate::saving::{Naming, SavingPlace};

/// Run workers of PROGRAM on this host, for a job whose coordinator runs elsewhere.
///
/// SIGINT or SIGTERM lets its workers leave at the next step's boundary, and the job goes on without them; a second one ends them
/// at once. When the cloud gives notice that it takes this machine away, they leave at a boundary as well, but the agent stays, and
/// starts its workers again if the notice is withdrawn.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana agent --join agent.join -n 8 -- ./train\n  \
    sardana agent --join agent.join -n 8 --notices azure -- ./train\n\n\
    Exit codes: 0 the job is over, or the agent or all its workers were asked to leave; 1 no worker is left, and some failed; \
    2 wrong usage; 130 or 143 ended at once.")]
pub(crate) struct Agent {
    /// An agent's join file, as `sardana invite` writes it.
    #[arg(long, value_name = "FILE")]
    join: PathBuf,
    #[command(flatten)]
    keyring: KeyringPlace,
    /// How many workers to keep running.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// At which of this host's addresses workers listen for each other; by default the one that leads to the coordinator.
    #[arg(long, value_name = "IP")]
    listen: Option<IpAddr>,
    /// At which address others reach them, if that is another one: behind NAT, say. Ports stay the same.
    #[arg(long, value_name = "IP")]
    advertise: Option<IpAddr>,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    saving_place: SavingPlace,
    #[command(flatten)]
    linking: Linking,
    #[command(flatten)]
    computing: Computing,
    /// How many times in all a worker that ended badly is replaced.
    #[arg(long, value_name = "R", default_value_t = 3)]
    restarts: u32,
    /// The cloud whose notices of leaves to watch for. By default the one that this machine is of: the job has other hosts to go on with.
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = Whose::Auto)]
    notices: Whose,
    #[command(flatten)]
    heeding: Heeding,
    #[command(flatten)]
    printing: Printing,
    /// The program, and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Agent {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        let (program, arguments) = split(self.program)?;
        let device = self.computing.device()?;
        let output = self.printing.output()?;
        let notices = self.heeding.config(self.notices);
        runtime()?.block_on(async {
            let mut signals = EndSignals::catch()?;
            let keyring = self.keyring.open()?;
            let enrolled = enrol_kept(&self.join, Role::Agent, &keyring).await.map_err(Failure::failed)?;
            let join = AgentJoin {
                enrolled,
                listen: self.listen,
                advertise: self.advertise,
                host: self.naming.host,
                checkpoint_dir: self.saving_place.checkpoint_dir,
                workers: self.workers,
                restarts: self.restarts,
                output,
                program,
                arguments,
                environment: self.linking.environment(),
                device,
            };
            let mut host = agent(join).await.map_err(Failure::failed)?;
            if let Some(notices) = notices {
                host.watch(notices);
            }
            let mut over = false;
            let mut last = String::from("it never started");
            loop {
                tokio::select! {
                    biased;
                    signal = signals.next() => {
                        let reason = signal.to_string();
                        return tokio::select! {
                            () = host.leave(&reason) => Ok(()),
                            signal = signals.next() => Err(Failure::Ended(signal)),
                        };
                    }
                    event = host.next_event() => {
                        let Some(event) = event else {
                            return Err(Failure::Failed("the agent ended; its last words are in the log".to_owned()));
                        };
                        over |= event == AgentEvent::JobOver;
                        let (exhausted, drained) = (event == AgentEvent::Exhausted, event == AgentEvent::Drained);
                        if let AgentEvent::Ended { how: why, .. } | AgentEvent::NotStarted { reason: why } = &event {
                            last.clone_from(why);
                        }
                        train::log(&Event::Agent(event));
                        if over {
                            // It may wait for the copy of the last checkpoint elsewhere.
                            return tokio::select! {
                                () = host.end() => Ok(()),
                                signal = signals.next() => Err(Failure::Ended(signal)),
                            };
                        }
                        if drained {
                            host.end().await;
                            return Ok(());
                        }
                        if exhausted {
                            host.end().await;
                            return Err(Failure::Failed(format!(
                                "no worker is left, and none is started again; the last one: {last}"
                            )));
                        }
                    }
                }
            }
        })
    }
}
