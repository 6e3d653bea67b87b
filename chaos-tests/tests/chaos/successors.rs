//! Coordinators that follow each other, with checkpoint actors on hosts of their own: those obey the newest, and what they keep counts.

use anyhow::{Result, ensure};
use sardana_chaos_tests::gate::Place;

use crate::coordinated::{GATE, Site, standby};
use crate::depots::{ALWAYS, setup};
use crate::rivals::is_fenced;

/// Another coordinator takes over elsewhere: checkpoints go on under it, and it resumes from them once all else is lost.
async fn takes_over(is_lost: bool) -> Result<()> {
    let standby = standby();
    let known = format!("standby={standby}");
    let mut site = Site::with(setup(2), None, &[&known, ALWAYS[0], ALWAYS[1]]).await?;
    let [mut one, mut two] = site.two_depots().await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    let before = site.kept(GATE, 2).await?;
    if is_lost {
        site.kill().await?;
    }
    let mut old = site.is_taken_over(standby, &ALWAYS)?;
    if !is_lost {
        is_fenced(&mut old).await?;
    }
    site.until("adopted g1.1").await?;
    let last = site.kept(before + 1, 2).await?;
    ensure!(
        !site.said("resumes") && !site.said("state lost"),
        "{:#?}",
        site.coordinator.said
    );
    tokio::try_join!(one.kill(), two.kill())?;
    site.kill().await?;
    drop(host);
    site.start_again(&ALWAYS).await?;
    let _depots = site.two_depots().await?;
    let host = site.host(3).await?;
    site.resumes(last).await?;
    site.ends(pace, host).await?;
    Ok(())
}

#[tokio::test]
async fn who_takes_over_from_one_that_is_lost_goes_on_with_its_checkpoints() -> Result<()> {
    takes_over(true).await
}

#[tokio::test]
async fn who_takes_over_from_one_that_lives_goes_on_with_its_checkpoints() -> Result<()> {
    takes_over(false).await
}
