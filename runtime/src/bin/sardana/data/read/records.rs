//! TFRecords: every record by its checksum, and what the first of them is.

use std::path::{Path, PathBuf};

use sardana::data::formats::tfrecords::{self, Example, Feature, TfRecords, Verify, index_file};
use sardana::data::{DataError, Dataset, SampleRandom};

use super::super::survey::{Contents, DataSet, FeatureKind, FeatureOfFirst, Records};
use super::{Reading, bytes};

/// The files of a folder, or one.
pub(super) fn records(set: &mut DataSet, reading: &mut Reading<'_>) -> Result<(), DataError> {
    let files = if set.at.is_dir() {
        tfrecords::files(&set.at, None)?
    } else {
        vec![set.at.clone()]
    };
    let total = bytes(&files)?;
    set.bytes = Some(total);
    let (mut indexes, mut longest_bytes, mut before) = (Vec::new(), None, 0);
    for file in &files {
        let made = index_file(file, Verify::Payloads, &mut |done| reading.tell(before + done, total));
        match made {
            Ok(summary) => {
                before += summary.bytes;
                longest_bytes = longest_bytes.max(Some(summary.longest_record_bytes));
                set.read += summary.records;
                indexes.push(summary.kept);
            }
            Err(first) => {
                set.wrong.push(first);
                go_on(file, set, reading);
            }
        }
        if set.wrong.len() >= reading.most_wrong {
            break;
        }
    }
    set.contents = Contents::Records(Records {
        files: files.len(),
        longest_bytes,
        indexes,
        features: None,
    });
    name(files, set)
}

/// Reads on in a file one record of which is wrong, as far as that was asked for: it is the last that `set` knows of.
///
/// A record that is damaged hides no other; a length that is damaged hides all records after it.
fn go_on(file: &Path, set: &mut DataSet, reading: &Reading<'_>) {
    let room = reading.most_wrong.saturating_sub(set.wrong.len());
    let Ok(data) = TfRecords::open([file.to_owned()]) else {
        return;
    };
    if room == 0 {
        return;
    }
    let random = SampleRandom::held_out(0, 0);
    let (mut read, mut wrong) = (0, Vec::new());
    for index in 0..data.len() {
        match data.get(index, &random) {
            Ok(_) => read += 1,
            Err(error) => wrong.push(error),
        }
        if wrong.len() > room {
            break;
        }
    }
    set.read += read;
    if !wrong.is_empty() {
        set.wrong.pop();
        set.wrong.extend(wrong);
    }
}

/// What a worker would say of the files, and what the first record is.
fn name(files: Vec<PathBuf>, set: &mut DataSet) -> Result<(), DataError> {
    let data = match TfRecords::open(files) {
        Ok(data) => data,
        // Then that was said before, of the same file.
        Err(_) if !set.is_well() => return Ok(()),
        Err(error) => return Err(error),
    };
    set.samples = Some(data.len());
    set.fingerprint = Some(data.fingerprint()?);
    let first = data.get(0, &SampleRandom::held_out(0, 0)).ok();
    let example = first.and_then(|record| Example::decode(&record).ok());
    let features: Vec<_> = example.iter().flat_map(Example::features).map(feature).collect();
    if let Contents::Records(records) = &mut set.contents {
        // Many a byte string can be read as an example without features.
        records.features = Some(features).filter(|features| !features.is_empty());
    }
    Ok(())
}

fn feature((name, feature): (&str, &Feature)) -> FeatureOfFirst {
    let (kind, values, bytes) = match feature {
        Feature::Bytes(strings) => (FeatureKind::Bytes, strings.len(), strings.iter().map(Vec::len).sum()),
        Feature::Floats(floats) => (FeatureKind::Floats, floats.len(), size_of_val(&floats[..])),
        Feature::Ints(ints) => (FeatureKind::Ints, ints.len(), size_of_val(&ints[..])),
        Feature::Nothing => (FeatureKind::Nothing, 0, 0),
    };
    FeatureOfFirst {
        name: name.to_owned(),
        kind,
        values,
        bytes,
    }
}
