//! The index of a file: made, kept, believed or made anew.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use super::super::TfRecords;
use super::super::framing::RecordFile;
use super::super::index::{Index, Kept, Verify, index_file, place};
use super::{Site, change_unnoticed, frame, has, written};
use crate::{DataError, Dataset, SampleRandom};

const RECORDS: [&[u8]; 3] = [b"one", b"", b"three"];

/// All records of the file, by way of its index.
fn read(path: &Path) -> Result<Vec<Vec<u8>>, DataError> {
    let data = TfRecords::open([path.to_owned()])?;
    let get = |index| data.get(index, &SampleRandom::held_out(0, index));
    (0..data.len()).map(get).collect()
}

fn indexed(path: &Path, verify: Verify) -> Result<super::super::IndexSummary, DataError> {
    index_file(path, verify, &mut |_| {})
}

/// Where records begin, by the index that is used for the file.
fn offsets(path: &Path) -> Vec<u64> {
    let index = Index::of(&RecordFile::open(path).unwrap()).unwrap();
    (0..index.records()).map(|number| index.offset(number).unwrap()).collect()
}

#[test]
fn an_index_is_made_once_and_says_what_was_found() {
    let site = Site::new();
    let path = site.file("a.tfrecord", &written(&RECORDS));
    let summary = indexed(&path, Verify::Payloads).unwrap();
    assert_eq!((summary.records, summary.bytes, summary.longest_record_bytes), (3, 56, 5));
    assert_eq!(summary.kept, Kept::Beside(site.path("a.tfrecord.index")));
    assert_eq!(summary, indexed(&path, Verify::Lengths).unwrap());
    assert_eq!(offsets(&path), [0, 19, 35]);
    assert_eq!(site.names(), ["a.tfrecord", "a.tfrecord.index"], "nothing else is left");
    // The format: the line, then length, time, count, hash; the places; the checksum of all of it.
    let bytes = fs::read(place(&path)).unwrap();
    assert_eq!(bytes.len(), 26 + 8 + 16 + 8 + 32 + 3 * 8 + 32);
    let (content, checksum) = bytes.split_last_chunk::<32>().unwrap();
    assert!(content.starts_with(b"sardana tfrecord index v1\n\x38\0\0\0\0\0\0\0"));
    assert!(content.ends_with(&[[0, 0, 0, 0, 0, 0, 0, 0], [19, 0, 0, 0, 0, 0, 0, 0], [35, 0, 0, 0, 0, 0, 0, 0]].concat()));
    assert_eq!(blake3::hash(content).as_bytes(), checksum);
}

#[test]
fn progress_is_told_up_to_the_end() {
    let site = Site::new();
    let record = vec![1; 1 << 20];
    let path = site.file("a.tfrecord", &written(&[&record[..]; 10]));
    let mut told = Vec::new();
    let bytes = index_file(&path, Verify::Payloads, &mut |bytes| told.push(bytes))
        .unwrap()
        .bytes;
    assert!(told.len() >= 3 && told.is_sorted() && told.last() == Some(&bytes), "{told:?}");
    let empty = site.file("empty.tfrecord", b"");
    assert_eq!(
        indexed(&empty, Verify::Payloads).unwrap().records,
        0,
        "as TensorFlow writes a file without records"
    );
    assert_eq!(read(&empty).unwrap().len(), 0);
}

/// An index that is believed is not made again, so what it says is what is used.
#[test]
fn a_good_index_is_believed_and_a_stale_one_is_not() {
    let site = Site::new();
    let path = site.file("a.tfrecord", &written(&RECORDS));
    let made = indexed(&path, Verify::Lengths).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    // Other records in as many bytes.
    let others = written(&[b"", b"one", b"three"]);
    change_unnoticed(&path, |bytes| bytes.clone_from(&others));
    assert_eq!(
        offsets(&path),
        [0, 19, 35],
        "the old one is believed while length and time are those"
    );
    has(&read(&path).unwrap_err(), &["at byte 19", "checksum"]);
    fs::write(&path, &others).unwrap();
    let later = modified + std::time::Duration::from_nanos(1_000);
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(later)
        .unwrap();
    assert_eq!(offsets(&path), [0, 16, 35], "another time: made anew");
    assert_ne!(indexed(&path, Verify::Lengths).unwrap().hash, made.hash);
    change_unnoticed(&path, |bytes| bytes.extend(frame(1, b"4")));
    assert_eq!(offsets(&path), [0, 16, 35, 56], "another length: made anew");
}

#[test]
fn a_byte_changed_behind_an_index_is_found_when_it_is_read() {
    let site = Site::new();
    let path = site.file("a.tfrecord", &written(&RECORDS));
    let before = indexed(&path, Verify::Payloads).unwrap();
    change_unnoticed(&path, |bytes| bytes[35 + 12] ^= 1);
    assert_eq!(
        indexed(&path, Verify::Lengths).unwrap().hash,
        before.hash,
        "records are passed over"
    );
    for error in [read(&path).unwrap_err(), indexed(&path, Verify::Payloads).unwrap_err()] {
        has(
            &error,
            &[
                "a.tfrecord, at byte 47: expected a record with the checksum 0x",
                "found one with 0x",
            ],
        );
    }
}

#[test]
fn a_damaged_index_is_made_anew() {
    let site = Site::new();
    let path = site.file("a.tfrecord", &written(&RECORDS));
    indexed(&path, Verify::Lengths).unwrap();
    let at = place(&path);
    let whole = fs::read(&at).unwrap();
    for byte in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[byte] ^= 0x41;
        fs::write(&at, &damaged).unwrap();
        assert_eq!(read(&path).unwrap(), RECORDS, "byte {byte}");
        // Without its name it could be anybody's.
        let expected = if byte < "sardana tfrecord index v".len() {
            &damaged
        } else {
            &whole
        };
        assert_eq!(&fs::read(&at).unwrap(), expected, "byte {byte}");
    }
    for cut in (0..whole.len()).filter(|&cut| cut == 0 || cut >= 24) {
        fs::write(&at, &whole[..cut]).unwrap();
        assert_eq!(read(&path).unwrap(), RECORDS, "cut at {cut}");
        assert_eq!(fs::read(&at).unwrap(), whole, "cut at {cut}");
    }
    fs::write(&at, [&whole[..], b"x"].concat()).unwrap();
    assert_eq!(read(&path).unwrap(), RECORDS);
    assert_eq!(fs::read(&at).unwrap(), whole);
}

/// Of one that was made to deceive, with a right checksum.
#[test]
fn an_index_with_wrong_places_or_counts_does_no_harm() {
    let site = Site::new();
    let path = site.file("a.tfrecord", &written(&RECORDS));
    indexed(&path, Verify::Lengths).unwrap();
    let whole = fs::read(place(&path)).unwrap();
    let forge = |at: usize, number: u64| {
        let mut forged = whole[..whole.len() - 32].to_vec();
        forged[at..at + 8].copy_from_slice(&number.to_le_bytes());
        let checksum = blake3::hash(&forged);
        fs::write(place(&path), [&forged[..], checksum.as_bytes()].concat()).unwrap();
    };
    for offset in [1, 50, 1 << 40, u64::MAX] {
        forge(whole.len() - 32 - 8, offset);
        has(&read(&path).unwrap_err(), &["a.tfrecord, at byte", "expected"]);
    }
    for count in [0, 2, 4, 1 << 40, 1 << 61, u64::MAX] {
        forge(50, count);
        assert_eq!(read(&path).unwrap(), RECORDS, "{count} records");
    }
}

#[test]
fn what_somebody_else_keeps_under_the_name_is_left_alone() {
    let site = Site::new();
    let path = site.file("a.tfrecord", &written(&RECORDS));
    site.file("a.tfrecord.index", b"0 19\n19 16\n35 21\n");
    assert_eq!(read(&path).unwrap(), RECORDS);
    let Kept::Not { at, reason } = indexed(&path, Verify::Lengths).unwrap().kept else {
        panic!("it was overwritten")
    };
    assert_eq!(fs::read(&at).unwrap(), b"0 19\n19 16\n35 21\n");
    has(&reason, &["something else has this name"]);
    fs::remove_file(&at).unwrap();
    fs::create_dir(&at).unwrap();
    assert_eq!(read(&path).unwrap(), RECORDS);
    assert!(matches!(indexed(&path, Verify::Lengths).unwrap().kept, Kept::Not { .. }));
    assert_eq!(site.names(), ["a.tfrecord", "a.tfrecord.index"]);
}

#[test]
fn a_folder_that_cannot_be_written_needs_no_index() {
    let site = Site::new();
    let path = site.file("a.tfrecord", &written(&RECORDS));
    let mode = |mode| fs::set_permissions(site.path(""), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    let writable = fs::write(site.path("probe"), b"").is_ok();
    let (records, kept) = (read(&path), indexed(&path, Verify::Lengths).unwrap().kept);
    mode(0o755);
    assert_eq!(records.unwrap(), RECORDS);
    if writable {
        println!("skipped: this user may write to read-only directories");
        return;
    }
    assert!(matches!(kept, Kept::Not { .. }), "{kept:?}");
    assert_eq!(site.names(), ["a.tfrecord"]);
}

#[test]
fn several_threads_open_the_same_files_at_once() {
    let site = Site::new();
    for round in 0..20 {
        let path = site.file(&format!("{round}.tfrecord"), &written(&RECORDS));
        thread::scope(|scope| {
            let opened: Vec<_> = (0..4).map(|_| scope.spawn(|| read(&path).unwrap())).collect();
            opened
                .into_iter()
                .for_each(|records| assert_eq!(records.join().unwrap(), RECORDS));
        });
        assert!(Index::of(&RecordFile::open(&path).unwrap()).is_ok());
    }
    assert_eq!(site.names().len(), 40, "a file and an index each, and nothing else");
}
