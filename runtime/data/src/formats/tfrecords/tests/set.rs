//! Files as one data set.

use std::path::Path;

use super::super::{Example, Feature, MAX_OPEN_FILES, TfRecords};
use super::{Site, frame, has, written};
use crate::{DataError, DataFingerprint, Dataset, SampleRandom};

fn get<D: Dataset>(data: &D, index: u64) -> Result<D::Item, DataError> {
    data.get(index, &SampleRandom::held_out(0, index))
}

fn all(data: &TfRecords) -> Vec<Vec<u8>> {
    (0..data.len()).map(|index| get(data, index).unwrap()).collect()
}

/// The fingerprint of the data in `path`, if all of them can be read.
fn whole(path: &Path) -> Result<DataFingerprint, DataError> {
    let data = TfRecords::open([path.to_owned()])?;
    (0..data.len()).try_for_each(|index| get(&data, index).map(drop))?;
    data.fingerprint()
}

#[test]
fn records_are_numbered_through_all_files() {
    let site = Site::new();
    let files = [
        site.file("c.tfrecord", &written(&[b"1", b"2"])),
        site.file("b.tfrecord", b""),
        site.file("a.tfrecord", &written(&[b"3"])),
        site.file("d.tfrecord", b""),
    ];
    let data = TfRecords::open(files).unwrap();
    assert_eq!(all(&data), [b"1", b"2", b"3"]);
    for index in [3, u64::MAX] {
        has(
            &get(&data, index).unwrap_err(),
            &["a sample below 3", &format!("found {index}")],
        );
    }
    let names: Vec<_> = data
        .fingerprint()
        .unwrap()
        .into_parts()
        .into_iter()
        .map(|part| part.name)
        .collect();
    assert_eq!(names, ["c.tfrecord", "b.tfrecord", "a.tfrecord", "d.tfrecord"]);
    has(&TfRecords::open([]).unwrap_err(), &["at least one TFRecord file"]);
    let none = TfRecords::open([site.path("b.tfrecord")]).unwrap();
    assert!(none.is_empty() && get(&none, 0).is_err());
}

#[test]
fn a_folder_is_read_in_the_order_of_names() {
    let site = Site::new();
    for name in [
        "b.tfrecord",
        "a.tfrecords",
        "B.tfrecord",
        "t-00001-of-00002",
        "t-00000-of-00002",
        "notes.txt",
        ".c.tfrecord",
    ] {
        site.file(name, &written(&[name.as_bytes()]));
    }
    // The second time the indexes are there too.
    for _ in 0..2 {
        let data = TfRecords::open_folder(site.path(""), None).unwrap();
        let expected = [
            "B.tfrecord",
            "a.tfrecords",
            "b.tfrecord",
            "t-00000-of-00002",
            "t-00001-of-00002",
        ];
        assert_eq!(all(&data), expected.map(str::as_bytes));
        let data = TfRecords::open_folder(site.path(""), Some("-of-00002")).unwrap();
        assert_eq!(data.len(), 2);
    }
    assert_eq!(
        all(&TfRecords::open_folder(site.path(""), Some(".txt")).unwrap()),
        [b"notes.txt"]
    );
    let error = TfRecords::open_folder(site.path(""), Some(".rec")).unwrap_err();
    has(&error, &["files whose names end with `.rec`", "others and none of these"]);
    has(
        &TfRecords::open_folder(site.path("none"), None).unwrap_err(),
        &["none", "cannot list it"],
    );
    site.file("z.tfrecord.gz", b"");
    has(
        &TfRecords::open_folder(site.path(""), None).unwrap_err(),
        &["z.tfrecord.gz", "packed by gzip"],
    );
}

#[test]
fn a_set_of_numbered_files_must_be_whole() {
    let site = Site::new();
    for number in [0, 1, 3] {
        site.file(&format!("train.tfrecord-{number:05}-of-00004"), b"");
    }
    let error = TfRecords::open_folder(site.path(""), None).unwrap_err();
    has(
        &error,
        &[
            "all 4 files of the set `train.tfrecord-…-of-00004`",
            "found 3 of them, and not number 2",
        ],
    );
    site.file("train.tfrecord-00002-of-00004", b"");
    assert!(TfRecords::open_folder(site.path(""), None).unwrap().is_empty());
    site.file("test-0-of-2.tfrecord", b"");
    has(
        &TfRecords::open_folder(site.path(""), None).unwrap_err(),
        &["all 2 files of the set `test-…-of-2`", "not number 1"],
    );
}

/// Cut off anywhere, or with any bit changed, data are refused or are other data. Those that a cut leaves whole are fewer.
#[test]
fn damage_anywhere_is_an_error_or_other_data() {
    let bytes = [frame(3, b"abc"), frame(0, b""), frame(2, b"de")].concat();
    let site = Site::new();
    let path = site.file("a.tfrecord", &bytes);
    let undamaged = whole(&path).unwrap();
    for cut in 0..bytes.len() {
        site.file("a.tfrecord", &bytes[..cut]);
        match whole(&path) {
            Ok(fingerprint) => {
                assert!([0, 19, 35].contains(&cut), "cut at {cut}");
                assert_ne!(fingerprint, undamaged, "cut at {cut}");
            }
            Err(error) => has(&error, &["a.tfrecord, at byte", "cut short"]),
        }
    }
    for bit in 0..8 * bytes.len() {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        site.file("a.tfrecord", &damaged);
        // Written within the same tick of the disk's clock, it might pass for the one before.
        std::fs::remove_file(site.path("a.tfrecord.index")).ok();
        has(&whole(&path).unwrap_err(), &["a.tfrecord, at byte", "expected", "found"]);
    }
    site.file("a.tfrecord", &bytes);
    assert_eq!(whole(&path).unwrap(), undamaged);
}

#[test]
fn a_fingerprint_tells_other_records_and_not_other_folders() {
    let (here, there) = (Site::new(), Site::new());
    let print = |site: &Site, records: &[&[u8]]| whole(&site.file("a.tfrecord", &written(records))).unwrap();
    let one = print(&here, &[b"one", b"two"]);
    assert_eq!(one, print(&there, &[b"one", b"two"]));
    for others in [
        &[&b"one"[..], b"twp"][..],
        &[b"two", b"one"],
        &[b"one"],
        &[b"onetwo"],
        &[b"one", b"two", b""],
    ] {
        let elsewhere = Site::new();
        assert_ne!(print(&elsewhere, others), one, "{others:?}");
    }
}

#[test]
fn sets_with_more_files_than_stay_open_are_read_all_the_same() {
    let site = Site::new();
    let name = |number: usize| format!("t-{number:05}-of-{:05}", MAX_OPEN_FILES + 3);
    for number in 0..MAX_OPEN_FILES + 3 {
        site.file(&name(number), &written(&[name(number).as_bytes()]));
    }
    let data = TfRecords::open_folder(site.path(""), None).unwrap();
    assert_eq!(data.files.iter().filter(|file| file.open.is_some()).count(), MAX_OPEN_FILES);
    all(&data)
        .iter()
        .enumerate()
        .for_each(|(number, record)| assert_eq!(*record, name(number).as_bytes()));
    // One that was exchanged since would give other samples than its index was made of.
    site.file(&name(MAX_OPEN_FILES + 1), &written(&[b"another"]));
    let error = get(&data, MAX_OPEN_FILES as u64 + 1).unwrap_err();
    has(
        &error,
        &[
            "the file of 32 bytes that was there at first",
            "one of 23 bytes that was written since",
        ],
    );
}

#[test]
fn examples_are_read_and_what_is_none_is_told_with_its_place() {
    let site = Site::new();
    let example = Example::new().with("label", Feature::Ints(vec![7]));
    let path = site.file("a.tfrecord", &written(&[&example.encode(), b"text"]));
    let records = TfRecords::open([path.clone()]).unwrap();
    let print = records.fingerprint().unwrap();
    let data = records.examples();
    assert_eq!((data.len(), data.fingerprint().unwrap()), (2, print));
    assert_eq!(get(&data, 0).unwrap(), example);
    let place = format!("a.tfrecord, at byte {}", 16 + example.encode().len() + 12);
    has(&get(&data, 1).unwrap_err(), &[&place, "a record that is a tf.train.Example"]);
    has(&get(&data, 2).unwrap_err(), &["a sample below 2"]);
}
