//! Hosts whose disks are full, broken, or lose something: the job goes on, and what was wrong is said, and repaired from other hosts.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use sardana_chaos_tests::gate::Place;
use sardana_chaos_tests::setup::Setup;
use sardana_protocol::checkpoint::placement::ranked;
use sardana_protocol::checkpoint::{DepotId, PieceHash};
use sardana_storage::store::{INDEX_FOLDER, MANIFESTS_FOLDER};

use crate::coordinated::Site;
use crate::depots::{Depot, SAVED, Start, TWICE, cut, flip, id_of, newest, piece_in, setup};

/// What happens to the folder of a host while no process uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// One bit of a piece that its readers ask this host for first.
    Flipped,
    /// The end of its newest segment is gone.
    Cut,
    /// Its index is gone.
    NoIndex,
}

impl Harm {
    fn is_done(self, folder: &Path, piece: PieceHash) -> Result<()> {
        match self {
            Self::Flipped => flip(folder, piece),
            Self::Cut => cut(folder),
            Self::NoIndex => Ok(fs::remove_dir_all(folder.join(INDEX_FOLDER))?),
        }
    }

    /// What the depot says of it.
    fn words(self) -> &'static str {
        match self {
            Self::Flipped => "a piece of a checkpoint is damaged",
            Self::Cut => "the store was not as it should be",
            Self::NoIndex => "made anew",
        }
    }
}

/// The state is resumed from two hosts, of which one is harmed, and what it lacks it gets from the other one.
async fn is_healed(harm: Harm) -> Result<()> {
    let mut site = Site::with(setup(2), None, &TWICE).await?;
    let [mut one, mut two] = site.two_depots().await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    let at = site.kept(SAVED, 2).await?;
    tokio::try_join!(one.kill(), two.kill())?;
    site.kill().await?;
    drop(host);
    let piece = newest(&one.folder)?
        .pieces
        .into_iter()
        .next_back()
        .context("a state has pieces")?;
    let ids: [DepotId; 2] = [id_of(&one.folder)?, id_of(&two.folder)?];
    let harmed = usize::from(ranked(piece, &ids)[0] == ids[1]);
    let folder = [&one.folder, &two.folder][harmed].clone();
    let bytes = piece_in(&folder, piece)?;
    harm.is_done(&folder, piece)?;
    site.start_again(&TWICE).await?;
    let mut depots = site.two_depots().await?;
    let host = site.host(2).await?;
    ensure!(site.resumes(at).await? == at);
    let depot = &mut depots[harmed];
    let said = depot.says(harm.words()).await?;
    if harm != Harm::NoIndex {
        ensure!(said.contains(".seg"), "it says where: {said}");
        ensure!(site.kept(at, 2).await? == at, "it is whole again on both");
        depot.says("was fetched from other hosts").await?;
    }
    depot.kill().await?;
    ensure!(piece_in(&folder, piece)? == bytes, "it is there again");
    site.ends(pace, host).await?;
    Ok(())
}

#[tokio::test]
async fn what_one_host_has_lost_is_read_from_the_other_one_and_brought_back() -> Result<()> {
    tokio::try_join!(is_healed(Harm::Flipped), is_healed(Harm::Cut), is_healed(Harm::NoIndex))?;
    Ok(())
}

/// A job with a host that cannot keep the first checkpoint, for a while.
async fn one_cannot(setup: Setup, start: Start<'_>, hurt: impl FnOnce(&Depot) -> Result<()>) -> Result<(Site, Depot)> {
    let site = Site::with(setup, None, &TWICE).await?;
    let one = site.depot("one", start).await?;
    hurt(&one)?;
    Ok((site, one))
}

/// A second host keeps the first checkpoint alone. Then the first host can again: it gets that checkpoint, and
/// the job ends with one on both.
async fn goes_on(mut site: Site, one: &mut Depot, heal: impl AsyncFnOnce(&mut Depot) -> Result<()>) -> Result<()> {
    let _two = site.depot("two", Start::default()).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let host = site.host(2).await?;
    let refused = site.until("depot refused ").await?;
    let id = id_of(&one.folder)?.to_string();
    ensure!(refused.contains(&id), "{refused}, expected {id}");
    let at = site.kept(SAVED, 1).await?;
    heal(one).await?;
    ensure!(site.kept(at, 2).await? == at);
    ensure!(!site.said("halting"), "workers do not notice: {:#?}", site.coordinator.said);
    drop(pace);
    ensure!(site.kept(at + 1, 2).await? == site.trial.setup.steps);
    site.done().await?;
    host.end().await;
    Ok(())
}

/// No file may grow beyond a limit, as on a disk that is full; then the limit is lifted.
#[tokio::test]
async fn a_full_disk_is_done_without_until_it_has_room() -> Result<()> {
    let large = Setup {
        ballast: 2 << 20,
        ..setup(2)
    };
    let start = Start {
        file_kib: Some(1_024),
        ..Start::default()
    };
    let (site, mut one) = one_cannot(large, start, |_| Ok(())).await?;
    goes_on(site, &mut one, async |one| {
        ensure!(
            !one.life.said.iter().any(|line| line.contains("panicked")),
            "{:#?}",
            one.life.said
        );
        let pid = Pid::from_raw(i32::try_from(one.life.pid()?)?);
        let none = Rlimit {
            current: None,
            maximum: None,
        };
        prlimit(pid, Resource::Fsize, none)?;
        Ok(())
    })
    .await
}

/// A write fails as on a broken disk: nothing more is written to the store until it is opened anew, and that is tried until it works.
#[tokio::test]
async fn a_store_that_has_failed_is_opened_anew_once_its_disk_works() -> Result<()> {
    // At no moment is there nothing: the checkpoint actor would make the folder that is missing.
    let exchange = |folder: &Path| {
        let (manifests, hidden) = (folder.join(MANIFESTS_FOLDER), folder.join("hidden"));
        renameat_with(CWD, manifests, CWD, hidden, RenameFlags::EXCHANGE)
    };
    let hide = |depot: &Depot| {
        fs::write(depot.folder.join("hidden"), [])?;
        Ok(exchange(&depot.folder)?)
    };
    let (site, mut one) = one_cannot(setup(2), Start::default(), hide).await?;
    goes_on(site, &mut one, async |one| {
        one.says("the store of checkpoints has failed").await?;
        one.says("cannot be opened anew yet").await?;
        exchange(&one.folder)?;
        one.says("the store of checkpoints is open again").await?;
        Ok(())
    })
    .await
}
