//! One record in its frame.

use std::io::{self, Write};

use super::super::framing::{MAX_RECORD_BYTES, RecordFile, Writer, masked_crc};
use super::{Site, crc, frame, has, masked, written};
use crate::DataError;

fn first(bytes: &[u8]) -> Result<Vec<u8>, DataError> {
    let site = Site::new();
    RecordFile::open(&site.file("a.tfrecord", bytes))?.read(0)
}

#[test]
fn checksums_are_those_of_the_definition() {
    // The check value of CRC-32C in every catalogue of them, and that of RFC 3720 for 32 zeros.
    assert_eq!(crc(b"123456789"), 0xe306_9283);
    assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
    assert_eq!(masked_crc(b""), 0xa282_ead8);
    let bytes: Vec<u8> = (0..=255).collect();
    for length in 0..bytes.len() {
        assert_eq!(masked_crc(&bytes[..length]).to_le_bytes(), masked(&bytes[..length]));
    }
}

#[test]
fn a_frame_has_these_bytes() {
    // The first frame of every event file: TensorBoard's version record begins with such a head.
    let empty = [0, 0, 0, 0, 0, 0, 0, 0, 0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2];
    assert_eq!(written(&[b""]), empty);
    assert_eq!(frame(0, b""), empty);
    assert_eq!(
        written(&[b"abc", b"", b"de"]),
        [frame(3, b"abc"), frame(0, b""), frame(2, b"de")].concat()
    );
}

#[test]
fn what_is_written_is_read() {
    let site = Site::new();
    let long = vec![7; 100_000];
    let records: [&[u8]; 4] = [b"one", b"", &long, b"three"];
    let file = RecordFile::open(&site.file("a.tfrecord", &written(&records))).unwrap();
    let mut offset = 0;
    for record in records {
        assert_eq!(file.read(offset).unwrap(), record);
        offset += record.len() as u64 + 16;
    }
    assert_eq!(file.stamp().bytes, offset);
    has(
        &file.read(offset).unwrap_err(),
        &[
            "a.tfrecord, at byte 100072",
            "expected 12 bytes",
            "found 0 bytes to the file's end",
        ],
    );
    has(&file.read(1).unwrap_err(), &["at byte 1", "checksum"]);
    has(&file.read(u64::MAX).unwrap_err(), &["found 0 bytes"]);
}

#[test]
fn a_length_is_bounded_before_it_is_believed() {
    for length in [u64::MAX, u64::MAX - 15, 1 << 40, MAX_RECORD_BYTES + 1] {
        has(
            &first(&frame(length, b"abc")).unwrap_err(),
            &["at most 1073741824 bytes", &format!("found one of {length}")],
        );
    }
    for length in [4, 1_000_000, MAX_RECORD_BYTES] {
        let expected = format!("expected {} bytes of a record", length + 4);
        has(
            &first(&frame(length, b"abc")).unwrap_err(),
            &["at byte 12", &expected, "found 7 bytes"],
        );
    }
}

#[test]
fn a_damaged_bit_of_a_frame_is_found_wherever_it_is() {
    let whole = frame(5, b"bytes");
    assert_eq!(first(&whole).unwrap(), b"bytes");
    for bit in 0..8 * whole.len() {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = first(&damaged).unwrap_err();
        let place = if bit < 96 { "at byte 0" } else { "at byte 12" };
        has(&error, &["a.tfrecord", place, "expected", "with the checksum 0x", "damaged"]);
    }
    for cut in 0..whole.len() {
        has(&first(&whole[..cut]).unwrap_err(), &["to the file's end; it is cut short"]);
    }
}

#[test]
fn where_the_next_frame_is_thought_to_begin_changes_nothing() {
    let site = Site::new();
    let long = vec![9; 40_000];
    let records = [&b"short"[..], &long, b""];
    let path = site.file("a.tfrecord", &written(&records));
    let (file, mut offset) = (RecordFile::open(&path).unwrap(), 0);
    for record in records {
        let end = offset + record.len() as u64 + 16;
        for thought in [end, end - 1, end + 1, 0, offset, offset + 16, u64::MAX] {
            assert_eq!(file.read_to(offset, thought).unwrap(), record, "{offset} to {thought}");
        }
        offset = end;
    }
    for damaged in 0..21 {
        let mut bytes = written(&[b"short"]);
        bytes[damaged] ^= 1;
        let path = site.file("b.tfrecord", &bytes);
        let file = RecordFile::open(&path).unwrap();
        let [one, other] = [file.read_to(0, 21), file.read(0)].map(|read| read.unwrap_err().to_string());
        assert_eq!(one, other, "byte {damaged}");
    }
}

#[test]
fn packed_files_are_refused_with_the_reason() {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255, 99, 96, 0, 0];
    has(
        &first(&gzip).unwrap_err(),
        &["packed by gzip", "unpack it first (gunzip)", "without those before it"],
    );
    has(&first(b"\x78\x9cThe rest of it").unwrap_err(), &["packed by zlib"]);
    let site = Site::new();
    let error = RecordFile::open(&site.path("train.tfrecord.gz")).unwrap_err();
    has(&error, &["train.tfrecord.gz", "packed by gzip"]);
    has(&RecordFile::open(&site.path("")).unwrap_err(), &["found a folder"]);
    has(
        &RecordFile::open(&site.path("none")).unwrap_err(),
        &["none", "cannot look at it"],
    );
}

#[test]
fn a_file_that_is_cut_while_it_is_open_is_told() {
    let site = Site::new();
    let path = site.file("a.tfrecord", &written(&[b"one", b"two"]));
    let file = RecordFile::open(&path).unwrap();
    std::fs::write(&path, b"").unwrap();
    has(
        &file.read(19).unwrap_err(),
        &[
            "at byte 19",
            "a file of 38 bytes, as it had when it was opened",
            "cut it since",
        ],
    );
}

/// Takes frames of up to so many bytes, and counts the calls.
struct Small {
    room: usize,
    calls: usize,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        if bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_frame_goes_out_in_one_call_and_what_is_refused_is_told() {
    let mut writer = Writer::new(Small { room: 20, calls: 0 });
    writer.write(b"abcd").unwrap();
    writer.flush().unwrap();
    assert_eq!(writer.get_ref().calls, 1);
    assert_eq!(writer.write(b"abcde").unwrap_err().kind(), io::ErrorKind::StorageFull);
}
