//! What was found, in JSON, for programs: the same as in words, and nothing of it cut.

use std::path::Path;

use sardana::data::formats::tfrecords::Kept;
use sardana::data::{DataError, DataFingerprint};
use serde_json::{Value, json};

use super::recognise::{Candidate, Nothing};
use super::survey::{Contents, DataSet, Extent, FeatureOfFirst, Found, Records, Survey, Table};

/// One object for all paths.
pub(super) fn json(surveys: &[Survey]) -> Value {
    json!({
        "well": surveys.iter().all(Survey::is_well),
        "paths": surveys.iter().map(survey).collect::<Vec<_>>(),
    })
}

fn survey(survey: &Survey) -> Value {
    let (nothing, refused) = match &survey.found {
        Found::Sets(_) => (None, None),
        Found::Nothing(of) => (Some(nothing(of)), None),
        Found::Refused(error) => (None, Some(wrong(error))),
    };
    json!({
        "path": path(&survey.path),
        "well": survey.is_well(),
        "data_sets": survey.sets().iter().map(data_set).collect::<Vec<_>>(),
        "not_recognised": nothing,
        "refused": refused,
    })
}

fn nothing(nothing: &Nothing) -> Value {
    let within = |data: &Candidate| json!({ "path": path(&data.at), "format": data.format.word() });
    json!({
        "message": nothing.to_string(),
        "found": nothing.names,
        "more": nothing.more,
        "within": nothing.within.iter().map(within).collect::<Vec<_>>(),
    })
}

fn data_set(set: &DataSet) -> Value {
    let label = |(label, samples): &(String, u64)| json!({ "label": label, "samples": samples });
    json!({
        "path": path(&set.at),
        "format": set.format.word(),
        "part": set.format.part(),
        "well": set.is_well(),
        "samples": set.samples,
        "read": set.read,
        "bytes": set.bytes,
        "contents": contents(&set.contents),
        "labels": set.labels.as_ref().map(|labels| labels.iter().map(label).collect::<Vec<_>>()),
        "fingerprint": set.fingerprint.as_ref().map(fingerprint),
        "wrong": set.wrong.iter().map(wrong).collect::<Vec<_>>(),
    })
}

fn contents(contents: &Contents) -> Value {
    match contents {
        Contents::Unknown => Value::Null,
        Contents::Images(extent) => images(extent),
        Contents::Table(of) => table(of),
        Contents::Array { dtype, shape } => json!({ "dtype": dtype, "shape": shape }),
        Contents::Tensors(tensors) => {
            let tensors = tensors.iter();
            let tensors = tensors.map(|tensor| json!({ "name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape }));
            json!({ "tensors": tensors.collect::<Vec<_>>() })
        }
        Contents::Records(of) => records(of),
    }
}

fn images(extent: &Extent) -> Value {
    let size = |(height, width)| json!({ "height": height, "width": width });
    json!({
        "channels": extent.channels,
        "smallest": size(extent.smallest),
        "largest": size(extent.largest),
    })
}

fn table(table: &Table) -> Value {
    json!({
        "columns": table.columns,
        "names": table.names,
        "delimiter": table.delimiter,
        "inputs": table.inputs,
        "target": table.target,
    })
}

fn records(records: &Records) -> Value {
    let feature = |feature: &FeatureOfFirst| {
        json!({
            "name": feature.name,
            "kind": feature.kind.to_string(),
            "values": feature.values,
            "bytes": feature.bytes,
        })
    };
    let index = |kept: &Kept| match kept {
        Kept::Beside(at) => json!({ "path": path(at), "kept": true }),
        Kept::Not { at, reason } => json!({ "path": path(at), "kept": false, "reason": reason }),
    };
    let features = records.features.as_ref();
    json!({
        "files": records.files,
        "longest_record_bytes": records.longest_bytes,
        "indexes": records.indexes.iter().map(index).collect::<Vec<_>>(),
        "features_of_first": features.map(|features| features.iter().map(feature).collect::<Vec<_>>()),
    })
}

fn fingerprint(print: &DataFingerprint) -> Value {
    let parts = print.parts().iter();
    let parts = parts.map(|part| json!({ "name": part.name, "hash": part.hash.to_string() }));
    json!({
        "hash": print.hash().to_string(),
        "parts": parts.collect::<Vec<_>>(),
    })
}

/// An error by its parts, as far as it has them.
fn wrong(error: &DataError) -> Value {
    let (file, byte, expected, found) = match error {
        DataError::Io { file, .. } => (Some(file), None, None, None),
        DataError::Folder { folder, expected, found } => (Some(folder), None, Some(expected), Some(found)),
        DataError::Malformed {
            file,
            offset,
            expected,
            found,
        } => (Some(file), Some(offset), Some(expected), Some(found)),
        DataError::Unfit { expected, found } => (None, None, Some(expected), Some(found)),
        DataError::NoSample { .. } | DataError::Own(_) => (None, None, None, None),
    };
    json!({
        "message": error.to_string(),
        "file": file.map(|file| path(file)),
        "byte": byte,
        "expected": expected,
        "found": found,
    })
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
