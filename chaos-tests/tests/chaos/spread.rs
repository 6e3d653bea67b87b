//! Checkpoints on the hosts of the workers, which keep one each beside their work, and one of them is cut off. Needs root and `ip`.

use anyhow::{Result, ensure};
use sardana::{CheckpointEvent, Checkpointing, JobEvent, Step};
use sardana_chaos_tests::gate::Place;
use sardana_protocol::membership::Saves;

use crate::hosts::Site;
use crate::paced::slow;

/// The newest checkpoint that was committed since, and on how many hosts.
fn saved(site: &Site, since: usize) -> Option<(Step, u32)> {
    let saved = site.job_events_since(since).filter_map(|event| {
        let JobEvent::Checkpoint(CheckpointEvent::Saved { key, hosts, .. }) = event else {
            return None;
        };
        Some((key.step, *hosts))
    });
    saved.last()
}

fn resumed(site: &Site, since: usize) -> Option<Step> {
    site.job_events_since(since).find_map(|event| {
        let JobEvent::Checkpoint(CheckpointEvent::Resumes { key, .. }) = event else {
            return None;
        };
        Some(key.step)
    })
}

#[tokio::test]
async fn a_host_with_its_worker_and_its_checkpoints_is_cut_off_and_then_all_are_killed() -> Result<()> {
    let saves = Saves {
        replicas: 2,
        ..Checkpointing::new("", "1".parse()?).saves
    };
    let Some(mut site) = Site::with(slow(3), Some(saves))? else {
        return Ok(());
    };
    let pace = Place::Pace.close(site.trial.folder())?;
    site.start().await?;
    let twice = |since: usize, step: Step| {
        move |site: &Site| saved(site, since).is_some_and(|(found, hosts)| found >= step && hosts == 2)
    };
    site.until("checkpoints are on two hosts", twice(0, Step::new(4))).await?;
    let cut = site.host(site.members[1]).expect("it runs");
    let others = site.network.all().filter(|&other| other != cut);
    site.network.cut(others.flat_map(|other| [(cut, other), (other, cut)]))?;
    let before = site.ended.told.len();
    let left_out = |site: &Site| {
        let mut events = site.job_events_since(before);
        events.any(|event| matches!(event, JobEvent::Checkpoint(CheckpointEvent::DepotLost { .. })))
            && site.members.len() == 2
    };
    site.until("the host is done without", left_out).await?;
    let (now, step) = (site.ended.told.len(), site.step);
    site.until("checkpoints go on without it", twice(now, Step::new(step + 2)))
        .await?;
    let resumes = site
        .job_events_since(0)
        .any(|event| matches!(event, JobEvent::Checkpoint(CheckpointEvent::Resumes { .. })));
    ensure!(!resumes, "those who are left have the state");
    let (last, _) = saved(&site, 0).expect("some were saved");
    // The power fails; the host that was cut off is the only one with an older view.
    site.kill_all().await?;
    site.network.heal()?;
    let before = site.ended.told.len();
    site.start().await?;
    site.until("it resumes", |site| resumed(site, before).is_some()).await?;
    let from = resumed(&site, before).expect("it has resumed");
    ensure!(from >= last, "resumed from {from}, expected {last} at least");
    drop(pace);
    let (summary, site) = site.outcome().await?;
    let reference = site.trial.setup.reference()?;
    ensure!(
        summary.hash == reference.hash,
        "BITS-1: {summary:?}, expected {}",
        reference.hash
    );
    Ok(())
}
