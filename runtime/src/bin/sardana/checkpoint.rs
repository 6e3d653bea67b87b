//! `sardana checkpoint`: keeps checkpoints of a job whose coordinator runs on another host.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use sardana::hosts::{DepotJoin, Role, enrol_kept, keep_checkpoints};

use crate::access::KeyringPlace;
use crate::ending::{EndSignals, Failure, runtime};
use crate::saving::Naming;

/// Keep checkpoints of a job on this host, beside its coordinator and agents or instead of them.
///
/// It ends when the job does. SIGINT or SIGTERM ends it at once: what is committed stays, and a checkpoint under way is made without it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sardana invite --state-dir job --role checkpoint -o checkpoint.join\n  \
    sardana checkpoint --join checkpoint.join --checkpoint-dir /data/job\n\n\
    Exit codes: 0 the job is over, or it was asked to end, 1 it failed, 2 wrong usage.")]
pub(crate) struct Checkpoint {
    /// A checkpoint actor's join file, as `sardana invite` writes it.
    #[arg(long, value_name = "FILE")]
    join: PathBuf,
    #[command(flatten)]
    keyring: KeyringPlace,
    #[command(flatten)]
    naming: Naming,
    /// The folder that checkpoints are kept in: one of your own, made if it is not there.
    #[arg(long, value_name = "DIR")]
    checkpoint_dir: PathBuf,
    /// At which of this host's addresses it listens; by default the one that leads to the coordinator.
    #[arg(long, value_name = "IP")]
    listen: Option<IpAddr>,
    /// At which address others reach it, if that is another one: behind NAT, say. The port stays the same.
    #[arg(long, value_name = "IP")]
    advertise: Option<IpAddr>,
}

impl Checkpoint {
    pub(crate) fn carry_out(self) -> Result<(), Failure> {
        runtime()?.block_on(async {
            let mut signals = EndSignals::catch()?;
            let keyring = self.keyring.open()?;
            let enrolled = enrol_kept(&self.join, Role::Checkpoint, &keyring)
                .await
                .map_err(Failure::failed)?;
            let join = DepotJoin {
                enrolled,
                host: self.naming.host,
                dir: self.checkpoint_dir,
                listen: self.listen,
                advertise: self.advertise,
            };
            let mut depot = keep_checkpoints(join).await.map_err(Failure::failed)?;
            tokio::select! {
                biased;
                _ = signals.next() => {}
                () = depot.over() => {}
            }
            depot.end().await;
            Ok(())
        })
    }
}
