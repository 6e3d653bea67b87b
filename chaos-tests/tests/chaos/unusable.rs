//! Agents whose folder for checkpoints cannot be used at first: they say so, work without it, and keep checkpoints once it can.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use sardana::AgentEvent;
use sardana::hosts::agent::AgentHost;
use sardana_chaos_tests::gate::Place;
use tokio::time::timeout;

use crate::coordinated::Site;
use crate::depots::{SAVED, Start, TWICE, newest, setup};
use crate::network::run;

/// What has not happened by then never will.
const LIMIT: Duration = Duration::from_secs(60);

/// A folder in which nothing can be made until it is lifted, also by root.
#[derive(Debug)]
struct ReadOnly {
    folder: PathBuf,
    mounted: bool,
}

impl ReadOnly {
    /// Or why there can be none here.
    fn new(folder: &Path) -> Result<Self, String> {
        let words = |error: std::io::Error| error.to_string();
        fs::create_dir(folder).map_err(words)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o500)).map_err(words)?;
        let mut own = Self {
            folder: folder.to_owned(),
            mounted: false,
        };
        let probe = folder.join("probe");
        if fs::create_dir(&probe).is_err() {
            return Ok(own);
        }
        // Permissions do not keep root from it.
        fs::remove_dir(&probe).map_err(words)?;
        let at = folder.to_str().ok_or("a folder without a name")?;
        run("mount", &["--bind", at, at])?;
        own.mounted = true;
        run("mount", &["-o", "remount,bind,ro", at])?;
        match fs::create_dir(&probe) {
            Ok(()) => Err("a folder that is mounted read-only is written to".to_owned()),
            Err(_) => Ok(own),
        }
    }

    fn lift(mut self) -> Result<()> {
        if self.mounted {
            self.mounted = false;
            run("umount", &[self.folder.to_str().context("it has a name")?]).map_err(anyhow::Error::msg)?;
        }
        Ok(fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o700))?)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        if self.mounted {
            // After a failed test a process may still be in it.
            let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        }
    }
}

/// Waits until the agent says that it keeps no checkpoints. Returns why.
async fn no_depot(host: &mut AgentHost) -> Result<String> {
    let found = timeout(LIMIT, async {
        while let Some(event) = host.next_event().await {
            if let AgentEvent::NoDepot { reason } = event {
                return Ok(reason);
            }
        }
        bail!("the agent has ended")
    });
    found.await.context("it says nothing")?
}

/// The agent of one of two hosts cannot use `folder` until it is `lift`ed; `words` of why it says.
async fn lifted(mut site: Site, folder: &Path, words: &str, lift: impl FnOnce() -> Result<()>) -> Result<()> {
    let _two = site.depot("two", Start::default()).await?;
    let pace = Place::Pace.close(site.trial.folder())?;
    let mut host = site.host_with(2, Some((folder, "one"))).await?;
    let why = no_depot(&mut host).await?;
    ensure!(why.contains(words), "{words:?} is missing from {why:?}");
    let at = site.kept(SAVED, 1).await?;
    lift()?;
    site.until("depot came one ").await?;
    ensure!(site.kept(at, 2).await? == at);
    drop(pace);
    ensure!(site.kept(at + 1, 2).await? == site.trial.setup.steps);
    site.done().await?;
    host.end().await;
    ensure!(newest(folder)?.step().get() == site.trial.setup.steps);
    Ok(())
}

#[tokio::test]
async fn a_file_in_the_place_of_the_folder_is_told_and_once_it_is_gone_checkpoints_are_kept() -> Result<()> {
    let site = Site::with(setup(2), None, &TWICE).await?;
    let folder = site.folder_of("one");
    fs::write(&folder, [])?;
    let file = folder.clone();
    lifted(site, &folder, "depot-one", move || Ok(fs::remove_file(file)?)).await
}

#[tokio::test]
async fn a_read_only_disk_is_told_and_once_it_can_be_written_to_checkpoints_are_kept() -> Result<()> {
    let site = Site::with(setup(2), None, &TWICE).await?;
    let place = site.trial.folder().join("read-only");
    let read_only = match ReadOnly::new(&place) {
        Ok(read_only) => read_only,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(());
        }
    };
    lifted(site, &place.join("kept"), "read-only", move || read_only.lift()).await
}
