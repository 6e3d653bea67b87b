//! Workers of which some share memory and others do not: links of both kinds in one ring, through deaths on either side.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sardana::hosts::agent::AgentHost;
use sardana::{AgentEvent, LINK_VARIABLE};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::journal::{Deed, Journal};
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::send;
use tokio::time::{sleep, timeout};

use crate::coordinated::{Site, setup};

/// What has not happened by then never will.
const LIMIT: Duration = Duration::from_secs(150);

/// The next process that a host starts.
async fn started(host: &mut AgentHost) -> Result<u32> {
    let starting = async {
        loop {
            if let Some(AgentEvent::Started { pid, .. }) = host.next_event().await {
                return pid;
            }
        }
    };
    timeout(LIMIT, starting).await.context("no worker is started")
}

/// Links through memory that a process has mapped.
fn links_in_memory(pid: u32) -> Result<usize> {
    let maps = read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(maps.lines().filter(|line| line.contains("/memfd:sardana-link")).count())
}

/// Waits until all of these processes have made the same update. Of those that are `near` each other some are neighbours in any ring, and have links through memory
/// then; the one that is `apart` has none.
async fn train_together(site: &Site, near: &[u32], apart: u32) -> Result<()> {
    let together = || -> Result<bool> {
        let mut updated: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for line in Journal::read(site.trial.folder())?.lines {
            if let Deed::Update { .. } = line.deed {
                updated.entry(line.step).or_default().insert(line.life.0);
            }
        }
        let all = |pids: &BTreeSet<u32>| near.iter().chain([&apart]).all(|pid| pids.contains(pid));
        Ok(updated.values().any(all))
    };
    let training = async {
        while !together()? {
            sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    timeout(LIMIT, training).await.context("they do not train together")??;
    let links: Vec<usize> = near.iter().map(|&pid| links_in_memory(pid)).collect::<Result<_>>()?;
    ensure!(links.iter().sum::<usize>() > 0, "none of {near:?} shares memory");
    ensure!(links_in_memory(apart)? == 0, "{apart} was to share no memory");
    Ok(())
}

#[tokio::test]
async fn a_ring_with_links_of_both_kinds_outlives_deaths_on_either_side() -> Result<()> {
    // Several chunks, so that gradients are memory that workers share, and memory that a connection sends from.
    let mut site = Site::new(
        Setup {
            elements: 100_000,
            ..setup(4)
        },
        None,
    )
    .await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let mut near = site.host(3).await?;
    let over_quic = [(LINK_VARIABLE.into(), "quic".into())];
    let mut apart = site.host_in(1, over_quic).await?;
    let mut near_pids = [
        started(&mut near).await?,
        started(&mut near).await?,
        started(&mut near).await?,
    ];
    let first = started(&mut apart).await?;
    train_together(&site, &near_pids, first).await?;
    send(near_pids[1], Signal::KILL)?;
    near_pids[1] = started(&mut near).await?;
    train_together(&site, &near_pids, first).await?;
    send(first, Signal::KILL)?;
    let second = started(&mut apart).await?;
    train_together(&site, &near_pids, second).await?;
    drop(pace);
    site.done().await?;
    near.end().await;
    apart.end().await;
    Ok(())
}
