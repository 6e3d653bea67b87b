//! `sardana coordinator`: the meeting point of a job on several hosts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use sardana::hosts::coordinate::Succession;
use sardana::hosts::{CoordinateConfig, coordinate, default_place};
use sardana::launch::Event;
use sardana::train;

use crate::ending::{EndSignals, Failure, runtime};
use crate::run::{Balancing, print, twice};
use crate::saving::{Saving, SavingPlace};

/// Run the coordinator of a job on several hosts. Agents and workers come with join files; see `sardana invite`.
///
/// No gradient or state passes it. If it dies, training goes on; started again with the same state directory it takes up the job
/// where it is. SIGINT or SIGTERM ends the job at the next step's boundary, a second one the coordinator at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana coordinator --listen 192.0.2.1:4433 --state-dir job -n 8\n  \
    sardana coordinator --listen 0.0.0.0:4433 --advertise 192.0.2.1:4433 --state-dir job\n\n\
    Exit codes: 0 the job is done, 1 it failed, 2 wrong usage, 130 or 143 ended at once by a second SIGINT or SIGTERM.")]
pub(crate) struct Coordinator {
    /// The address to listen at.
    #[arg(long, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where others reach it, if that is another address.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<SocketAddr>,
    /// Where else the job's coordinator may be found some day: at a host on which it could be taken over. May be given several times.
    ///
    /// Join files name these addresses too, so that agents and workers that have them look there when this host is lost.
    #[arg(long, value_name = "ADDRESS")]
    standby: Vec<SocketAddr>,
    /// Where it keeps the job's authority: a folder of your own, made if it is not there.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// Take the place of a coordinator whose state directory is lost: continue from what the workers report.
    ///
    /// The new directory must hold a copy of the old one's authority (the file `authority.json`, kept elsewhere beforehand), and workers
    /// must reach this coordinator at an address they know: the old one, or a --standby of it. If the old one lives after all, and finds
    /// this one at a --standby, it ends within seconds, with exit code 1; started again it does not come back without --take-over.
    #[arg(long)]
    take_over: bool,
    /// Fewer workers than this do not train: the job waits.
    #[arg(long, value_name = "M", default_value_t = 1)]
    min: u32,
    /// Workers beyond this are spares.
    #[arg(long, value_name = "M", default_value_t = 1024)]
    max: u32,
    /// How many workers the job waits for at first, for some seconds; by default --min.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    expected: Option<u32>,
    #[command(flatten)]
    balancing: Balancing,
    #[command(flatten)]
    saving: Saving,
    #[command(flatten)]
    saving_place: SavingPlace,
}

impl Coordinator {
    fn config(self) -> Result<CoordinateConfig, Failure> {
        let expected = self.expected.unwrap_or(self.min);
        if !(1 <= self.min && self.min <= expected && expected <= self.max) {
            return Err(Failure::Usage(format!(
                "expected 1 <= --min <= --expected <= --max, found --min {}, --expected {expected}, --max {}",
                self.min, self.max
            )));
        }
        Ok(CoordinateConfig {
            listen: self.listen,
            advertise: self.advertise,
            standbys: self.standby,
            state_dir: self.state_dir,
            min: self.min,
            max: self.max,
            expected,
            succession: if self.take_over {
                Succession::TakeOver
            } else {
                Succession::Resume
            },
            balance: self.balancing.into(),
            saves: self.saving.saves(),
            mirror: self.saving.mirror,
            checkpoint_dir: self.saving_place.checkpoint_dir,
        })
    }

    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        let config = self.config()?;
        let summary = runtime()?.block_on(async {
            let mut signals = EndSignals::catch()?;
            // A coordinator that takes over waits for the first worker.
            let mut hosting = tokio::select! {
                biased;
                hosting = coordinate(config) => hosting.map_err(Failure::failed)?,
                signal = signals.next() => return Err(Failure::Ended(signal)),
            };
            // Without it the job runs as well, only no operator finds it.
            let offered = default_place().and_then(|place| hosting.operator_join_file(&place).map(drop));
            if let Err(error) = offered {
                tracing::warn!(target: "sardana::event::operators", %error, "no operator can join without a join file");
            }
            let addresses: Vec<String> = hosting.addresses().iter().map(ToString::to_string).collect();
            let addresses = addresses.join(" ");
            tracing::info!(target: "sardana::event::listening", job = %hosting.job(), addresses, "the coordinator listens");
            let steering = hosting.steering();
            let finishing = hosting.finish(|_, event| train::log(&Event::Job(event.clone())));
            tokio::select! {
                biased;
                finished = finishing => finished.map_err(Failure::failed),
                signal = twice(signals, &steering) => Err(Failure::Ended(signal)),
            }
        })?;
        print(&summary);
        Ok(())
    }
}
