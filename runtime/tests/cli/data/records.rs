//! TFRecords: indexed, checked, damaged.

use std::fs;

use super::super::program::has;
use super::super::site::Site;
use super::{example, fails, flip, found, write_records};

#[test]
fn records_are_indexed_and_then_checked_with_the_features_of_the_first() {
    let site = Site::new();
    fs::create_dir(site.path("set")).unwrap();
    for number in 0..2 {
        let records: Vec<_> = (0..3).map(|label| example(label + number)).collect();
        write_records(&site.path(&format!("set/train-0000{number}-of-00002")), &records);
    }
    has(
        &site.done("data index set/train-00000-of-00002 --verify"),
        &[
            "3 records in 2",
            "all of them read and whole; the index is set/train-00000-of-00002.index",
        ],
    );
    assert!(site.path("set/train-00000-of-00002.index").is_file());
    has(
        &site.done("data index set"),
        &["train-00000-of-00002: 3", "train-00001-of-00002.index"],
    );
    has(
        &site.done("data check set"),
        &[
            "set: TFRecords\n  samples      6\n",
            "files        2\n",
            "3 in the first record",
            "    image    1 byte string of 784 bytes\n    label    1 integer\n    weights  3 floats\n",
            "  train-00001-of-00002\n",
        ],
    );
    let contents = found(&site, "data check set", 0)["contents"].clone();
    assert_eq!(
        (&contents["files"], &contents["indexes"][1]["kept"]),
        (&2.into(), &true.into())
    );
    let label = serde_json::json!({ "name": "label", "kind": "ints", "values": 1, "bytes": 8 });
    assert_eq!(contents["features_of_first"][1], label);
    fs::remove_file(site.path("set/train-00001-of-00002")).unwrap();
    has(
        &fails(&site, "data check set")[0],
        &["expected all 2 files of the set `train-…-of-00002`", "not number 1"],
    );
}

#[test]
fn a_flipped_byte_of_a_record_is_found_and_with_all_every_one_that_is() {
    let site = Site::new();
    let records = vec![vec![b'x'; 100]; 5];
    let file = site.path("plain.tfrecord");
    write_records(&file, &records);
    has(
        &site.done("data check plain.tfrecord"),
        &["samples      5\n", "no tf.train.Example"],
    );
    // A frame has 116 bytes, the record after 12 of them.
    flip(&file, 116 + 20);
    flip(&file, 3 * 116 + 99);
    let damaged = [
        "plain.tfrecord, at byte 128: expected a record with the checksum",
        "plain.tfrecord, at byte 360: expected",
    ];
    let [out, _] = fails(&site, "data check plain.tfrecord");
    has(&out, &damaged[..1]);
    assert!(!out.contains(damaged[1]), "{out}");
    let [out, _] = fails(&site, "data check plain.tfrecord --all");
    has(&out, &damaged);
    has(&out, &["5, of which 3 were read and are whole"]);
    assert!(!out.contains("of up to"), "no file is whole: {out}");
    has(
        &fails(&site, "data index plain.tfrecord --verify")[1],
        &["not indexed: plain.tfrecord, at byte 128", "1 of 1 file"],
    );
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..500]).unwrap();
    has(
        &fails(&site, "data check plain.tfrecord")[0],
        &["plain.tfrecord, at byte 128"],
    );
    has(
        &fails(&site, "data index plain.tfrecord")[1],
        &["at byte 476", "cut short: fetch it anew"],
    );
}

#[test]
fn an_index_that_cannot_be_kept_is_said_to_be_so_and_records_are_known_by_their_bytes() {
    let site = Site::new();
    write_records(&site.path("records"), &[example(1)]);
    fs::write(site.path("records.index"), "something else").unwrap();
    let [out, err] = fails(&site, "data index records");
    has(
        &out,
        &[
            "1 record in",
            "the index cannot be kept in records.index: something else has this name",
        ],
    );
    has(&err, &["sardana data: 1 of 1 file could not be indexed"]);
    has(
        &site.done("data check records"),
        &["records: TFRecords", "cannot be kept in records.index"],
    );
    assert_eq!(fs::read(site.path("records.index")).unwrap(), b"something else");
}
