//! The coordinator is a process of its own, and is killed: training goes on, and the next one takes the job up where it is.

use std::net::SocketAddr;

use anyhow::Result;
use sardana::fault::{Point, Role};
use sardana_chaos_tests::gate::Place;

use crate::checkpoints;
use crate::coordinated::{GATE, Site, kill_one, setup, standby};

/// Another coordinator begins, at the same address or another one, and nothing is left of the dead one but its authority.
fn taken_over(site: &mut Site, address: Option<SocketAddr>) -> Result<()> {
    let lost = site.state.clone();
    site.is_taken_over(address.unwrap_or(site.address), &[])?;
    Ok(std::fs::remove_dir_all(lost)?)
}

#[tokio::test]
async fn a_coordinator_that_dies_and_comes_back_is_noticed_by_nobody() -> Result<()> {
    let mut site = Site::new(setup(3), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(3).await?;
    site.until_step(GATE).await?;
    site.kill().await?;
    site.trains_on(5).await?;
    site.start_again(&[]).await?;
    site.until("adopted g1.1").await?;
    let done = site.ends(pace, host).await?;
    assert_eq!((done.recomputed, done.unknown), (0, 0), "{}", done.hash);
    site.nobody_noticed(3)
}

#[tokio::test]
async fn a_worker_that_dies_while_there_is_no_coordinator_is_replaced_once_there_is() -> Result<()> {
    let mut site = Site::new(setup(3), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let mut host = site.host(3).await?;
    site.until_step(GATE).await?;
    site.kill().await?;
    kill_one(&mut host).await?;
    site.start_again(&[]).await?;
    site.until("forming g2.").await?;
    let done = site.ends(pace, host).await?;
    assert_eq!(done.unknown, 0, "its agent saw it end: {:#?}", site.coordinator.said);
    Ok(())
}

#[tokio::test]
async fn without_its_records_it_learns_from_the_workers() -> Result<()> {
    let mut site = Site::new(setup(2), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    site.until_step(GATE).await?;
    site.kill().await?;
    std::fs::remove_dir_all(site.state.join("records"))?;
    site.start_again(&[]).await?;
    site.until("adopted g1.1").await?;
    let done = site.ends(pace, host).await?;
    assert!(done.unknown > 0, "it says that it does not know all that was counted");
    Ok(())
}

#[tokio::test]
async fn another_takes_over_with_nothing_but_the_authority() -> Result<()> {
    let mut site = Site::new(setup(2), None).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    site.until_step(GATE).await?;
    // Twice, so that the lost coordinator was not the first.
    site.kill().await?;
    site.start_again(&[]).await?;
    site.until("adopted g1.1").await?;
    site.kill().await?;
    taken_over(&mut site, None)?;
    site.until("adopted g1.1").await?;
    let done = site.ends(pace, host).await?;
    assert!(done.unknown > 0);
    Ok(())
}

/// On another host: at an address that the join files have named beforehand.
#[tokio::test]
async fn another_takes_over_at_another_address() -> Result<()> {
    let standby = standby();
    let mut site = Site::with(setup(2), None, &[&format!("standby={standby}")]).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let mut host = site.host(2).await?;
    site.until_step(GATE).await?;
    site.kill().await?;
    taken_over(&mut site, Some(standby))?;
    site.until("adopted g1.1").await?;
    // Its agent has found it as well: it reports a death, and starts another worker with the coordinator's certificate.
    kill_one(&mut host).await?;
    site.until("forming g2.").await?;
    site.ends(pace, host).await?;
    Ok(())
}

/// A job in which a third worker joins, and then one dies, with a coordinator that dies at `point` on the way.
async fn dies_at(point: Point) -> Result<()> {
    let workers = if point == Point::CoordinatorForms { 3 } else { 2 };
    let mut site = Site::new(setup(workers), Some(format!("{}@{GATE}", point.name()))).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let mut host = site.host(workers).await?;
    site.until_step(GATE).await?;
    let late = site.host(1).await?;
    let mut pace = Some(pace);
    // The other points are reached while the third joins.
    if [Point::CoordinatorHalt, Point::CoordinatorForm, Point::CoordinatorForms].contains(&point) {
        kill_one(&mut host).await?;
    } else if point == Point::CoordinatorComplete {
        drop(pace.take());
    }
    site.dead().await?;
    site.start_again(&[]).await?;
    drop(pace);
    site.done().await?;
    late.end().await;
    host.end().await;
    Ok(())
}

#[tokio::test]
async fn a_coordinator_may_die_at_each_of_its_fault_points() -> Result<()> {
    // At the points of checkpoints it dies elsewhere.
    let of_membership = |point: &Point| !checkpoints::OF_COORDINATORS.contains(&point.name());
    crate::each(Point::of(Role::Coordinator).filter(of_membership), dies_at).await
}
