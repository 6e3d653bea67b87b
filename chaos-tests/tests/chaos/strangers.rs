//! Strangers begin handshakes at every port of a job and never finish them, while a worker is killed and others join. They keep no
//! process out.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use sardana::WorkerId;
use sardana::hosts::{Enrolled, Role, enrol};
use sardana::operator::{Access, JobStatus, OperatorAnswer, OperatorRequest, ask};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::half_open::HalfOpen;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::send;
use sardana_net::quic::Purpose;

use crate::coordinated::{GATE, Site};
use crate::depots::{Depot, SAVED, TWICE};

/// So many are at each port, and as many come there in the time for which each stays. A port has room for more: what happens when its room
/// is full is tested with a door alone, in `net/src/quic/tests/crowds.rs`.
const CROWD: usize = 160;

/// At least so many are pending when a worker is killed, and when all is done.
const LEAST: usize = 48;

/// A crowd at one port.
struct AtPort {
    name: String,
    address: SocketAddr,
    crowd: HalfOpen,
}

impl AtPort {
    fn come(name: String, address: SocketAddr, purpose: Purpose) -> Result<Self> {
        let crowd = HalfOpen::come(address, purpose, CROWD)?;
        Ok(Self { name, address, crowd })
    }
}

/// Crowds come to the coordinator, to each worker and to each checkpoint actor.
async fn besiege(site: &Site, status: &JobStatus) -> Result<Vec<AtPort>> {
    let mut ports = vec![AtPort::come("the coordinator".to_owned(), site.address, Purpose::Control)?];
    for worker in &status.overview.workers {
        ports.push(AtPort::come(
            format!("worker {}", worker.worker),
            worker.address,
            Purpose::Peer,
        )?);
    }
    let kept = status.overview.checkpoints.as_ref().context("it has checkpoint actors")?;
    for depot in &kept.depots {
        ports.push(AtPort::come(format!("depot {}", depot.host), depot.address, Purpose::Peer)?);
    }
    for port in &mut ports {
        port.crowd.reached(CROWD, LEAST).await.with_context(|| port.name.clone())?;
    }
    Ok(ports)
}

async fn status(access: &Access) -> Result<JobStatus> {
    match ask(access, &OperatorRequest::Status).await? {
        OperatorAnswer::Status(status) => Ok(*status),
        other @ (OperatorAnswer::Done { .. } | OperatorAnswer::Refused { .. }) => bail!("{other:?}"),
    }
}

async fn operator(site: &Site) -> Result<Access> {
    let Enrolled {
        credentials,
        coordinator,
        ..
    } = enrol(&site.invitation(Role::Operator)?, Role::Operator).await?;
    Ok(Access {
        coordinator: coordinator.found(),
        credentials,
        way: None,
    })
}

/// Reads what a checkpoint actor says: which peers it refuses, above all. An actor whose words are not read stands still.
async fn heard_out(mut depot: Depot) {
    // Each waits for minutes, or until the process has ended.
    for _ in 0..4 {
        let _ = depot.life.is_silent().await;
    }
}

/// The process of the member in the middle of the ring: its neighbours have no connection to each other.
fn middle(status: &JobStatus) -> Result<(WorkerId, u32)> {
    let worker = status.overview.workers.get(1).context("three workers train")?.worker;
    let mut children = status.agents.iter().flat_map(|agent| &agent.children);
    let child = children.find(|(child, _)| *child == worker);
    Ok((
        worker,
        child.and_then(|(_, pid)| *pid).context("its agent has told its process")?,
    ))
}

#[tokio::test]
async fn who_never_finishes_a_handshake_keeps_out_nobody() -> Result<()> {
    let setup = Setup {
        // With fewer nothing goes on: a worker that joins must get in.
        min: 3,
        ..crate::depots::setup(3)
    };
    let mut site = Site::with(setup, None, &TWICE).await?;
    for depot in site.two_depots().await? {
        tokio::spawn(heard_out(depot));
    }
    let pace = Place::Pace.close(site.trial.folder())?;
    // Nothing is saved before the crowds are there.
    let gate = Place::Step.close(site.trial.folder())?;
    let host = site.host(3).await?;
    site.until_step(GATE - 1).await?;
    let access = operator(&site).await?;
    let before = status(&access).await?;
    let ports = besiege(&site, &before).await?;
    let (killed, pid) = middle(&before)?;
    send(pid, Signal::KILL)?;
    drop(gate);
    site.until("halting ").await?;
    // Three again, by a connection between the neighbours of the dead one, and its successor's to all of them.
    site.trains_on(2).await?;
    // Another host enrols, and its worker joins.
    let other = site.host(1).await?;
    let four = |line: &str| line.starts_with("switched ") && line.ends_with(" 4");
    site.coordinator.until_one("a switch to four members", four).await?;
    // And an operator gets in, which is new as well.
    let after = status(&operator(&site).await?).await?;
    ensure!(after.overview.generation > before.overview.generation, "{after:?}");
    ensure!(after.overview.workers.len() == 4, "{after:?}");
    // Workers have put pieces at the checkpoint actors, for the first time.
    let is_kept = |line: &String| line.starts_with("kept ") && line.ends_with(" 2 2");
    if !site.coordinator.said.iter().any(is_kept) {
        site.kept(SAVED, 2).await?;
    }
    let gone = before.overview.workers.iter().find(|worker| worker.worker == killed);
    let gone = gone.context("it was there")?.address;
    let (_, rest): (Vec<_>, Vec<_>) = ports.into_iter().partition(|port| port.address == gone);
    ensure!(
        rest.len() == 5,
        "the coordinator, two workers and two checkpoint actors are left"
    );
    for AtPort { name, mut crowd, .. } in rest {
        crowd.reached(CROWD, LEAST).await.with_context(|| name.clone())?;
        ensure!(
            crowd.retried() > 0,
            "{name}: expected some to be asked to prove their address, found none"
        );
        crowd.go().with_context(|| name)?;
    }
    site.ends(pace, host).await?;
    other.end().await;
    Ok(())
}
