//! Checkpoint actors that are processes of their own, each of a host of its own name, so that they can be killed one by one.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use sardana::hosts::Role;
use sardana_chaos_tests::setup::Setup;
use sardana_protocol::checkpoint::{DepotId, Manifest};
use sardana_storage::store::{PieceHash, SEGMENTS_FOLDER, Store};
use tokio::process::Command;

use crate::coordinated::{GATE, Life, Site};

const DEPOT: &str = env!("CARGO_BIN_EXE_chaos_depot");

/// The only checkpoint before the last is of this step, or soon after it.
pub(crate) const SAVED: u64 = 30;

/// What the coordinator of such a job is told.
pub(crate) const TWICE: [&str; 2] = ["every=30", "replicas=2"];

/// The same, with a checkpoint at every step.
pub(crate) const ALWAYS: [&str; 2] = ["every=1", "replicas=2"];

/// A job with a checkpoint at [`SAVED`] and one at its end. It does not end before the test lets it.
pub(crate) fn setup(workers: u32) -> Setup {
    Setup {
        steps: 2 * SAVED - 1,
        gate_step: GATE,
        samples: 320,
        ..Setup::new(workers)
    }
}

/// A checkpoint actor and its folder.
pub(crate) struct Depot {
    pub(crate) life: Life,
    pub(crate) folder: PathBuf,
}

/// How a depot is started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Start<'a> {
    /// At which point it dies, as `NAME@STEP`.
    pub(crate) fault: Option<&'a str>,
    /// No file of it may be longer than so many KiB.
    pub(crate) file_kib: Option<u32>,
}

impl<'a> Start<'a> {
    pub(crate) fn dying_at(fault: &'a str) -> Self {
        Self {
            fault: Some(fault),
            ..Self::default()
        }
    }
}

impl Site {
    /// Where the depot of that host has its folder.
    pub(crate) fn folder_of(&self, host: &str) -> PathBuf {
        self.trial.folder().join(format!("depot-{host}"))
    }

    /// Starts the depot of that host, and waits until the coordinator has taken it in.
    pub(crate) async fn depot(&self, host: &str, start: Start<'_>) -> Result<Depot> {
        let folder = self.folder_of(host);
        let join = self.invitation(Role::Checkpoint)?;
        let mut command = match start.file_kib {
            None => Command::new(DEPOT),
            // A process that writes beyond the limit is told so, instead of being killed.
            Some(kib) => {
                let mut shell = Command::new("sh");
                let script = format!("trap '' XFSZ; ulimit -S -f {}; exec \"$0\" \"$@\"", 2 * kib);
                shell.args(["-c", &script, DEPOT]);
                shell
            }
        };
        command.arg(join).arg(&folder).arg(host).env("RUST_LOG", "info");
        // They are on hosts of their own, and what they fetch from each other passes the network.
        command.env("SARDANA_APART", "1");
        if let Some(fault) = start.fault {
            let marks = self.trial.folder().join(format!("marks-{host}"));
            fs::create_dir_all(&marks)?;
            command.env("SARDANA_FAULT", fault).env("SARDANA_FAULT_DIR", marks);
        }
        let mut life = Life::of(command)?;
        // The coordinator speaks of it once it has a worker.
        let joined = "sardana::event::joined";
        life.until_one(joined, |line| line.contains(joined)).await?;
        Ok(Depot { life, folder })
    }

    /// Starts the depots of two hosts.
    pub(crate) async fn two_depots(&self) -> Result<[Depot; 2]> {
        let one = self.depot("one", Start::default()).await?;
        Ok([one, self.depot("two", Start::default()).await?])
    }

    /// Waits until a checkpoint of `step`, or a later one, is on so many of two hosts. Returns its step.
    pub(crate) async fn kept(&mut self, step: u64, hosts: u32) -> Result<u64> {
        let end = format!(" {hosts} 2");
        loop {
            let line = self.until("kept ").await?;
            let found: u64 = line["kept ".len()..].split(' ').next().context("a step")?.parse()?;
            if found >= step && line.ends_with(&end) {
                return Ok(found);
            }
        }
    }

    /// The step of the newest checkpoint that the coordinator has spoken of; 0 if there is none.
    pub(crate) fn last_saved(&self) -> u64 {
        let told = self.coordinator.said.iter().filter_map(|line| line.strip_prefix("saved "));
        told.filter_map(|step| step.parse().ok()).max().unwrap_or(0)
    }

    /// The coordinator begins again, and resumes from a checkpoint of `step` or a later one. Returns its step.
    pub(crate) async fn resumes(&mut self, step: u64) -> Result<u64> {
        let line = self.until("resumes ").await?;
        let from: u64 = line["resumes ".len()..].parse()?;
        ensure!(from >= step, "{line}, expected {step} at least: {:#?}", self.coordinator.said);
        Ok(from)
    }
}

impl Depot {
    /// Waits until its log has a line with these words. Returns the first.
    pub(crate) async fn says(&mut self, words: &str) -> Result<String> {
        if let Some(line) = self.life.said.iter().find(|line| line.contains(words)) {
            return Ok(line.clone());
        }
        self.life.until_one(words, |line| line.contains(words)).await
    }

    pub(crate) async fn kill(&mut self) -> Result<()> {
        self.life.signal(Signal::KILL)?;
        self.life.dead().await
    }

    /// It has died by itself.
    pub(crate) async fn dead(&mut self) -> Result<()> {
        self.life.dead().await
    }
}

/// The newest checkpoint in a folder that no process uses.
pub(crate) fn newest(folder: &Path) -> Result<Manifest> {
    let store = Store::open(folder)?.store;
    let key = store
        .newest()
        .key
        .with_context(|| format!("{} has a whole one", folder.display()))?;
    Ok(sardana_storage::manifest::decode(store.show(key)?.bytes())?)
}

/// Which depot a folder is.
pub(crate) fn id_of(folder: &Path) -> Result<DepotId> {
    Ok(sardana_actors::depot::identity(folder)?)
}

/// The bytes of a piece in a folder that no process uses.
pub(crate) fn piece_in(folder: &Path, piece: PieceHash) -> Result<Vec<u8>> {
    Ok(Store::open(folder)?.store.read(piece)?)
}

/// Flips one bit of a piece, wherever it is stored.
pub(crate) fn flip(folder: &Path, piece: PieceHash) -> Result<()> {
    let (file, middle) = middle_of(folder, piece)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle)?;
    Ok(file.write_all_at(&[byte[0] ^ 1], middle)?)
}

/// Cuts a segment off in the middle of a piece: that, and what was stored after it, is gone.
pub(crate) fn cut_within(folder: &Path, piece: PieceHash) -> Result<()> {
    let (file, middle) = middle_of(folder, piece)?;
    Ok(file.set_len(middle)?)
}

/// The segment that has a piece, and where its middle is.
fn middle_of(folder: &Path, piece: PieceHash) -> Result<(File, u64)> {
    let bytes = piece_in(folder, piece)?;
    for entry in fs::read_dir(folder.join(SEGMENTS_FOLDER))? {
        let path = entry?.path();
        let all = fs::read(&path)?;
        if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
            let file = File::options().read(true).write(true).open(&path)?;
            return Ok((file, (at + bytes.len() / 2) as u64));
        }
    }
    anyhow::bail!("{piece} is in no segment of {}", folder.display())
}

/// Cuts the last quarter of the newest segment with anything in it.
pub(crate) fn cut(folder: &Path) -> Result<()> {
    let mut segments: Vec<PathBuf> = fs::read_dir(folder.join(SEGMENTS_FOLDER))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    segments.sort();
    let path = segments.last().context("there is a segment")?;
    let file = fs::OpenOptions::new().write(true).open(path)?;
    Ok(file.set_len(file.metadata()?.len() * 3 / 4)?)
}
