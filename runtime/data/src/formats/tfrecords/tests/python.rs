//! Files are exchanged with the package `tfrecord` for Python, or with TensorFlow, where one of them is installed.

use std::process::Command;

use super::super::{Example, Feature, TfRecords};
use super::{Site, has, written};
use crate::{Dataset, SampleRandom};

/// Reads `a.tfrecord`, says what is in it, and writes `b.tfrecord`. The package has no check of checksums: TensorFlow has.
const PACKAGE: &str = r#"
from tfrecord.reader import tfrecord_loader
from tfrecord.writer import TFRecordWriter
for row in tfrecord_loader("a.tfrecord", None, None):
    print(sorted((name, bytes(value) if name == "image" else value.tolist()) for name, value in row.items()))
writer = TFRecordWriter("b.tfrecord")
for number in range(300):
    image = bytes([number % 256]) * number
    writer.write({"image": (image, "byte"), "x": ([number / 4, -1.5], "float"), "label": ([number, -number], "int")})
writer.close()
"#;

/// The same.
const TENSORFLOW: &str = r#"
import tensorflow as tf
train = tf.train
for record in tf.data.TFRecordDataset("a.tfrecord"):
    row = train.Example.FromString(record.numpy()).features.feature
    label, x = list(row["label"].int64_list.value), list(row["x"].float_list.value)
    print([("image", row["image"].bytes_list.value[0]), ("label", label), ("x", x)])
with tf.io.TFRecordWriter("b.tfrecord") as writer:
    for number in range(300):
        image = train.Feature(bytes_list=train.BytesList(value=[bytes([number % 256]) * number]))
        x = train.Feature(float_list=train.FloatList(value=[number / 4, -1.5]))
        label = train.Feature(int64_list=train.Int64List(value=[number, -number]))
        features = train.Features(feature={"image": image, "x": x, "label": label})
        writer.write(train.Example(features=features).SerializeToString())
"#;

fn imports(modules: &str) -> bool {
    let probe = Command::new("python3").args(["-c", &format!("import {modules}")]).output();
    probe.is_ok_and(|probe| probe.status.success())
}

#[test]
fn python_reads_what_is_written_and_what_it_writes_is_read() {
    let script = if imports("tensorflow") {
        TENSORFLOW
    } else if imports("tfrecord.reader, tfrecord.writer") {
        PACKAGE
    } else {
        println!("skipped: python3 with the package tfrecord or tensorflow is not installed");
        return;
    };
    let site = Site::new();
    let example = |image: &[u8], x: &[f32], label: &[i64]| {
        let example = Example::new().with("image", Feature::Bytes(vec![image.to_vec()]));
        example
            .with("x", Feature::Floats(x.to_vec()))
            .with("label", Feature::Ints(label.to_vec()))
    };
    let long = vec![b'l'; 70_000];
    let examples = [
        example(b"png", &[1.5, -0.25], &[7, -1]),
        example(&long, &[3.0], &[i64::MIN, i64::MAX]),
    ];
    let encoded = examples.each_ref().map(Example::encode);
    site.file("a.tfrecord", &written(&encoded.each_ref().map(|encoded| &encoded[..])));
    let output = Command::new("python3")
        .args(["-c", script])
        .current_dir(site.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = "[('image', b'png'), ('label', [7, -1]), ('x', [1.5, -0.25])]";
    let second = "lll'), ('label', [-9223372036854775808, 9223372036854775807]), ('x', [3.0])]";
    has(&said, &[first, second]);

    let data = TfRecords::open([site.path("b.tfrecord")]).unwrap().examples();
    assert_eq!(data.len(), 300);
    for number in 0..300 {
        let found = data.get(number, &SampleRandom::held_out(0, number)).unwrap();
        let image = vec![number as u8; number as usize];
        assert_eq!(
            found,
            example(&image, &[number as f32 / 4.0, -1.5], &[number as i64, -(number as i64)])
        );
    }
}
