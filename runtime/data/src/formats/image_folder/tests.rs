//! Folders as people have them, files that are damaged, and which part a picture falls into.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use image::{DynamicImage, GrayImage, ImageFormat, RgbImage, RgbaImage};
use tempfile::TempDir;

use super::*;

/// 2 x 2 pixels: (1, 2, 3), (4, 5, 6); (7, 8, 9), (250, 251, 252). By hand, not compressed.
const PNG: [u8; 82] = [
    137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 2, 0, 0, 0, 2, 8, 2, 0, 0, 0, 253, 212, 154, 115,
    0, 0, 0, 25, 73, 68, 65, 84, 120, 1, 1, 14, 0, 241, 255, 0, 1, 2, 3, 4, 5, 6, 0, 7, 8, 9, 250, 251, 252, 7, 47, 3, 31,
    27, 184, 250, 95, 0, 0, 0, 0, 73, 69, 78, 68, 174, 66, 96, 130,
];

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Colours that change slowly, as JPEG likes them.
fn slope() -> RgbImage {
    RgbImage::from_fn(24, 16, |x, y| image::Rgb([(x * 10) as u8, (y * 15) as u8, 100]))
}

fn get(data: &ImageFolder, index: u64) -> Result<(Image, u32), DataError> {
    data.get(index, &SampleRandom::held_out(0, 0))
}

fn alone(bytes: &[u8]) -> Result<Image, DataError> {
    let folder = folder(&[("a/picture.png", bytes)]);
    Ok(get(&ImageFolder::open(folder.path()).unwrap(), 0)?.0)
}

#[test]
fn pixels_are_where_the_format_has_them() {
    let image = alone(&PNG).unwrap();
    assert_eq!((image.channels(), image.height(), image.width()), (3, 2, 2));
    assert_eq!(image.bytes(), [1, 4, 7, 250, 2, 5, 8, 251, 3, 6, 9, 252]);
}

#[test]
fn classes_and_files_are_in_the_order_of_their_bytes() {
    let folder = folder(&[
        ("b/10.png", &PNG),
        ("b/9.PNG", &PNG),
        ("B/x.JpEg", &encoded(slope(), ImageFormat::Jpeg)),
        ("a/.hidden.png", b"no picture"),
        ("a/notes.txt", b"no picture"),
        ("a/y.jpg", &encoded(slope(), ImageFormat::Jpeg)),
        (".git/x.png", &PNG),
        ("a/.thumbnails/x.png", &PNG),
        ("README.md", b"no picture"),
    ]);
    let data = ImageFolder::open(folder.path()).unwrap();
    assert_eq!(data.classes(), ["B", "a", "b"]);
    let names: Vec<_> = data.pictures.iter().map(|picture| data.within(picture)).collect();
    assert_eq!(names, ["B/x.JpEg", "a/y.jpg", "b/10.png", "b/9.PNG"].map(PathBuf::from));
    let labels: Vec<_> = (0..data.len()).map(|index| get(&data, index).unwrap().1).collect();
    assert_eq!(labels, [0, 1, 2, 2]);
    assert!(matches!(get(&data, 4), Err(DataError::NoSample { samples: 4, index: 4 })));
}

#[test]
fn all_kinds_of_pictures_become_red_green_and_blue() {
    let grey = alone(&encoded(GrayImage::from_pixel(3, 2, image::Luma([77])), ImageFormat::Png)).unwrap();
    assert_eq!(grey.bytes(), [77; 18]);
    let see_through = RgbaImage::from_pixel(1, 1, image::Rgba([1, 2, 3, 0]));
    assert_eq!(alone(&encoded(see_through, ImageFormat::Png)).unwrap().bytes(), [1, 2, 3]);
    // A JPEG that is called `.png`: nearly the picture it was made of.
    let jpeg = alone(&encoded(slope(), ImageFormat::Jpeg)).unwrap();
    assert_eq!((jpeg.height(), jpeg.width()), (16, 24));
    let planes = resize::planes(slope().as_raw());
    let most = jpeg.bytes().iter().zip(&planes).map(|(a, b)| a.abs_diff(*b)).max();
    assert!(most < Some(32), "{most:?}");
}

#[test]
fn pictures_have_the_size_that_is_asked_for_and_the_fingerprint_says_so() {
    let folder = folder(&[("a/1.png", &PNG), ("a/2.jpg", &encoded(slope(), ImageFormat::Jpeg))]);
    let data = ImageFolder::open(folder.path()).unwrap();
    let plain = data.fingerprint().unwrap();
    let data = data.resize(5, 4);
    for index in 0..2 {
        let image = get(&data, index).unwrap().0;
        assert_eq!((image.channels(), image.height(), image.width()), (3, 5, 4));
    }
    assert_ne!(data.fingerprint().unwrap(), plain);
    assert_ne!(data.clone().resize(4, 5).fingerprint().unwrap(), data.fingerprint().unwrap());
    let error = get(&data.resize(usize::MAX, usize::MAX), 0).unwrap_err();
    assert!(matches!(error, DataError::Unfit { .. }), "{error}");
}

#[test]
fn a_picture_cut_short_is_refused() {
    for bytes in [PNG.to_vec(), encoded(slope(), ImageFormat::Jpeg)] {
        let whole = alone(&bytes).unwrap();
        for end in 0..bytes.len() {
            match alone(&bytes[..end]) {
                Err(DataError::Malformed { .. }) => {}
                // Of a PNG's last block nothing is needed.
                Ok(image) => assert!(image == whole && end + 12 >= bytes.len(), "cut at {end} of {}", bytes.len()),
                Err(other) => panic!("cut at {end}: {other}"),
            }
        }
    }
    let jpeg = encoded(slope(), ImageFormat::Jpeg);
    let error = alone(&jpeg[..jpeg.len() - 9]).unwrap_err().to_string();
    assert!(error.contains("more of a JPEG up to its end-of-image marker"), "{error}");
    assert!(
        alone(&[&jpeg[..], &[0; 100]].concat()).is_ok(),
        "what follows a JPEG is not part of it"
    );
}

/// A small JPEG in the header of a large one has an end of its own, which is not that of the large one.
#[test]
fn the_end_of_a_small_picture_within_is_not_the_end() {
    let jpeg = encoded(slope(), ImageFormat::Jpeg);
    let length = (jpeg.len() as u16 + 2).to_be_bytes();
    let nested = [&jpeg[..2], &[0xff, 0xe1], &length, &jpeg[..], &jpeg[2..]].concat();
    assert_eq!(alone(&nested).unwrap(), alone(&jpeg).unwrap());
    assert!(alone(&nested[..nested.len() - 2]).is_err());
}

#[test]
fn a_flipped_bit_is_an_error_or_another_fingerprint() {
    for bytes in [PNG.to_vec(), encoded(slope(), ImageFormat::Jpeg)] {
        let folder = folder(&[("a/picture.jpg", &bytes)]);
        let data = ImageFolder::open(folder.path()).unwrap();
        let whole = data.fingerprint().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(folder.path().join("a/picture.jpg"), &bytes).unwrap();
            assert_ne!(data.fingerprint().unwrap(), whole);
            match get(&data, 0) {
                Ok(_) | Err(DataError::Malformed { .. }) => {}
                Err(other) => panic!("bit {bit}: {other}"),
            }
        }
    }
}

/// The decoder ends some of its messages with the end of a line.
#[test]
fn what_a_decoder_says_is_told_in_one_line() {
    let error = alone(&[0xff, 0xd8, 0xff, 0xd0, 0xff, 0xd9]).unwrap_err().to_string();
    assert!(error.contains("a picture that can be decoded"), "{error}");
    assert!(!error.contains(char::is_control), "{error:?}");
}

#[test]
fn a_bomb_is_refused_by_what_it_states() {
    let header = |width: u32, height: u32| {
        let mut chunk = b"IHDR".to_vec();
        chunk.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
        chunk.extend([8, 2, 0, 0, 0]);
        let sum = crc(&chunk).to_be_bytes();
        [&PNG[..12], &chunk[..], &sum, &PNG[33..]].concat()
    };
    assert_eq!(header(2, 2), PNG);
    for (width, height) in [(60_000, 60_000), (u32::MAX >> 1, 1), (9_000, 9_000)] {
        let error = alone(&header(width, height)).unwrap_err();
        assert!(matches!(error, DataError::Malformed { .. }), "{width} x {height}: {error}");
    }
}

/// The checksum of a PNG's block, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes
        .iter()
        .fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), |sum, _| step(sum)))
}

#[test]
fn what_is_missing_or_in_the_way_is_named() {
    let error = |files: &[(&str, &[u8])]| ImageFolder::open(folder(files).path()).unwrap_err().to_string();
    assert!(error(&[("picture.png", &PNG)]).contains("expected a folder of pictures for each class"));
    let empty = error(&[("a/1.png", &PNG), ("b/1.gif", &PNG)]);
    assert!(empty.contains("/b: expected a file that ends in"), "{empty}");
    let deeper = error(&[("a/1.png", &PNG), ("a/more/1.png", &PNG)]);
    assert!(
        deeper.contains("/a: expected pictures, and no folder, found the folder more"),
        "{deeper}"
    );
    let error = alone(b"GIF89a").unwrap_err().to_string();
    assert!(
        error.contains("picture.png, at byte 0: expected the first bytes of a JPEG or PNG"),
        "{error}"
    );
    let error = ImageFolder::open(Path::new("/nowhere/at/all")).unwrap_err();
    assert!(matches!(error, DataError::Io { .. }), "{error}");
}

#[test]
fn links_are_followed_and_a_broken_one_is_named() {
    let folder = folder(&[("elsewhere/.x/1.png", &PNG), ("data/a/1.png", &PNG)]);
    let at = |name: &str| folder.path().join(name);
    symlink(at("elsewhere/.x/1.png"), at("data/a/2.png")).unwrap();
    symlink(at("elsewhere/.x"), at("data/b")).unwrap();
    symlink(at("data"), at("data/a/.loop")).unwrap();
    let data = ImageFolder::open(&at("data")).unwrap();
    assert_eq!((data.len(), data.classes().len()), (3, 2));
    assert_eq!(get(&data, 1).unwrap(), get(&data, 0).unwrap());
    symlink(at("nothing"), at("data/a/3.png")).unwrap();
    let error = ImageFolder::open(&at("data")).unwrap_err().to_string();
    assert!(error.contains("3.png: cannot follow the link"), "{error}");
}

#[test]
fn names_that_are_not_utf_8_count_by_their_bytes() {
    let print = |name: &[u8]| {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join(OsStr::from_bytes(name));
        // Not every file system has such names.
        fs::create_dir(&class).ok()?;
        fs::write(class.join(OsStr::from_bytes(&[name, b".png"].concat())), PNG).unwrap();
        let data = ImageFolder::open(folder.path()).unwrap();
        assert_eq!(get(&data, 0).unwrap().0, alone(&PNG).unwrap());
        Some(data.fingerprint().unwrap())
    };
    let (Some(one), Some(other)) = (print(b"caf\xe9"), print(b"caf\xe8")) else {
        return;
    };
    assert_eq!(one.parts()[1].name, other.parts()[1].name);
    assert_ne!(one.parts()[1].hash, other.parts()[1].hash);
}

fn many(count: u32, more: &[&str]) -> (TempDir, ImageFolder) {
    let names: Vec<_> = (0..count)
        .map(|number| format!("{}/{number}.png", ["a", "b"][number as usize % 2]))
        .collect();
    let files: Vec<_> = names
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .map(|name| (name, &PNG[..]))
        .collect();
    let folder = folder(&files);
    let data = ImageFolder::open(folder.path()).unwrap();
    (folder, data)
}

fn names(data: &ImageFolder) -> Vec<PathBuf> {
    data.pictures.iter().map(|picture| data.within(picture)).collect()
}

#[test]
fn a_split_moves_no_picture_when_others_come() {
    let (_folder, data) = many(1_000, &[]);
    let (train, validation) = data.clone().split(0.2, 7).unwrap();
    assert_eq!(train.len() + validation.len(), 1_000);
    // 200 are expected; the standard deviation is 12.6.
    assert!((150..250).contains(&validation.len()), "{}", validation.len());
    assert_eq!(train.classes(), data.classes());
    assert_ne!(train.fingerprint().unwrap(), validation.fingerprint().unwrap());
    let (_folder, larger) = many(1_000, &["0/new.png", "a/0000.png", "b/new.png"]);
    let (more_train, more_validation) = larger.split(0.2, 7).unwrap();
    for (before, after) in [(&train, &more_train), (&validation, &more_validation)] {
        let after: BTreeSet<_> = names(after).into_iter().collect();
        assert!(names(before).iter().all(|name| after.contains(name)));
    }
    let (_, other) = data.clone().split(0.2, 8).unwrap();
    assert_ne!(names(&other), names(&validation), "another seed");
    let (train, validation) = data.clone().split(0.0, 7).unwrap();
    assert_eq!((train.len(), validation.len()), (1_000, 0));
    let (train, validation) = data.clone().split(1.0, 7).unwrap();
    assert_eq!((train.len(), validation.len()), (0, 1_000));
    for fraction in [-0.1, 1.1, f64::NAN] {
        let error = data.clone().split(fraction, 7).unwrap_err().to_string();
        assert!(error.contains("expected a fraction from 0 to 1"), "{error}");
    }
}

/// Somebody has validated on these: a change here would train on them.
#[test]
fn the_split_is_fixed() {
    let (_folder, data) = many(20, &[]);
    let (_, validation) = data.split(0.2, 7).unwrap();
    let expected = ["a/4.png", "a/8.png", "b/17.png", "b/19.png", "b/9.png"];
    assert_eq!(names(&validation), expected.map(PathBuf::from));
}
