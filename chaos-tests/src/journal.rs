//! What worker processes really computed: one line per gradient and per update, written with one system call, so that it outlives
//! a process that is killed. The product's own counts are compared with it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Gradients that a process computes before it joins, to show that its arithmetic is the others'.
pub const PROBE_GRADIENTS: usize = 3;

/// Updates that it makes for the same reason.
pub const PROBE_UPDATES: usize = 2;

/// What was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    /// The gradient of a shard.
    Gradient {
        /// The shard.
        shard: u32,
    },
    /// An update.
    Update {
        /// Tells one resulting state from another.
        digest: u64,
    },
    /// The loading of the state's ballast, of whatever step.
    Load,
}

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The process: its number and when it began, since numbers come again.
    pub life: (u32, u64),
    /// What was computed.
    pub deed: Deed,
    /// The step.
    pub step: u64,
    /// When it began, in nanoseconds since 1970.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

/// Writes lines.
#[derive(Debug)]
pub struct Pen {
    file: File,
    life: (u32, u64),
}

/// All lines of a run but those of probes.
#[derive(Debug, Default)]
pub struct Journal {
    /// In the order in which they were written.
    pub lines: Vec<Line>,
}

/// Nanoseconds since 1970.
#[must_use]
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn path(folder: &Path) -> PathBuf {
    folder.join("journal")
}

impl Pen {
    /// A pen for this process and the journal of `folder`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn new(folder: &Path) -> std::io::Result<Self> {
        Ok(Self {
            file: OpenOptions::new().create(true).append(true).open(path(folder))?,
            life: (std::process::id(), now_ns()),
        })
    }

    /// Writes a line about what began at `begin_ns` and has just ended.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, deed: Deed, step: u64, begin_ns: u64) -> std::io::Result<()> {
        let line = Line {
            life: self.life,
            deed,
            step,
            begin_ns,
            end_ns: now_ns(),
        };
        let line = serde_json::to_string(&line)? + "\n";
        (&self.file).write_all(line.as_bytes())
    }
}

impl Journal {
    /// Reads the journal of `folder`, less each process's probe.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path(folder)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context("the journal cannot be read"),
        };
        let mut seen = BTreeMap::<(u32, u64), (usize, usize, usize)>::new();
        let mut lines = Vec::new();
        for line in text.lines() {
            let line: Line = serde_json::from_str(line).context("the journal is damaged")?;
            let (gradients, updates, loads) = seen.entry(line.life).or_default();
            let (count, probes) = match line.deed {
                Deed::Gradient { .. } => (gradients, PROBE_GRADIENTS),
                Deed::Update { .. } => (updates, PROBE_UPDATES),
                Deed::Load => (loads, 0),
            };
            *count += 1;
            if *count > probes {
                lines.push(line);
            }
        }
        Ok(Self { lines })
    }

    /// How many gradients were computed, and how many different ones.
    #[must_use]
    pub fn gradients(&self) -> (usize, usize) {
        let mut each = BTreeMap::<(u64, u32), usize>::new();
        for line in &self.lines {
            if let Deed::Gradient { shard } = line.deed {
                *each.entry((line.step, shard)).or_default() += 1;
            }
        }
        (each.values().sum(), each.len())
    }

    /// How many gradients were computed in the processes that `chosen` names by their numbers.
    pub(crate) fn gradients_of(&self, chosen: impl Fn(u32) -> bool) -> usize {
        let of_one = |line: &&Line| matches!(line.deed, Deed::Gradient { .. }) && chosen(line.life.0);
        self.lines.iter().filter(of_one).count()
    }

    /// When the process `pid` last loaded the state's ballast: begin and end, in nanoseconds since 1970.
    #[must_use]
    pub fn last_load(&self, pid: u32) -> Option<(u64, u64)> {
        let of_it = |line: &&Line| line.deed == Deed::Load && line.life.0 == pid;
        let load = self.lines.iter().rfind(of_it)?;
        Some((load.begin_ns, load.end_ns))
    }

    /// Every update as process, step and digest, in the order in which they were written.
    pub fn updates(&self) -> impl Iterator<Item = ((u32, u64), u64, u64)> + '_ {
        self.lines.iter().filter_map(|line| match line.deed {
            Deed::Update { digest } => Some((line.life, line.step, digest)),
            Deed::Gradient { .. } | Deed::Load => None,
        })
    }
}
