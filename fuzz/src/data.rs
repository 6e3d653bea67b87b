//! Data sets in the formats that people have: what opens has samples, or a reason for each that it lacks, and is called the same each
//! time; of what does not open is said where it is damaged.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use flate2::Crc;
use flate2::write::GzEncoder;
use image::ImageReader;
use sardana_data::formats::cifar10::{Cifar10, TEST_FILE};
use sardana_data::formats::csv::{Csv, CsvOptions};
use sardana_data::formats::image_folder::ImageFolder;
use sardana_data::formats::mnist::Mnist;
use sardana_data::formats::npy::{self, Npy};
use sardana_data::formats::safetensors::{self, Safetensors};
use sardana_data::formats::{Element, Part};
use sardana_data::{DataError, Dataset, SampleRandom};
use sardana_storage::fuzzing::kind;

use crate::files::in_folder;

/// As many samples are read from the first on, and the last.
const SAMPLES: u64 = 8;

/// The longest message about a damaged file: a few lines on a terminal. Each has the path, which is short here.
const MESSAGE_BYTES: usize = 2_048;

/// Calls `use_it` with an empty folder.
pub(crate) fn in_empty_folder(use_it: impl FnOnce(&Path)) {
    in_folder(|folder| {
        let folder = folder.join("data");
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("it is this thread's own");
        }
        fs::create_dir(&folder).expect("the folder can be written");
        use_it(&folder);
    });
}

pub(crate) fn put(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("the folder can be written");
}

/// What is said of bytes: a file and a place in it, no fault of the system, and in words that a terminal can be shown.
pub(crate) fn said(error: &DataError) -> String {
    assert!(matches!(error, DataError::Malformed { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.len() <= MESSAGE_BYTES, "a message of {} bytes", said.len());
    assert!(!said.chars().any(char::is_control), "{said:?}");
    said
}

/// Opens data twice, which is the same both times: whether they open, what they are called, which samples they have. Says how many there
/// are.
pub(crate) fn bear<D: Dataset>(open: impl Fn() -> Result<D, DataError>) -> Option<u64> {
    let [one, two] = [open(), open()].map(|data| data.map_err(|error| said(&error)));
    match (one, two) {
        (Ok(one), Ok(two)) => {
            assert_eq!(one.len(), two.len());
            let name = |data: &D| data.fingerprint().expect("what opens can be read");
            assert_eq!(name(&one), name(&two));
            assert_eq!(samples(&one), samples(&two));
            Some(one.len())
        }
        (one, two) => {
            assert_eq!(one.err(), two.err());
            None
        }
    }
}

/// What is said of a few samples.
fn samples<D: Dataset>(data: &D) -> Vec<Result<(), String>> {
    let length = data.len();
    let get = |index| data.get(index, &SampleRandom::held_out(0, index));
    for index in [length, u64::MAX] {
        assert!(matches!(get(index), Err(DataError::NoSample { .. })), "{index} of {length}");
    }
    let chosen = (0..length.min(SAMPLES)).chain(length.checked_sub(1));
    chosen
        .map(|index| get(index).map(drop).map_err(|error| said(&error)))
        .collect()
}

/// Digits in the idx format: images or labels, plain or packed, beside as many of the others as they state.
pub(crate) fn digits(bytes: &[u8]) {
    const MOST: u32 = 4_096;
    const IMAGES: &str = "t10k-images-idx3-ubyte";
    const LABELS: &str = "t10k-labels-idx1-ubyte";
    let labels = |count: u32| [&[0, 0, 8, 1][..], &count.to_be_bytes(), &vec![7; count as usize]].concat();
    let images = |count: u32| {
        let sizes = [count, 1, 1].map(u32::to_be_bytes).concat();
        [&[0, 0, 8, 3][..], &sizes, &vec![7; count as usize]].concat()
    };
    let (kind, rest) = kind(bytes, 6);
    let count = rest.get(4..).and_then(<[u8]>::first_chunk);
    let count = count.map_or(2, |&count| u32::from_be_bytes(count).min(MOST));
    in_empty_folder(|folder| {
        let put = |name: &str, bytes: &[u8]| put(&folder.join(name), bytes);
        match kind {
            0 => put(IMAGES, rest),
            1 => put(LABELS, rest),
            2 => put(&format!("{IMAGES}.gz"), &packed(rest)),
            3 => put(&format!("{LABELS}.gz"), &packed(rest)),
            4 => put(&format!("{IMAGES}.gz"), rest),
            _ => put(&format!("{LABELS}.gz"), rest),
        }
        // Of what is packed by somebody else the count is not seen.
        let count = if kind < 4 { count } else { 2 };
        if kind % 2 == 0 {
            put(LABELS, &labels(count));
        } else {
            put(IMAGES, &images(count));
        }
        bear(|| Mnist::open(folder, Part::Test));
    });
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).expect("memory takes it");
    packer.finish().expect("memory takes it")
}

/// A binary batch of CIFAR-10: as it is, or a record for each byte, which is its label.
pub(crate) fn batches(bytes: &[u8]) {
    const MOST: usize = 16;
    const IMAGE_BYTES: usize = 3 * 32 * 32;
    let batch = match kind(bytes, 2) {
        (0, rest) => rest.to_vec(),
        (_, rest) => rest
            .iter()
            .take(MOST)
            .flat_map(|&label| [&[label], &[label; IMAGE_BYTES][..]].concat())
            .collect(),
    };
    in_empty_folder(|folder| {
        put(&folder.join(TEST_FILE), &batch);
        bear(|| Cifar10::open(folder, Part::Test));
    });
}

/// A table in text.
pub(crate) fn tables(bytes: &[u8]) {
    let (kind, rest) = kind(bytes, 4);
    let options = CsvOptions::default();
    let options = match kind {
        0 => options,
        1 => options.without_header(),
        2 => options.delimiter(b';').targets(["y"]),
        _ => options.without_header().delimiter(b'\t').inputs([1, 0]).targets([3]),
    };
    in_empty_folder(|folder| {
        let path = folder.join("table.csv");
        put(&path, rest);
        bear(|| Csv::open(&path, &options));
    });
}

/// An array as numpy saves it: as it is, or what follows a header's length that is right.
pub(crate) fn arrays(bytes: &[u8]) {
    fn check<T: Element>(path: &Path) {
        let opened = bear(|| Npy::<T>::open(path));
        match npy::descr(path) {
            Ok(_) => {}
            Err(error) => {
                said(&error);
                assert_eq!(opened, None, "what opens says of what it consists");
            }
        }
    }
    let (kind, rest) = kind(bytes, 8);
    let length = u16::try_from(rest.len()).unwrap_or(u16::MAX).to_le_bytes();
    let file = match kind % 2 {
        0 => rest.to_vec(),
        _ => [b"\x93NUMPY\x01\x00", &length[..], rest, &[1; 24]].concat(),
    };
    in_empty_folder(|folder| {
        let path = folder.join("array.npy");
        put(&path, &file);
        match kind / 2 {
            0 => check::<f32>(&path),
            1 => check::<u8>(&path),
            2 => check::<i64>(&path),
            _ => check::<f64>(&path),
        }
    });
}

/// Two tensors of a file: as it is, or what follows a header's length that is right.
pub(crate) fn tensor_rows(bytes: &[u8]) {
    let (kind, rest) = kind(bytes, 2);
    let length = (rest.len() as u64).to_le_bytes();
    let file = match kind {
        0 => rest.to_vec(),
        _ => [&length[..], rest, &[1; 32]].concat(),
    };
    in_empty_folder(|folder| {
        let path = folder.join("data.safetensors");
        put(&path, &file);
        let opened = bear(|| Safetensors::<f32, i64>::open(&path, "x", "y"));
        let alike = bear(|| Safetensors::<u8, u8>::open(&path, "x", "x"));
        match safetensors::tensors(&path) {
            Ok(tensors) => assert!(opened.is_none() || tensors.len() >= 2),
            Err(error) => {
                said(&error);
                assert_eq!((opened, alike), (None, None), "what opens says of what it consists");
            }
        }
    });
}

/// A picture: as it is, or a PNG whose checksums are those of its chunks.
pub(crate) fn pictures(bytes: &[u8]) {
    /// Pictures of more pixels only cost time, up to those that are too large for any program.
    const FEW_PIXELS: u64 = 1 << 16;
    const TOO_MANY_PIXELS: u64 = 1 << 26;
    let picture = match kind(bytes, 2) {
        (0, rest) => rest.to_vec(),
        (_, rest) => summed(rest),
    };
    let reader = ImageReader::new(Cursor::new(&picture)).with_guessed_format();
    let size = reader.expect("memory can be read").into_dimensions();
    let pixels = size.map_or(0, |(width, height)| u64::from(width) * u64::from(height));
    if (FEW_PIXELS + 1..=TOO_MANY_PIXELS).contains(&pixels) {
        return;
    }
    in_empty_folder(|folder| {
        fs::create_dir(folder.join("class")).expect("the folder can be written");
        put(&folder.join("class").join("picture.png"), &picture);
        bear(|| ImageFolder::open(folder));
        bear(|| Ok(ImageFolder::open(folder)?.resize(5, 3)));
    });
}

/// A PNG with the checksum of each chunk, which no fuzzer guesses.
fn summed(png: &[u8]) -> Vec<u8> {
    const SIGNATURE_BYTES: usize = 8;
    let mut png = png.to_vec();
    let mut at = SIGNATURE_BYTES;
    while let Some(length) = png.get(at..).and_then(<[u8]>::first_chunk) {
        let end = (at + 8).saturating_add(u32::from_be_bytes(*length) as usize);
        let Some(chunk) = png.get(at + 4..end) else { break };
        let mut crc = Crc::new();
        crc.update(chunk);
        if let Some(sum) = png.get_mut(end..end.saturating_add(4)) {
            sum.copy_from_slice(&crc.sum().to_be_bytes());
        }
        at = end.saturating_add(4);
    }
    png
}
