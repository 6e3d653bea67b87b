//! Workers' files: how much of each is kept, and of how many. A job may have thousands of restarts, and goes on for weeks.
//!
//! Of each worker there are at most two files of half the bytes each: the one that is written to, and the one before. When a worker's file
//! is made, those of the workers that ended first are removed, beyond the number that is kept. Only files that this agent has made are
//! ever removed: other agents may keep theirs in the same folder.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sardana_protocol::words::WorkerId;

use crate::agent::limits::{LOG_BYTES, LOG_BYTES_LEAST, LOG_FILES};

/// How much is kept of what workers print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    bytes: u64,
    files: usize,
}

impl LogBounds {
    /// At most so many bytes of each worker, if a line fits into half of them, and of so many workers beyond those that run.
    #[must_use]
    pub const fn new(bytes: u64, files: usize) -> Self {
        let bytes = if bytes < LOG_BYTES_LEAST { LOG_BYTES_LEAST } else { bytes };
        Self { bytes, files }
    }
}

impl Default for LogBounds {
    fn default() -> Self {
        Self::new(LOG_BYTES, LOG_FILES)
    }
}

/// The files of an agent's workers.
#[derive(Debug)]
pub(super) struct Logs {
    folder: PathBuf,
    bounds: LogBounds,
    /// In the order in which they were made. The log of a worker that has ended is not open.
    made: Mutex<VecDeque<(PathBuf, Weak<Log>)>>,
}

impl Logs {
    pub(super) fn new(folder: &Path, bounds: LogBounds) -> Self {
        Self {
            folder: folder.to_owned(),
            bounds,
            made: Mutex::default(),
        }
    }

    /// The file of a worker that is started.
    pub(super) fn of(&self, worker: WorkerId) -> io::Result<Arc<Log>> {
        let path = self.folder.join(format!("{worker}.log"));
        let opened = Log::open(&path, self.bounds.bytes / 2);
        let log = Arc::new(opened.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = made.iter().filter(|(_, log)| log.strong_count() == 0).count();
        for _ in self.bounds.files..ended {
            let first = made.iter().position(|(_, log)| log.strong_count() == 0);
            let Some((path, _)) = first.and_then(|first| made.remove(first)) else {
                break;
            };
            // A person may have moved it away.
            let _ = (fs::remove_file(before(&path)), fs::remove_file(path));
        }
        made.push_back((path, Arc::downgrade(&log)));
        Ok(log)
    }
}

/// A worker's file.
#[derive(Debug)]
pub(in crate::agent) struct Log {
    path: PathBuf,
    /// The most of each of its two files.
    most: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    length: u64,
    /// It failed, and people were told.
    failed: bool,
}

impl Log {
    pub(super) fn open(path: &Path, most: u64) -> io::Result<Self> {
        let file = append_to(path)?;
        let length = file.metadata()?.len();
        let failed = false;
        Ok(Self {
            path: path.to_owned(),
            most,
            open: Mutex::new(Open { file, length, failed }),
        })
    }

    pub(super) fn append(&self, bytes: &[u8]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.try_append(&mut open, bytes)
            && !std::mem::replace(&mut open.failed, true)
        {
            tracing::warn!(path = %self.path.display(), %error, "a worker's log is not complete");
        }
    }

    fn try_append(&self, open: &mut Open, bytes: &[u8]) -> io::Result<()> {
        let more = bytes.len() as u64;
        if open.length > 0 && open.length.saturating_add(more) > self.most {
            fs::rename(&self.path, before(&self.path))?;
            open.file = append_to(&self.path)?;
            open.length = 0;
        }
        open.file.write_all(bytes)?;
        open.length += more;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The file with what came before.
fn before(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::limits::LINE_BYTES;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn bytes(folder: &Path) -> u64 {
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    }

    #[test]
    fn thousands_of_workers_that_print_a_lot_fill_no_disk() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("wffffffffffffffff.log"), "another one's").unwrap();
        let bounds = LogBounds::new(1, 3);
        let logs = Logs::new(place.path(), bounds);
        let first = logs.of(WorkerId::new(0)).unwrap();
        let line = vec![b'x'; LINE_BYTES];
        for worker in 1..=2_000 {
            let log = logs.of(WorkerId::new(worker)).unwrap();
            for _ in 0..if worker > 1_990 { 20 } else { 1 } {
                log.append(&line);
            }
        }
        first.append(b"it still runs");
        let kept = names(place.path());
        assert!(
            bytes(place.path()) <= 5 * LOG_BYTES_LEAST + 100,
            "{} in {kept:?}",
            bytes(place.path())
        );
        let of = |worker| WorkerId::new(worker).to_string();
        for worker in [0, 1_997, 1_998, 1_999, 2_000] {
            assert!(kept.contains(&format!("{}.log", of(worker))), "{worker} is not in {kept:?}");
        }
        assert_eq!(kept.len(), 1 + 1 + 4 * 2, "{kept:?}");
        assert_eq!(logs.made.lock().unwrap().len(), 5);
    }

    #[test]
    fn what_came_last_is_there_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("w.log");
        let log = Log::open(&path, 100).unwrap();
        for number in 0..1_000 {
            log.append(format!("line {number:04}\n").as_bytes());
        }
        drop(log);
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let text = read(&before(&path)) + &read(&path);
        assert!(text.len() <= 200 && text.len() > 100, "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let expected: Vec<String> = (1_000 - lines.len()..1_000)
            .map(|number| format!("line {number:04}"))
            .collect();
        assert_eq!(lines, expected);
        // A log that is opened again goes on where it was.
        let log = Log::open(&path, 100).unwrap();
        log.append(&[b'y'; 100]);
        assert_eq!(read(&path), "y".repeat(100));
    }
}
