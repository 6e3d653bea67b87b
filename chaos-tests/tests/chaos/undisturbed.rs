//! No worker is killed: any number of workers gives one state, and each gradient is computed once.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use sardana::launch::launch;
use sardana::{Compression, Order};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::reported;
use sardana_protocol::state::StateHash;

use crate::trial;

async fn undisturbed(setup: Setup) -> Result<StateHash> {
    let trial = trial(setup)?;
    let ended = trial.run(&[], |_, _| {}).await?;
    let verdict = trial.judge(&ended)?;
    let counts = (verdict.summary.recomputed, verdict.summary.unknown, verdict.state_lost);
    let hash = (counts == (0, 0, false)).then_some(verdict.summary.hash);
    trial.explain(&ended, hash.ok_or(anyhow::anyhow!("{counts:?}")))
}

#[tokio::test]
async fn one_to_eight_workers_end_in_one_state() -> Result<()> {
    for workers in [1, 2, 3, 4, 5, 8] {
        undisturbed(Setup::new(workers)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn spares_compute_nothing_and_change_nothing() -> Result<()> {
    let shards = 2;
    undisturbed(Setup { shards, ..Setup::new(4) }).await?;
    Ok(())
}

#[tokio::test]
async fn a_short_last_batch_leaves_shards_empty() -> Result<()> {
    // Batches of 32, 32 and 5 samples for 8 shards.
    let samples = 69;
    undisturbed(Setup {
        samples,
        ..Setup::new(3)
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn fast_order_ends_in_a_state_that_its_compression_shows_in() -> Result<()> {
    let mut hashes = BTreeSet::new();
    for compression in [Compression::None, Compression::Bf16, Compression::F16] {
        let setup = Setup {
            order: Order::Fast,
            compression,
            ..Setup::new(3)
        };
        hashes.insert(undisturbed(setup).await?);
    }
    ensure!(hashes.len() == 3, "each compression rounds in its own way: {hashes:?}");
    Ok(())
}

#[tokio::test]
async fn no_byte_of_a_tensor_passes_the_coordinator() -> Result<()> {
    const MOST: u64 = 1 << 20;
    let trial = trial(Setup {
        elements: 2 << 20,
        shards: 4,
        batch: 4,
        samples: 12,
        steps: 20,
        ..Setup::new(3)
    })?;
    let mut launched = launch(trial.config()?).await?;
    loop {
        let event = launched.next_event().await;
        let event = event.ok_or(anyhow::anyhow!("the job ended before its last step was told"))?;
        if reported(&event) == Some(19) {
            break;
        }
    }
    let received = launched.coordinator().bytes_received().await?;
    let summary = launched.finish(|_, _| {}).await?;
    ensure!(summary.hash == trial.setup.reference()?.hash, "BITS-1");
    ensure!(received > 0, "the coordinator has heard something");
    // 8 MiB of gradient in each of 20 steps.
    ensure!(
        received < MOST,
        "the coordinator has received {received} bytes, more than {MOST}"
    );
    Ok(())
}
