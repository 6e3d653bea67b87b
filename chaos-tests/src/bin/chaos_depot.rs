//! A checkpoint actor as a process of its own, so that a test can kill it. Its log goes to standard output.
//!
//! `chaos_depot JOIN_FILE DIR HOST`

use std::path::PathBuf;

use anyhow::{Context, Result};
use sardana::hosts::{DepotJoin, Role, enrol, keep_checkpoints};
use tracing_subscriber::EnvFilter;

fn main() -> Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).init();
    let mut arguments = std::env::args().skip(1);
    let mut argument = |what| arguments.next().context(what);
    let (join, dir, host) = (
        argument("which join file")?,
        argument("which directory")?,
        argument("which host")?,
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let enrolled = enrol(join.as_ref(), Role::Checkpoint).await?;
        let mut depot = keep_checkpoints(DepotJoin {
            enrolled,
            host: Some(host.parse()?),
            dir: PathBuf::from(dir),
            listen: None,
            advertise: None,
        })
        .await?;
        depot.over().await;
        depot.end().await;
        Ok(())
    })
}
