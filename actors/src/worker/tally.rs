//! A worker's count of gradients in a small file, so that its agent can read it after the worker was killed; and whether its part in the job is over.
//!
//! The file is mapped: a count costs a few stores, where a system call would cost a percent of a small model's step. What was
//! stored is the kernel's and outlives the process. It is for the count only: nothing that is computed depends on it.
#![expect(unsafe_code, reason = "mapping a file into memory cannot be checked by the compiler")]

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use memmap2::{MmapMut, MmapOptions};
use sardana_protocol::messages::Tally;
use sardana_protocol::words::Step;

/// The count, and whether its writer's part is over.
const BYTES: usize = COUNT_BYTES + 1;

const COUNT_BYTES: usize = 24;

/// The file.
pub struct TallyFile(MmapMut);

impl fmt::Debug for TallyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TallyFile")
    }
}

impl TallyFile {
    /// Opens the file that the agent has made, and counts 0.
    ///
    /// # Errors
    /// When it is not there or cannot be mapped; the worker goes on without a count.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        file.set_len(BYTES as u64)?;
        // SAFETY: the file lies in a folder that only this user can enter, was made by the agent for this process alone, and is
        // neither truncated nor written by any other process; the agent reads it, by other means, once this process has ended.
        let map = unsafe { MmapOptions::new().len(BYTES).map_mut(&file) }?;
        let mut tally = Self(map);
        // From here on the count is known, also if there is never a gradient.
        tally.write(Tally::default());
        Ok(tally)
    }

    /// Writes the count.
    pub fn write(&mut self, tally: Tally) {
        let mut bytes = [0; COUNT_BYTES];
        bytes[..8].copy_from_slice(&tally.total.to_le_bytes());
        bytes[8..16].copy_from_slice(&tally.step.get().to_le_bytes());
        bytes[16..20].copy_from_slice(&tally.this_step.to_le_bytes());
        bytes[20..].copy_from_slice(&tally.previous_step.to_le_bytes());
        self.0[..COUNT_BYTES].copy_from_slice(&bytes);
    }

    /// This process's part in the job has ended well. What its program still does, the agent lets it finish.
    pub fn write_over(&mut self) {
        self.0[COUNT_BYTES] = 1;
    }

    /// Whether the part in the job of the process that writes there has ended well.
    #[must_use]
    pub fn is_over(path: &Path) -> bool {
        std::fs::read(path).is_ok_and(|bytes| bytes.get(COUNT_BYTES) == Some(&1))
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
        let mut file = TallyFile::open(&path).unwrap();
        file.write(tally);
        assert_eq!((TallyFile::read(&path), TallyFile::is_over(&path)), (Some(tally), false));
        file.write_over();
        assert_eq!((TallyFile::read(&path), TallyFile::is_over(&path)), (Some(tally), true));
    }
}
