//! A worker's count of gradients in a small file, so that its agent can read it after the worker was killed.
//!
//! Written in place with one system call per gradient; what was written is in the kernel's hands and outlives the process. It is
//! for the count only: nothing that is computed depends on it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sardana_protocol::messages::Tally;
use sardana_protocol::words::Step;

const BYTES: usize = 24;

/// The file.
#[derive(Debug)]
pub struct TallyFile(File);

impl TallyFile {
    /// Opens the file that the agent has made.
    ///
    /// # Errors
    /// When it is not there or cannot be written; the worker goes on without a count.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().write(true).open(path).map(Self)
    }

    /// Writes the count.
    pub fn write(&self, tally: Tally) {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&tally.total.to_le_bytes());
        bytes[8..16].copy_from_slice(&tally.step.get().to_le_bytes());
        bytes[16..20].copy_from_slice(&tally.this_step.to_le_bytes());
        bytes[20..].copy_from_slice(&tally.previous_step.to_le_bytes());
        if let Err(error) = self.0.write_all_at(&bytes, 0) {
            tracing::debug!(%error, "the count of gradients could not be written");
        }
    }

    /// Reads a count after its writer has ended. None if it never wrote one, or the file is damaged.
    #[must_use]
    pub fn read(path: &Path) -> Option<Tally> {
        let bytes: [u8; BYTES] = std::fs::read(path).ok()?.try_into().ok()?;
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Tally {
            total: long(0)?,
            step: Step::new(long(8)?),
            this_step: short(16)?,
            previous_step: short(20)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_survives_and_damage_is_no_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tally");
        assert_eq!(TallyFile::read(&path), None);
        std::fs::write(&path, []).unwrap();
        assert_eq!(TallyFile::read(&path), None);
        let tally = Tally {
            total: 70,
            step: Step::new(9),
            this_step: 3,
            previous_step: 4,
        };
        TallyFile::open(&path).unwrap().write(tally);
        assert_eq!(TallyFile::read(&path), Some(tally));
    }
}
