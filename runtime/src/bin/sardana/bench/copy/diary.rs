//! What worker processes did, and when: a file for each, written line by line, so that it outlives a process that is killed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::bench::times::processor;

/// What a process did. All times are nanoseconds since 1970, which all processes of a host count alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Deed {
    /// An update was made.
    Updated { at: u64, processor: f64 },
    /// The large part of the state was loaded.
    Loaded { from: u64, to: u64, processor: f64 },
}

impl Deed {
    /// When it was done, and how many seconds the process had had of processors then.
    const fn done(&self) -> (u64, f64) {
        match *self {
            Self::Updated { at, processor } => (at, processor),
            Self::Loaded { to, processor, .. } => (to, processor),
        }
    }
}

/// Writes one process's file.
#[derive(Debug)]
pub(super) struct Pen(File);

/// What one process has written.
#[derive(Debug, Default)]
pub(super) struct Diary(Vec<Deed>);

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn place(folder: &Path, pid: u32) -> PathBuf {
    folder.join(pid.to_string())
}

impl Pen {
    /// For this process.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let path = place(folder, std::process::id());
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    /// An update has just been made.
    pub(super) fn updated(&self) -> io::Result<()> {
        let processor = processor().as_secs_f64();
        self.write(Deed::Updated { at: now(), processor })
    }

    /// A load that began at `from` has just ended.
    pub(super) fn loaded(&self, from: u64) -> io::Result<()> {
        let processor = processor().as_secs_f64();
        self.write(Deed::Loaded {
            from,
            to: now(),
            processor,
        })
    }

    fn write(&self, deed: Deed) -> io::Result<()> {
        let line = serde_json::to_string(&deed)? + "\n";
        (&self.0).write_all(line.as_bytes())
    }
}

impl Diary {
    /// Of the process `pid`. A line that its end has cut off is none.
    pub(super) fn read(folder: &Path, pid: u32) -> io::Result<Self> {
        let text = std::fs::read_to_string(place(folder, pid))?;
        Ok(Self(text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()))
    }

    /// When the last load of the state that began after this moment began and ended. Before it joins, a worker loads its state to try it.
    pub(super) fn last_load(&self, after: u64) -> Option<(u64, u64)> {
        self.0.iter().rev().find_map(|deed| match *deed {
            Deed::Loaded { from, to, .. } if from >= after => Some((from, to)),
            Deed::Loaded { .. } | Deed::Updated { .. } => None,
        })
    }

    /// Seconds that its process had of processors from its last deed before a moment, or its start, to its first deed from another moment on. None if it
    /// has done nothing since.
    pub(super) fn processor(&self, from: u64, to: u64) -> Option<f64> {
        let mut done = self.0.iter().map(Deed::done);
        let before = self.0.iter().map(Deed::done).take_while(|&(at, _)| at < from).last();
        let (_, after) = done.find(|&(at, _)| at >= to)?;
        Some(after - before.map_or(0.0, |(_, before)| before))
    }

    /// Seconds of those steps that were under way between two moments: from one update to the next.
    pub(super) fn steps(&self, from: u64, to: u64) -> Vec<f64> {
        let updates = self.0.iter().filter_map(|deed| match *deed {
            Deed::Updated { at, .. } => Some(at),
            Deed::Loaded { .. } => None,
        });
        let ends: Vec<u64> = updates.collect();
        let steps = ends.windows(2).map(|pair| (pair[0], pair[1]));
        let under_way = steps.filter(|&(begin, end)| end > from && begin <= to);
        under_way.map(|(begin, end)| end.saturating_sub(begin) as f64 / 1e9).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_but_for_a_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let pen = Pen::new(folder.path()).unwrap();
        pen.updated().unwrap();
        pen.loaded(5).unwrap();
        pen.updated().unwrap();
        (&pen.0).write_all(b"{\"Upd").unwrap();
        let diary = Diary::read(folder.path(), std::process::id()).unwrap();
        assert_eq!(diary.0.len(), 3);
        let (from, to) = diary.last_load(0).unwrap();
        assert!(from == 5 && to > 5);
    }

    #[test]
    fn steps_under_way_in_a_span_are_found() {
        let updates = [5, 10, 20, 45].map(|at| Deed::Updated {
            at: at * 1_000_000_000,
            processor: at as f64 / 10.0,
        });
        let diary = Diary(updates.into());
        let second = 1_000_000_000;
        assert_eq!(diary.processor(0, 6 * second), Some(1.0), "from its start");
        assert_eq!(diary.processor(11 * second, 20 * second), Some(1.0));
        assert_eq!(diary.processor(11 * second, 46 * second), None);
        let within = |from: u64, to: u64| diary.steps(from * 1_000_000_000, to * 1_000_000_000);
        assert_eq!(within(0, 4), [0.0; 0]);
        assert_eq!(within(0, 5), [5.0]);
        assert_eq!(within(10, 21), [10.0, 25.0]);
        assert_eq!(within(45, 90), [0.0; 0]);
    }
}
