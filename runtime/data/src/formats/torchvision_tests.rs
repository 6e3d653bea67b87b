//! What torchvision reads of the same files, where it is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::Part;
use super::image_folder::ImageFolder;
use super::mnist::{self, Mnist};
use crate::{Dataset, SampleRandom};

/// Writes, for each sample in order, its class and its bytes, channel by channel.
const SCRIPT: &str = r#"
import numpy
from torchvision.datasets import ImageFolder
from torchvision.datasets.mnist import read_image_file, read_label_file
images = read_image_file("mnist/train-images-idx3-ubyte").numpy()
labels = read_label_file("mnist/train-labels-idx1-ubyte").numpy()
with open("mnist.out", "wb") as out:
    for image, label in zip(images, labels):
        out.write(bytes([label]) + image.tobytes())
with open("folder.out", "wb") as out:
    for image, label in ImageFolder("folder"):
        out.write(bytes([label]) + numpy.asarray(image).transpose(2, 0, 1).tobytes())
"#;

fn pixel(x: u32, y: u32, number: u32) -> [u8; 3] {
    [(x * 7 + number * 31) as u8, (y * 5) as u8, ((x + y) * 3 + number) as u8]
}

/// Three classes of smooth pictures, as PNG and as JPEG.
fn pictures(folder: &Path) {
    for (number, class) in ["ant", "Bee", "cat 10"].into_iter().enumerate() {
        let class = folder.join(class);
        fs::create_dir_all(&class).unwrap();
        for (name, size) in [("b.png", (9, 6)), ("a.PNG", (4, 5)), ("c.jpg", (16, 24))] {
            let picture = image::RgbImage::from_fn(size.0, size.1, |x, y| image::Rgb(pixel(x, y, number as u32)));
            picture.save(class.join(name)).unwrap();
        }
    }
}

/// All samples, as the script writes them.
fn read(data: &impl Dataset<Item = (crate::Image, u32)>) -> Vec<u8> {
    let sample = |index| data.get(index, &SampleRandom::held_out(0, index)).unwrap();
    let bytes = |(image, label): (crate::Image, u32)| [&[label as u8], image.bytes()].concat();
    (0..data.len()).flat_map(|index| bytes(sample(index))).collect()
}

#[test]
fn samples_are_those_that_torchvision_reads() {
    let place = tempfile::tempdir().unwrap();
    let [digits, folder] = ["mnist", "folder"].map(|name| place.path().join(name));
    fs::create_dir(&digits).unwrap();
    let images: Vec<Vec<u8>> = (0..5_u8).map(|number| (0..12).map(|at| at * 20 + number).collect()).collect();
    mnist::write(&digits, Part::Train, 3, 4, &images, &[3, 1, 4, 1, 9]).unwrap();
    pictures(&folder);
    let mut python = Command::new("python3");
    let output = python.args(["-c", SCRIPT]).current_dir(place.path()).output();
    if !output.is_ok_and(|output| output.status.success()) {
        println!("skipped: python3 with the package torchvision is not installed");
        return;
    }
    let theirs = |name: &str| fs::read(place.path().join(name)).unwrap();
    assert_eq!(read(&Mnist::open(&digits, Part::Train).unwrap()), theirs("mnist.out"));
    let (own, theirs) = (read(&ImageFolder::open(&folder).unwrap()), theirs("folder.out"));
    assert_eq!(own.len(), theirs.len());
    // Decoders of JPEG may round differently; all else is equal.
    let most = own.iter().zip(&theirs).map(|(own, their)| own.abs_diff(*their)).max();
    assert!(most <= Some(2), "{most:?}");
}
