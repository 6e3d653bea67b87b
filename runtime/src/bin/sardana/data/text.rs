//! What was found, in words.

use std::fmt::{Display, Write as _};

use indicatif::HumanBytes;
use sardana::data::DataFingerprint;
use sardana::data::formats::safetensors::Tensor;
use sardana::data::formats::tfrecords::Kept;
use sardana::operator::{columns, count, plain};

use super::survey::{Contents, DataSet, Extent, FeatureKind, FeatureOfFirst, Records, Survey, Table};

/// As many classes, columns, features or tensors are told; the rest is counted.
const MOST_LINES: usize = 20;

/// All data sets that were found.
pub(super) fn text(surveys: &[Survey]) -> String {
    let sets = surveys.iter().flat_map(Survey::sets).map(data_set);
    sets.collect::<Vec<_>>().join("\n")
}

fn data_set(set: &DataSet) -> String {
    let mut text = format!("{}: {}\n", plain(&set.at.display().to_string()), set.format);
    if let Some(samples) = samples(set) {
        line(&mut text, "samples", samples);
    }
    contents(&mut text, &set.contents);
    if let Some(bytes) = set.bytes {
        line(&mut text, "size", format!("{} ({bytes} bytes)", HumanBytes(bytes)));
    }
    if let Some(labels) = &set.labels {
        line(&mut text, "labels", classes(labels.len()));
        let rows = labels
            .iter()
            .map(|(label, samples)| [format!("    {}", plain(label)), samples.to_string()]);
        some(&mut text, rows);
    }
    if let Some(print) = &set.fingerprint {
        fingerprint(&mut text, print);
    }
    match &set.wrong[..] {
        [] => line(&mut text, "wrong", "nothing: all of it was read"),
        wrong => wrong
            .iter()
            .for_each(|error| line(&mut text, "wrong", plain(&error.to_string()))),
    }
    text
}

/// How many samples there are, and how many were read where those are not all.
fn samples(set: &DataSet) -> Option<String> {
    let samples = set.samples?;
    if samples == set.read {
        return Some(samples.to_string());
    }
    Some(format!("{samples}, of which {} were read and are whole", set.read))
}

fn contents(text: &mut String, contents: &Contents) {
    match contents {
        Contents::Unknown => {}
        Contents::Images(extent) => line(text, "images", images(extent)),
        Contents::Table(of) => table(text, of),
        Contents::Array { dtype, shape } => line(text, "array", format!("{} of shape {shape:?}", plain(dtype))),
        Contents::Tensors(tensors) => {
            line(
                text,
                "tensors",
                format!("{}; a program chooses an input and a target", tensors.len()),
            );
            some(text, tensors.iter().map(tensor));
        }
        Contents::Records(of) => records(text, of),
    }
}

fn images(extent: &Extent) -> String {
    let Extent {
        channels,
        smallest,
        largest,
    } = extent;
    let size = |(height, width)| format!("{height} x {width}");
    let channels = count(*channels as u64, "channel");
    if smallest == largest {
        return format!("height x width {}, {channels}", size(*smallest));
    }
    format!("height x width {} to {}, {channels}", size(*smallest), size(*largest))
}

fn table(text: &mut String, table: &Table) {
    let header = if table.names.is_some() { "a header" } else { "no header" };
    line(
        text,
        "columns",
        format!("{}, cut at {:?}; {header}", table.columns, table.delimiter),
    );
    let used = |column| match table.target {
        Some(target) if target == column => "target",
        Some(_) if table.inputs.contains(&column) => "input",
        Some(_) => "no number, passed over",
        None => "",
    };
    let name = |column: usize| {
        let name = table.names.as_ref().and_then(|names| names.get(column));
        name.map_or_else(String::new, |name| plain(name))
    };
    some(
        text,
        (0..table.columns).map(|column| [format!("    {column}"), name(column), used(column).to_owned()]),
    );
}

fn tensor(tensor: &Tensor) -> [String; 3] {
    let Tensor { name, dtype, shape } = tensor;
    [format!("    {}", plain(name)), plain(dtype), format!("{shape:?}")]
}

fn records(text: &mut String, records: &Records) {
    line(text, "files", records.files);
    if let Some(longest) = records.longest_bytes {
        line(text, "records", format!("of up to {}", HumanBytes(longest)));
    }
    for index in &records.indexes {
        if let Kept::Not { at, reason } = index {
            let not = format!("cannot be kept in {}: {reason}; it is made again each time", at.display());
            line(text, "index", plain(&not));
        }
    }
    match &records.features {
        None => line(text, "features", "none: the first record is no tf.train.Example"),
        Some(features) => {
            line(text, "features", format!("{} in the first record", features.len()));
            some(text, features.iter().map(feature));
        }
    }
}

fn feature(feature: &FeatureOfFirst) -> [String; 2] {
    let FeatureOfFirst {
        name,
        kind,
        values,
        bytes,
    } = feature;
    let values = *values as u64;
    let values = match kind {
        FeatureKind::Bytes => format!("{} of {}", count(values, "byte string"), count(*bytes as u64, "byte")),
        FeatureKind::Floats => count(values, "float"),
        FeatureKind::Ints => count(values, "integer"),
        FeatureKind::Nothing => "nothing".to_owned(),
    };
    [format!("    {}", plain(name)), values]
}

fn classes(classes: usize) -> String {
    let plural = if classes == 1 { "class" } else { "classes" };
    format!("{classes} {plural}, with so many samples")
}

/// All of its parts: there are never many.
fn fingerprint(text: &mut String, print: &DataFingerprint) {
    line(text, "fingerprint", print.hash());
    let parts = print.parts().iter();
    let rows: Vec<_> = parts.map(|part| [format!("    {}", part.hash), plain(&part.name)]).collect();
    text.push_str(&columns(&rows));
}

fn line(text: &mut String, name: &str, value: impl Display) {
    // Writing to a text cannot fail.
    let _ = writeln!(text, "  {name:<12} {value}");
}

/// The first few rows, and how many more there are.
fn some<const N: usize>(text: &mut String, mut rows: impl Iterator<Item = [String; N]>) {
    let told: Vec<_> = rows.by_ref().take(MOST_LINES).collect();
    text.push_str(&columns(&told));
    match rows.count() {
        0 => {}
        more => {
            let _ = writeln!(text, "    and {more} more");
        }
    }
}
