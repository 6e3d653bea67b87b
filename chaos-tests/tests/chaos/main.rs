//! Real worker processes, killed and stopped: every run ends in the state of the plain loop, bit for bit.

mod checkpoints;
mod coordinated;
mod coordinators;
mod depots;
mod endings;
mod fault_points;
mod freezer;
mod frozen;
mod group_paths;
mod groups;
mod hangs;
mod harmed;
mod held;
mod hosts;
mod injured;
mod joins;
mod kills;
mod launcher;
mod leaves;
#[cfg(target_os = "linux")]
mod mixed;
mod network;
mod paced;
mod partitions;
mod paths;
mod proxy;
mod replicas;
mod rivals;
mod seeds;
mod spread;
mod strangers;
mod successors;
mod thawed;
mod undisturbed;
mod unequal;
mod unusable;

use std::fmt::Debug;

use anyhow::{Context, Result};
use futures_util::{StreamExt, TryStreamExt, stream};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Trial;

/// The worker program.
const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

fn trial(setup: Setup) -> Result<Trial> {
    Trial::new(WORKER, setup)
}

/// One test per line: its name, how many workers there are, and where processes die; and a list of all these deaths.
macro_rules! deaths {
    ($all:ident, $deaths:ident: $($name:ident: $workers:literal, $faults:literal;)*) => {
        pub(crate) const $all: &[&str] = &[$($faults),*];
        $(
            #[tokio::test]
            async fn $name() -> Result<()> {
                $deaths($workers, $faults).await
            }
        )*
    };
}
pub(crate) use deaths;

/// So many at a time: each waits most of the time.
const TOGETHER: usize = 3;

/// Does `case` with each of `all`, some at a time. An error names the case that it is of.
async fn each<T: Copy + Debug>(all: impl IntoIterator<Item = T>, case: impl AsyncFn(T) -> Result<()>) -> Result<()> {
    let case = &case;
    let cases = all
        .into_iter()
        .map(|one| async move { case(one).await.with_context(|| format!("{one:?}")) });
    stream::iter(cases).buffer_unordered(TOGETHER).try_collect().await
}
