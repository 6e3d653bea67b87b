//! Networks of other sizes and lengths than loopback: packets of 1,500 and 9,000 bytes, a path that carries less than its ends say, also from
//! some moment on, and one that takes long and loses some. Every job ends in the plain loop's state, and nobody halts. Needs root and `ip`.

use std::time::Duration;

use anyhow::Result;
use sardana::{GenerationEvent, JobEvent};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;

use crate::hosts::Site;
use crate::network::Network;
use crate::paced::slow;
use crate::proxy;

/// What Ethernet carries.
const ETHERNET: u32 = 1_500;

/// What it carries where all cards and switches are set to it.
const JUMBO: u32 = 9_000;

/// From one host to another.
const DELAY: Duration = Duration::from_millis(50);

/// Two workers with a gradient of some hundred packets.
fn bulky() -> Setup {
    Setup {
        elements: 200_000,
        ..Setup::new(2)
    }
}

/// A network between so many hosts, or the reason why there is none here.
pub(crate) fn network(hosts: u8) -> Option<Network> {
    Network::new(hosts).inspect_err(|reason| println!("skipped: {reason}")).ok()
}

async fn ends_well(site: Site) -> Result<()> {
    let (_, site) = site.end().await?;
    let halts = |event: &JobEvent| matches!(event, JobEvent::Generation(GenerationEvent::Halting { .. }));
    let halted = site.job_events_since(0).any(halts);
    site.trial.demand(&site.ended, !halted, "nobody halts")
}

/// A job on hosts that say they carry `said`, while the network carries `carried`.
async fn trains(said: u32, carried: u32) -> Result<()> {
    let Some(network) = network(3) else {
        return Ok(());
    };
    network.carry(said, carried).map_err(anyhow::Error::msg)?;
    let mut site = Site::over(bulky(), network)?;
    site.start().await?;
    ends_well(site).await
}

#[tokio::test]
async fn over_ethernet() -> Result<()> {
    trains(ETHERNET, ETHERNET).await
}

#[tokio::test]
async fn over_jumbo_packets() -> Result<()> {
    trains(JUMBO, JUMBO).await
}

#[tokio::test]
async fn over_a_path_that_carries_less_than_its_ends_say() -> Result<()> {
    trains(JUMBO, ETHERNET).await
}

/// Packets as large as before are lost without a word, in the middle of a job.
#[tokio::test]
async fn over_a_path_that_carries_less_from_some_moment_on() -> Result<()> {
    let Some(network) = network(3) else {
        return Ok(());
    };
    network.carry(JUMBO, JUMBO).map_err(anyhow::Error::msg)?;
    // A megabyte and a half in small packets takes a slow machine long: no more of them than show that it goes on.
    let setup = Setup {
        elements: 200_000,
        steps: 60,
        ..slow(2)
    };
    let mut site = Site::over(setup, network)?;
    let pace = Place::Pace.close(site.trial.folder())?;
    site.start().await?;
    site.until("all train", |site| site.step >= 3).await?;
    site.network.carry(JUMBO, ETHERNET).map_err(anyhow::Error::msg)?;
    let step = site.step;
    site.until("all train on", |site| site.step >= step + 3).await?;
    drop(pace);
    ends_well(site).await
}

#[tokio::test]
async fn over_a_long_way_on_which_some_is_lost() -> Result<()> {
    let (workers, proxy) = ([1, 2], 3);
    let Some(network) = network(4) else {
        return Ok(());
    };
    let carried = proxy::lay(&network, proxy, &workers, DELAY).await?;
    // Each takes seconds, as what is lost slows down all.
    let setup = Setup { steps: 6, ..bulky() };
    let mut site = Site::over(setup, network)?;
    site.far = true;
    site.coordinate().await?;
    for host in workers {
        site.join(host, Some(proxy::told(host).into()))?;
    }
    ends_well(site).await?;
    assert!(carried.datagrams() > 500 && carried.lost() > 5, "{carried:?}");
    Ok(())
}
