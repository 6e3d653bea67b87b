//! What is said of each format, and of what is damaged in it.

use std::fs;

use sardana::data::Dataset;
use sardana::data::formats::csv::{Csv, CsvOptions};
use sardana::data::formats::npy::Npy;
use sardana::data::formats::{Part, cifar10, image_folder::ImageFolder, mnist};

use super::super::picture::png;
use super::super::program::has;
use super::super::site::Site;
use super::{fails, flip, found, is_called, npy, write_mnist};

#[test]
fn mnist_is_told_part_by_part_with_sizes_labels_and_the_fingerprint_of_a_worker() {
    let site = Site::new();
    let folder = site.path("digits");
    write_mnist(&folder, Part::Train, &[7, 1, 7]);
    write_mnist(&folder, Part::Test, &[2, 3]);
    let print = mnist::Mnist::open(&folder, Part::Train).unwrap().fingerprint().unwrap();
    let text = site.done("data check digits");
    has(
        &text,
        &[
            "digits: MNIST (idx files), what to train on\n  samples      3\n",
            "what to test on\n  samples      2\n",
            "height x width 4 x 5, 1 channel",
            "87 bytes",
            "2 classes, with so many samples\n    1  1\n    7  2\n",
            &format!("fingerprint  {}", print.hash()),
            &format!("{}  train-images-idx3-ubyte", print.parts()[0].hash),
            "wrong        nothing: all of it was read",
        ],
    );
    let set = found(&site, "data check digits", 0);
    is_called(&set, &print);
    assert_eq!([&set["format"], &set["part"]], ["mnist", "train"]);
    assert_eq!([&set["samples"], &set["read"], &set["bytes"]], [3, 3, 87]);
    assert_eq!(set["contents"]["largest"]["width"], 5);
    assert_eq!(set["labels"][1], serde_json::json!({ "label": "7", "samples": 2 }));
    // One of its files stands for the part.
    has(
        &site.done("data check digits/t10k-labels-idx1-ubyte"),
        &["digits: MNIST", "to test on"],
    );
}

#[test]
fn a_file_that_is_cut_or_missing_is_named_and_the_other_part_is_read_all_the_same() {
    let site = Site::new();
    write_mnist(&site.path("digits"), Part::Train, &[0, 1, 2]);
    write_mnist(&site.path("digits"), Part::Test, &[3]);
    let images = site.path("digits/train-images-idx3-ubyte");
    let bytes = fs::read(&images).unwrap();
    fs::write(&images, &bytes[..50]).unwrap();
    let [out, err] = fails(&site, "data check digits");
    has(
        &out,
        &[
            "digits/train-images-idx3-ubyte, at byte 4: expected sizes that make 34 values",
            "what to test on\n  samples      1\n",
        ],
    );
    has(&err, &["sardana data: 1 of 2 data sets are not well; fetch"]);
    fs::remove_file(images).unwrap();
    has(
        &fails(&site, "data check digits")[0],
        &["expected `train-images-idx3-ubyte` or"],
    );
}

#[test]
fn a_flipped_byte_of_cifar10_is_found_with_its_file_and_its_place() {
    let site = Site::new();
    let inner = site.path("data/cifar-10-batches-bin");
    fs::create_dir_all(&inner).unwrap();
    let images = vec![vec![9; 3_072]; 3];
    cifar10::write_batch(&inner.join(cifar10::TEST_FILE), &images, &[4, 5, 4]).unwrap();
    has(
        &site.done("data check data"),
        &[
            "CIFAR-10 (binary version), what to test on",
            "32 x 32, 3 channels",
            "    4  2\n    5  1\n",
        ],
    );
    flip(&inner.join(cifar10::TEST_FILE), 3_073);
    let [out, _] = fails(&site, "data check data");
    has(
        &out,
        &["cifar-10-batches-bin/test_batch.bin, at byte 3073: expected a label below 10, found 21"],
    );
    let [out, _] = fails(&site, "data check data --json");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let wrong = &json["paths"][0]["data_sets"][0]["wrong"][0];
    assert_eq!((&wrong["byte"], &wrong["found"]), (&3_073.into(), &"21".into()), "{json}");
    assert_eq!(
        (&json["well"], &json["paths"][0]["data_sets"][0]["well"]),
        (&false.into(), &false.into())
    );
}

#[test]
fn pictures_are_told_by_size_and_class_and_those_that_cannot_be_decoded_by_name() {
    let site = Site::new();
    for class in 0..22 {
        fs::create_dir_all(site.path(&format!("pictures/class{class:02}"))).unwrap();
        fs::write(site.path(&format!("pictures/class{class:02}/a.png")), png(2 + class, 3, 9)).unwrap();
    }
    let set = found(&site, "data check pictures", 0);
    is_called(
        &set,
        &ImageFolder::open(&site.path("pictures")).unwrap().fingerprint().unwrap(),
    );
    assert_eq!(set["labels"].as_array().unwrap().len(), 22, "programs are told of all");
    has(
        &site.done("data check pictures"),
        &[
            "pictures in a folder for each class\n  samples      22\n",
            "height x width 2 x 3 to 23 x 3, 3 channels",
            "    class00  1\n",
            "    class19  1\n    and 2 more\n",
        ],
    );
    for class in ["class01", "class04"] {
        fs::write(site.path(&format!("pictures/{class}/b.png")), "no picture").unwrap();
    }
    let [out, _] = fails(&site, "data check pictures");
    has(
        &out,
        &[
            "pictures/class01/b.png, at byte 0: expected the first bytes of a JPEG or PNG",
            "24, of which 2 were",
        ],
    );
    assert!(!out.contains("pictures/class04/b.png"), "only the first: {out}");
    let [out, _] = fails(&site, "data check pictures --all");
    has(
        &out,
        &[
            "pictures/class01/b.png, at byte 0",
            "pictures/class04/b.png, at byte 0",
            "24, of which 22 were",
        ],
    );
}

#[test]
fn a_table_is_told_by_its_columns_and_a_wrong_cell_by_its_row() {
    let site = Site::new();
    let file = site.path("houses.csv");
    fs::write(&file, "rooms,street,price\n3,\"Elm, 1\",10\n4,Oak,20\n5,Oak,10\n").unwrap();
    has(
        &site.done("data check houses.csv"),
        &[
            "a table (CSV)\n  samples      3\n",
            "3, cut at ','; a header",
            "    0  rooms   input\n    1  street  no number, passed over\n    2  price   target\n",
            "    10  2\n    20  1\n",
        ],
    );
    let options = CsvOptions::default().inputs([0]).targets(["price"]);
    is_called(
        &found(&site, "data check houses.csv", 0),
        &Csv::open(&file, &options).unwrap().fingerprint().unwrap(),
    );
    fs::write(&file, "rooms;price\n3;10\n4;20\n5;none\n").unwrap();
    let [out, _] = fails(&site, "data check houses.csv");
    has(
        &out,
        &[
            "houses.csv, at byte 22: expected a finite number in line 4, column 1 (`price`), found `none`",
            "';'; a header",
        ],
    );
    fs::write(&file, "1,2\n3\n").unwrap();
    has(
        &fails(&site, "data check houses.csv")[0],
        &["at byte 4: expected 2 cells in line 2", "no header"],
    );
}

#[test]
fn arrays_and_tensors_are_told_by_type_and_shape() {
    let site = Site::new();
    fs::create_dir(site.path("arrays")).unwrap();
    let file = site.path("arrays/x.npy");
    fs::write(&file, npy("<f4", "(2, 3)", &[0; 24])).unwrap();
    let header = r#"{"images":{"dtype":"U8","shape":[2,4],"data_offsets":[0,8]},"labels":{"dtype":"I64","shape":[2],"data_offsets":[8,24]}}"#;
    let tensors = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[1; 24]].concat();
    fs::write(site.path("arrays/t.safetensors"), &tensors).unwrap();
    has(
        &site.done("data check arrays"),
        &[
            "arrays/x.npy: an array of numpy (npy)\n  samples      2\n  array        <f4 of shape [2, 3]\n",
            "arrays/t.safetensors: tensors (safetensors)\n",
            "    images  U8   [2, 4]\n    labels  I64  [2]\n",
        ],
    );
    is_called(
        &found(&site, "data check arrays", 0),
        &Npy::<f32>::open(&file).unwrap().fingerprint().unwrap(),
    );
    assert_eq!(found(&site, "data check arrays", 1)["contents"]["tensors"][1]["dtype"], "I64");
    fs::write(site.path("arrays/t.safetensors"), &tensors[..tensors.len() - 1]).unwrap();
    fs::write(&file, npy(">f4", "(2, 3)", &[0; 24])).unwrap();
    has(
        &fails(&site, "data check arrays")[0],
        &[
            "t.safetensors, at byte ",
            "expected 24 bytes of tensors",
            "x.npy, at byte 20: expected numbers of type f32",
            "found `>f4`",
        ],
    );
}
