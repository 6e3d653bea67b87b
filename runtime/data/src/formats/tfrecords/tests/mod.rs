//! TFRecords against bytes that are made by hand here, by what the format's description says.

mod example;
mod framing;
mod index;
mod python;
mod set;

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::framing::Writer;

/// CRC32C, bit by bit, by its definition.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    let over = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, over)
}

/// The bytes of a checksum, masked as TensorFlow's `crc32c.h` has it.
fn masked(bytes: &[u8]) -> [u8; 4] {
    let crc = u64::from(crc(bytes));
    let turned = (crc >> 15) | (crc << 17);
    ((turned + 0xa282_ead8) as u32).to_le_bytes()
}

/// The frame of a record, with whatever length is stated.
fn frame(length: u64, record: &[u8]) -> Vec<u8> {
    let length = length.to_le_bytes();
    [&length, &masked(&length)[..], record, &masked(record)].concat()
}

/// A file of these records, by the code under test.
fn written(records: &[&[u8]]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    records.iter().for_each(|record| writer.write(record).unwrap());
    writer.into_inner()
}

/// A folder of a test's own.
struct Site(TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path of a file that has these bytes.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The names of all that is there.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Changes what is at `path` and gives it back the time that it had.
fn change_unnoticed(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(modified)
        .unwrap();
}

/// Whether `error` says all of this.
#[track_caller]
fn has(error: &impl ToString, parts: &[&str]) {
    let said = error.to_string();
    parts
        .iter()
        .for_each(|part| assert!(said.contains(part), "expected `{part}` in: {said}"));
}
