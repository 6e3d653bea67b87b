//! TFRecord files: their frames, the index that is made of them or found beside them, and the examples that records are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sardana_data::formats::tfrecords::framing::Writer;
use sardana_data::formats::tfrecords::{Example, TfRecords, Verify, index_file};
use sardana_data::{DataError, Dataset, SampleRandom};
use sardana_storage::fuzzing::kind;

use crate::data::{bear, in_empty_folder, put, said};

fn framed<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for record in records {
        writer.write(record).expect("memory takes it");
    }
    writer.into_inner()
}

/// The index beside a file.
fn index_of(data: &Path) -> PathBuf {
    data.with_extension("tfrecord.index")
}

/// A file of records: as it is, or records of eight bytes in their frames with something after them.
pub(crate) fn records(bytes: &[u8]) {
    const RECORD_BYTES: usize = 8;
    let file = match kind(bytes, 2) {
        (0, rest) => rest.to_vec(),
        (_, rest) => {
            let (records, after) = rest.split_at(rest.len() / 2);
            [&framed(records.chunks(RECORD_BYTES)), after].concat()
        }
    };
    in_empty_folder(|folder| {
        let path = folder.join("data.tfrecord");
        put(&path, &file);
        let open = || TfRecords::open([path.clone()]);
        // The second time by the index that was kept the first time.
        let opened = bear(open);
        assert_eq!(opened.is_some(), index_of(&path).exists());
        assert_eq!(bear(|| Ok(open()?.examples())), opened);
        let verified = [Verify::Lengths, Verify::Payloads].map(|verify| index_file(&path, verify, &mut |_| {}));
        let [lengths, payloads] = verified.map(|summary| summary.map_err(|error| said(&error)));
        assert_eq!(lengths.ok().map(|summary| summary.records), opened);
        let Some(count) = opened else { return };
        let data = open().expect("it has opened before");
        let whole = (0..count).all(|index| data.get(index, &SampleRandom::held_out(0, index)).is_ok());
        assert_eq!(whole, payloads.is_ok(), "{payloads:?}");
    });
}

/// What lies in the place of an index beside a file that is whole: as it is, when it changes nothing, or with the checksum that belongs to
/// it, when it is believed.
pub(crate) fn record_indexes(bytes: &[u8]) {
    const RECORDS: [&[u8]; 3] = [b"one", b"", b"the third"];
    let (kind, rest) = kind(bytes, 2);
    in_empty_folder(|folder| {
        let path = folder.join("data.tfrecord");
        put(&path, &framed(RECORDS));
        let file = File::options().write(true).open(&path).expect("it was written");
        // An index has the time of its file.
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_modified(time).expect("it is ours");
        let open = || TfRecords::open([path.clone()]);
        let expected = open().and_then(|data| data.fingerprint()).expect("it is whole");
        let place = || put_index(&index_of(&path), rest, kind);
        place();
        let data = open().expect("an index is a saving and nothing else");
        if kind == 0 {
            assert_eq!(data.fingerprint().expect("it is whole"), expected);
            for (record, index) in RECORDS.into_iter().zip(0..) {
                let found = data.get(index, &SampleRandom::held_out(0, index)).expect("it is whole");
                assert_eq!(found, record);
            }
        }
        place();
        bear(open).expect("an index is a saving and nothing else");
        index_file(&path, Verify::Payloads, &mut |_| {}).expect("it is whole");
    });
}

fn put_index(path: &Path, bytes: &[u8], kind: u8) {
    match kind {
        0 => put(path, bytes),
        _ => put(path, &[bytes, blake3::hash(bytes).as_bytes()].concat()),
    }
}

/// A `tf.train.Example`; what is one is the same when it is written and read again.
pub(crate) fn examples(bytes: &[u8]) {
    let example = Example::decode(bytes);
    match &example {
        Ok(example) => {
            let written = example.encode();
            let again = Example::decode(&written).expect("what was written can be read");
            // By their bytes: a float may be none that is the same as itself.
            assert_eq!(again.encode(), written);
            let names = example.features().map(|(name, _)| name);
            names.chain(["label"]).for_each(|name| ask(example, name));
        }
        Err(error) => unfit(error),
    }
    in_empty_folder(|folder| {
        let path = folder.join("data.tfrecord");
        put(&path, &framed([bytes]));
        let data = TfRecords::open([path]).expect("its frame is whole").examples();
        let found = data.get(0, &SampleRandom::held_out(0, 0));
        assert_eq!(found.is_ok(), example.is_ok());
        found.map_err(|error| said(&error)).ok();
    });
}

/// Asks for the feature `name` in each way.
fn ask(example: &Example, name: &str) {
    let refusals = [
        example.bytes(name).err(),
        example.byte_strings(name).err(),
        example.floats(name).err(),
        example.ints(name).err(),
        example.int(name).err(),
    ];
    refusals.iter().flatten().for_each(unfit);
}

/// What is said of bytes, wherever they were kept.
fn unfit(error: &DataError) {
    assert!(matches!(error, DataError::Unfit { .. }), "{error:?}");
    assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
}
