//! Checkpoints on several hosts: any one of them may be lost, at any moment, and nothing is. The job ends in the state of the plain loop.

use anyhow::{Context, Result, ensure};
use sardana::checkpoints::Checkpoints;
use sardana_chaos_tests::gate::Place;
use sardana_protocol::checkpoint::placement::ranked;

use crate::coordinated::{GATE, Site};
use crate::depots::{ALWAYS, SAVED, Start, TWICE, id_of, newest, setup};

/// A host dies once it is asked for pieces.
pub(crate) const GIVING: &str = "depot-give@0";

/// One of two hosts dies at this point of a checkpoint: it is committed on the other one, and placed on both once the host is back.
async fn a_host_dies_at(point: &str) -> Result<()> {
    let mut site = Site::with(setup(2), None, &TWICE).await?;
    let fault = format!("{point}@{GATE}");
    let mut one = site.depot("one", Start::dying_at(&fault)).await?;
    let two = site.depot("two", Start::default()).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    one.dead().await?;
    let at = site.kept(SAVED, 1).await?;
    ensure!(!site.said("halting"), "workers do not notice: {:#?}", site.coordinator.said);
    let _one = site.depot("one", Start::default()).await?;
    // A host that died with its manifest durable has had it all the time, as the other one has: there is nothing to do.
    if point != "depot-committed" {
        ensure!(site.kept(at, 2).await? == at);
    }
    drop(pace);
    ensure!(site.kept(at + 1, 2).await? == site.trial.setup.steps);
    site.done().await?;
    host.end().await;
    drop(two);
    Ok(())
}

#[tokio::test]
async fn a_host_that_dies_at_any_point_of_a_checkpoint_has_it_once_it_is_back() -> Result<()> {
    crate::each(["depot-put", "depot-sync", "depot-commit", "depot-committed"], a_host_dies_at).await
}

/// The coordinator dies while a checkpoint is on its way to two hosts that live on. The next one finds a whole checkpoint, and the one that
/// was committed, also if no other process had heard of it.
async fn the_coordinator_dies_at(point: &str, all: bool) -> Result<()> {
    let mut site = Site::with(setup(2), Some(format!("{point}@{SAVED}")), &ALWAYS).await?;
    let _depots = site.two_depots().await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    site.dead().await?;
    let last = site.last_saved();
    let least = if point == "coordinator-committed" { last + 1 } else { last };
    let host = if all {
        drop(host);
        site.start_again(&ALWAYS).await?;
        let host = site.host(3).await?;
        // On a busy machine the first checkpoint may be the one at which it died: then there is none, and the job begins anew.
        if least > 0 {
            site.resumes(least).await?;
        }
        host
    } else {
        site.trains_on(1).await?;
        site.start_again(&ALWAYS).await?;
        site.until("adopted g1.1").await?;
        host
    };
    drop(pace);
    site.done().await?;
    let last = format!("saved {}", site.trial.setup.steps);
    // Where all are lost, so are the steps since the checkpoint, if any process knew of them.
    ensure!(
        site.said(&last) && (all || !site.said("state lost")),
        "{:#?}",
        site.coordinator.said
    );
    host.end().await;
    Ok(())
}

#[tokio::test]
async fn a_coordinator_that_dies_while_two_hosts_keep_a_checkpoint_is_followed_by_one_that_finds_it() -> Result<()> {
    let points = ["coordinator-save", "coordinator-commit", "coordinator-committed"];
    let cases = points.into_iter().flat_map(|point| [(point, false), (point, true)]);
    crate::each(cases, async |(point, all)| the_coordinator_dies_at(point, all).await).await
}

/// Everything is killed, and one host never comes back: the other one has all of it.
#[tokio::test]
async fn after_the_loss_of_one_host_for_good_the_newest_checkpoint_is_resumed_from() -> Result<()> {
    for lost in ["one", "two"] {
        let mut site = Site::with(setup(3), None, &ALWAYS).await?;
        let [mut one, mut two] = site.two_depots().await?;
        let pace = Place::Pace.close(site.trial.folder())?;
        let host = site.host(3).await?;
        let last = site.kept(GATE + 4, 2).await?;
        tokio::try_join!(one.kill(), two.kill())?;
        site.kill().await?;
        drop(host);
        std::fs::remove_dir_all(site.folder_of(lost))?;
        site.start_again(&ALWAYS).await?;
        let _depots = site.two_depots().await?;
        let host = site.host(2).await?;
        let from = site.resumes(last).await?;
        // What is taken from now on is on both again.
        site.kept(from + 1, 2).await?;
        site.ends(pace, host).await?;
    }
    Ok(())
}

/// A host dies while workers read from it: they get the rest from the other one.
#[tokio::test]
async fn a_host_that_dies_while_workers_restore_is_done_without() -> Result<()> {
    let mut site = Site::with(setup(3), None, &ALWAYS).await?;
    site.trial.keep_apart();
    let [mut one, mut two] = site.two_depots().await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(3).await?;
    let last = site.kept(GATE + 4, 2).await?;
    tokio::try_join!(one.kill(), two.kill())?;
    site.kill().await?;
    drop(host);
    // Which of them is asked for a piece first is by their ids, which are random.
    let piece = newest(&one.folder)?.pieces.into_iter().next().context("a state has pieces")?;
    let ids = [id_of(&one.folder)?, id_of(&two.folder)?];
    let (asked, other) = if ranked(piece, &ids)[0] == ids[0] {
        ("one", "two")
    } else {
        ("two", "one")
    };
    site.start_again(&ALWAYS).await?;
    let mut asked = site.depot(asked, Start::dying_at(GIVING)).await?;
    let _other = site.depot(other, Start::default()).await?;
    let host = site.host(2).await?;
    let from = site.resumes(last).await?;
    asked.dead().await?;
    site.kept(from + 1, 1).await?;
    site.ends(pace, host).await?;
    Ok(())
}

/// The same where no other host has it: the job says which host has not answered, waits, and goes on when it is back.
#[tokio::test]
async fn the_only_host_dies_while_workers_restore_and_is_waited_for() -> Result<()> {
    let always = ["every=1"];
    let mut site = Site::with(setup(2), None, &always).await?;
    site.trial.keep_apart();
    let mut one = site.depot("one", Start::default()).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    site.until_step(GATE + 4).await?;
    let saved = site.until("saved ").await?;
    let last: u64 = saved["saved ".len()..].parse()?;
    one.kill().await?;
    site.kill().await?;
    drop(host);
    site.start_again(&always).await?;
    let mut one = site.depot("one", Start::dying_at(GIVING)).await?;
    let host = site.host(2).await?;
    site.resumes(last).await?;
    one.dead().await?;
    let said = site.until("not restored ").await?;
    ensure!(said.contains("checkpoint actor d"), "it says who: {said}");
    let _one = site.depot("one", Start::default()).await?;
    site.resumes(last).await?;
    site.ends(pace, host).await?;
    Ok(())
}

/// With fewer hosts than asked for a checkpoint is committed on those there are, and says so; a host that comes later gets it.
#[tokio::test]
async fn a_checkpoint_on_too_few_hosts_says_so_and_is_placed_on_one_that_comes() -> Result<()> {
    let own = tempfile::tempdir()?;
    let own = own.path().join("own");
    let checkpoints = format!("checkpoints={}", own.display());
    let arguments = [checkpoints.as_str(), TWICE[0], TWICE[1]];
    let mut site = Site::with(setup(2), None, &arguments).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    let at = site.kept(SAVED, 1).await?;
    let mut two = site.depot("two", Start::default()).await?;
    ensure!(site.kept(at, 2).await? == at);
    two.kill().await?;
    let there = newest(&two.folder)?;
    ensure!(there.step().get() == at && there.depots.len() == 2, "{there:?}");
    site.until("depot lost ").await?;
    drop(pace);
    ensure!(site.kept(at + 1, 1).await? == site.trial.setup.steps);
    site.done().await?;
    host.end().await;
    site.coordinator.over().await?;
    let listing = Checkpoints::open(&own, &[])?.list();
    let placed = listing.entries.iter().filter_map(|entry| entry.manifest.as_ref());
    let placed: Vec<(u32, usize)> = placed.map(|manifest| (manifest.replicas, manifest.depots.len())).collect();
    ensure!(
        placed == [(2, 2), (2, 1)],
        "of those that are kept the last is on one host: {placed:?}"
    );
    Ok(())
}
