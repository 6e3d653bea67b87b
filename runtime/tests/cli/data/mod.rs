//! `sardana data` as a person meets it, on data that the formats' own writers or these tests have written.

mod formats;
mod records;

use std::fs;
use std::path::Path;

use sardana::data::DataFingerprint;
use sardana::data::formats::tfrecords::framing::Writer;
use sardana::data::formats::tfrecords::{Example, Feature};
use sardana::data::formats::{Part, mnist};

use super::picture::{gzip, png};
use super::program::{has, said};
use super::site::Site;

/// One part of an MNIST of 4 x 5 pixels.
fn write_mnist(folder: &Path, part: Part, labels: &[u8]) {
    let images: Vec<_> = labels.iter().map(|&label| vec![label; 20]).collect();
    mnist::write(folder, part, 4, 5, &images, labels).unwrap();
}

fn example(label: i64) -> Vec<u8> {
    let image = Feature::Bytes(vec![vec![7; 784]]);
    let example = Example::new().with("image", image).with("label", Feature::Ints(vec![label]));
    example.with("weights", Feature::Floats(vec![0.5; 3])).encode()
}

fn write_records(file: &Path, records: &[Vec<u8>]) {
    let mut writer = Writer::new(fs::File::create(file).unwrap());
    records.iter().for_each(|record| writer.write(record).unwrap());
}

/// A row of numbers as numpy saves them.
fn npy(descr: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let head = [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()];
    [&head.concat(), numbers].concat()
}

/// Changes one byte of a file.
fn flip(file: &Path, offset: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[offset] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// What a command prints, and why it fails.
fn fails(site: &Site, line: &str) -> [String; 2] {
    said(&mut site.command(line), 1)
}

/// The data set number `place` that a command finds in a single path.
fn found(site: &Site, line: &str, place: usize) -> serde_json::Value {
    let mut json = site.json(line);
    assert_eq!(json["well"], true, "{json}");
    json["paths"][0]["data_sets"][place].take()
}

/// Requires that the program's fingerprint is the one by which a worker is refused.
fn is_called(set: &serde_json::Value, print: &DataFingerprint) {
    let parts: Vec<_> = print
        .parts()
        .iter()
        .map(|part| (part.name.clone(), part.hash.to_string()))
        .collect();
    let told = set["fingerprint"]["parts"].as_array().unwrap().iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let told: Vec<_> = told.map(|part| (text(&part["name"]), text(&part["hash"]))).collect();
    assert_eq!((told, text(&set["fingerprint"]["hash"])), (parts, print.hash().to_string()));
}

#[test]
fn the_same_data_have_the_same_fingerprint_and_a_changed_label_another() {
    let site = Site::new();
    for name in ["one", "two", "packed", "other"] {
        write_mnist(&site.path(name), Part::Train, &[0, 1, 2]);
    }
    let images = site.path("packed/train-images-idx3-ubyte");
    fs::write(
        site.path("packed/train-images-idx3-ubyte.gz"),
        gzip(&fs::read(&images).unwrap()),
    )
    .unwrap();
    fs::remove_file(images).unwrap();
    flip(&site.path("other/train-labels-idx1-ubyte"), 8);
    let print = |name: &str| found(&site, &format!("data check {name}"), 0)["fingerprint"].clone();
    let one = print("one");
    assert_eq!(one, print("two"));
    assert_eq!(one, print("packed"), "packed or not, the data are the same");
    let other = print("other");
    assert_ne!(one["hash"], other["hash"]);
    assert_eq!(one["parts"][0], other["parts"][0], "the images are the same");
    assert_ne!(one["parts"][1], other["parts"][1]);
}

#[test]
fn several_formats_in_one_folder_and_several_paths_are_all_told() {
    let site = Site::new();
    write_mnist(&site.path("all"), Part::Train, &[1]);
    write_records(&site.path("all/a.tfrecord"), &[example(1)]);
    fs::write(site.path("all/b.csv"), "1,2\n").unwrap();
    fs::create_dir(site.path("all/plots")).unwrap();
    fs::write(site.path("all/plots/loss.png"), png(2, 2, 0)).unwrap();
    fs::create_dir(site.path("all/notes")).unwrap();
    let json = site.json("data check all all/b.csv");
    let formats = |path: usize| {
        let sets = json["paths"][path]["data_sets"].as_array().unwrap().iter();
        sets.map(|set| set["format"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(formats(0), ["mnist", "tfrecords", "csv"], "plots beside data are no data");
    assert_eq!(formats(1), ["csv"]);
}

#[test]
fn what_is_not_recognised_is_told_with_what_was_looked_for_and_what_is_there() {
    let site = Site::new();
    fs::create_dir_all(site.path("folder/train")).unwrap();
    (0..9).for_each(|number| fs::write(site.path(&format!("folder/note{number}.txt")), "words").unwrap());
    has(
        &fails(&site, "data check folder")[1],
        &[
            "sardana data: folder: no data of a known format: expected MNIST",
            ".safetensors",
            "found `train/`, `note0.txt`",
            "and 2 more",
        ],
    );
    write_mnist(&site.path("folder/train"), Part::Train, &[1]);
    has(
        &fails(&site, "data check folder")[1],
        &["perhaps folder/train was meant, which has MNIST"],
    );
    has(&fails(&site, "data check folder/note0.txt")[1], &["found `note0.txt`; give"]);
    has(&fails(&site, "data check /dev/null")[1], &["no data of a known format"]);
    has(
        &fails(&site, "data check nowhere")[1],
        &["nowhere: cannot look at it: No such file or directory", "give the path"],
    );
    let [out, _] = fails(&site, "data check nowhere folder --json");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["paths"][0]["refused"]["file"], "nowhere");
    assert_eq!(json["paths"][1]["not_recognised"]["within"][0]["format"], "mnist");
    has(
        &fails(&site, "data index nowhere")[1],
        &["not indexed: nowhere: cannot look at it"],
    );
}

#[test]
fn help_says_what_is_recognised_and_shows_examples() {
    let site = Site::new();
    for (command, words) in [
        ("check", ["PATH", "--all", "--json", "fingerprint"]),
        ("index", ["FILE", "--verify", "train.tfrecord.index", "no job waits"]),
    ] {
        let text = site.done(&format!("data {command} --help"));
        has(&text, &words);
        has(&text, &["Examples:", "Exit codes:", "--log-format"]);
        let [_, err] = said(&mut site.command(&format!("data {command}")), 2);
        has(&err, &["required"]);
    }
}
