//! Files as others write them, and what is damaged in them.

use std::fs::{self, File};
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;

/// Three images of 2 x 2, by hand.
const IMAGES: [u8; 28] = [
    0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2, //
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255,
];
const LABELS: [u8; 11] = [0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 200];

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn with(images: &[u8], labels: &[u8]) -> Result<Mnist, DataError> {
    let folder = folder(&[("train-images-idx3-ubyte", images), ("train-labels-idx1-ubyte", labels)]);
    Mnist::open(folder.path(), Part::Train)
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn samples(data: &Mnist) -> Vec<(Image, u32)> {
    let random = SampleRandom::held_out(0, 0);
    (0..data.len()).map(|index| data.get(index, &random).unwrap()).collect()
}

#[test]
fn images_and_labels_are_where_the_format_has_them() {
    let data = with(&IMAGES, &LABELS).unwrap();
    assert_eq!((data.len(), data.height(), data.width()), (3, 2, 2));
    let image = |bytes: [u8; 4]| Image::new(1, 2, 2, bytes.to_vec()).unwrap();
    let expected = [
        (image([1, 2, 3, 4]), 7),
        (image([5, 6, 7, 8]), 0),
        (image([9, 10, 11, 255]), 200),
    ];
    assert_eq!(samples(&data), expected);
    let error = data.get(3, &SampleRandom::held_out(0, 0)).unwrap_err().to_string();
    assert!(error.contains("below 3") && error.contains("found 3"), "{error}");
}

#[test]
fn packed_and_dotted_files_are_the_same_data() {
    let plain = with(&IMAGES, &LABELS).unwrap();
    let folder = folder(&[
        ("t10k-images.idx3-ubyte.gz", &packed(&IMAGES)),
        ("t10k-labels.idx1-ubyte", &LABELS),
        ("train-images-idx3-ubyte.gz", &packed(&IMAGES)),
        ("train-labels-idx1-ubyte.gz", &packed(&LABELS)),
    ]);
    let test = Mnist::open(folder.path(), Part::Test).unwrap();
    let train = Mnist::open(folder.path(), Part::Train).unwrap();
    assert_eq!(samples(&test), samples(&plain));
    assert_eq!(train.fingerprint().unwrap(), plain.fingerprint().unwrap());
    assert_ne!(test.fingerprint().unwrap(), plain.fingerprint().unwrap(), "another part");
    assert_eq!(test.fingerprint().unwrap().parts()[0].name, "t10k-images-idx3-ubyte");
}

#[test]
fn what_is_written_is_what_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("made/anew");
    let images = [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9, 10, 11, 255]];
    write(&inner, Part::Train, 2, 2, &images, &[7, 0, 200]).unwrap();
    assert_eq!(fs::read(inner.join("train-images-idx3-ubyte")).unwrap(), IMAGES);
    assert_eq!(fs::read(inner.join("train-labels-idx1-ubyte")).unwrap(), LABELS);
    let refusal = |height, labels: &[u8]| {
        write(&inner, Part::Train, height, 2, &images, labels)
            .unwrap_err()
            .to_string()
    };
    assert!(refusal(3, &[7, 0, 200]).contains("3 x 2"));
    assert!(refusal(2, &[7, 0]).contains("2 labels"));
    assert!(refusal(usize::MAX, &[7, 0, 200]).contains("4 bytes"));
}

#[test]
fn a_file_cut_short_or_too_long_is_refused_where_it_ends() {
    for end in 0..IMAGES.len() {
        assert!(with(&IMAGES[..end], &LABELS).is_err(), "images cut at {end}");
    }
    for end in 0..LABELS.len() {
        assert!(with(&IMAGES, &LABELS[..end]).is_err(), "labels cut at {end}");
    }
    let error = with(&IMAGES[..10], &LABELS).unwrap_err().to_string();
    assert!(
        error.contains("images-idx3-ubyte, at byte 10: expected 6 more bytes of the header"),
        "{error}"
    );
    let error = with(&[&IMAGES[..], &[0]].concat(), &LABELS).unwrap_err().to_string();
    assert!(error.contains("at byte 4: expected sizes that make 13 values"), "{error}");
}

#[test]
fn a_flipped_bit_is_refused_or_makes_other_data() {
    let whole = with(&IMAGES, &LABELS).unwrap();
    let changed = |bytes: &[u8], bit: usize| {
        let mut bytes = bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    let check = |outcome: Result<Mnist, DataError>| {
        let Ok(data) = outcome else { return };
        assert_ne!(samples(&data), samples(&whole));
        assert_ne!(data.fingerprint().unwrap(), whole.fingerprint().unwrap());
    };
    (0..IMAGES.len() * 8).for_each(|bit| check(with(&changed(&IMAGES, bit), &LABELS)));
    (0..LABELS.len() * 8).for_each(|bit| check(with(&IMAGES, &changed(&LABELS, bit))));
}

#[test]
fn a_damaged_packed_file_is_refused_or_unpacks_to_the_same() {
    let (whole, bytes) = (with(&IMAGES, &LABELS).unwrap(), packed(&IMAGES));
    let open = |images: &[u8]| {
        let folder = folder(&[("train-images-idx3-ubyte.gz", images), ("train-labels-idx1-ubyte", &LABELS)]);
        Mnist::open(folder.path(), Part::Train)
    };
    for end in 0..bytes.len() {
        let error = open(&bytes[..end]).unwrap_err();
        assert!(matches!(error, DataError::Malformed { .. }), "cut at {end}: {error}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match open(&bytes) {
            // Gzip's header says when and where a file was packed, and no more depends on it.
            Ok(data) => assert_eq!(data.fingerprint().unwrap(), whole.fingerprint().unwrap()),
            Err(error) => assert!(matches!(error, DataError::Malformed { .. }), "bit {bit}: {error}"),
        }
    }
    assert!(open(&[&bytes[..], b"rest"].concat()).is_err(), "what follows is not ignored");
    assert!(open(&packed(&[&IMAGES[..], &[0]].concat())).is_err());
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    let absurd = |sizes: [u32; 3]| {
        let sizes = sizes.into_iter().flat_map(u32::to_be_bytes);
        [0, 0, 8, 3].into_iter().chain(sizes).chain([0; 12]).collect::<Vec<u8>>()
    };
    for sizes in [[u32::MAX, 28, 28], [u32::MAX; 3], [1 << 31, 1 << 31, 4], [3, 0, 4], [3, 4, 0]] {
        let bytes = absurd(sizes);
        let files: [(&str, &[u8]); 2] = [
            ("train-images-idx3-ubyte.gz", &packed(&bytes)),
            ("train-labels-idx1-ubyte", &LABELS),
        ];
        let refused = [with(&bytes, &LABELS), Mnist::open(folder(&files).path(), Part::Train)];
        for outcome in refused {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, DataError::Malformed { offset: 4..=12, .. }),
                "{sizes:?}: {error}"
            );
        }
    }
}

#[test]
fn a_bomb_is_not_unpacked() {
    let folder = folder(&[("train-labels-idx1-ubyte", &LABELS)]);
    let file = File::create(folder.path().join("train-images-idx3-ubyte.gz")).unwrap();
    let mut encoder = GzEncoder::new(file, Compression::fast());
    encoder.write_all(&IMAGES[..16]).unwrap();
    (0..64).for_each(|_| encoder.write_all(&vec![0; 1 << 20]).unwrap());
    encoder.finish().unwrap();
    let error = Mnist::open(folder.path(), Part::Train).unwrap_err().to_string();
    assert!(error.contains("at byte 28: expected the end of the file"), "{error}");
}

#[test]
fn what_is_missing_or_another_file_is_named() {
    let error = |files: &[(&str, &[u8])]| Mnist::open(folder(files).path(), Part::Train).unwrap_err().to_string();
    let images = ("train-images-idx3-ubyte", &IMAGES[..]);
    assert!(error(&[]).contains("`train-images-idx3-ubyte` or"));
    assert!(error(&[images]).contains("`train-labels-idx1-ubyte` or"));
    let swapped = error(&[images, ("train-labels-idx1-ubyte", &IMAGES)]);
    assert!(
        swapped.contains("at byte 0: expected the magic number 2049") && swapped.contains("found 2051"),
        "{swapped}"
    );
    let fewer = error(&[images, ("train-labels-idx1-ubyte", &[0, 0, 8, 1, 0, 0, 0, 1, 7])]);
    assert!(
        fewer.contains("at byte 4: expected a label for each of the 3 images, found labels for 1"),
        "{fewer}"
    );
    let error = Mnist::open(Path::new("/nowhere/at/all"), Part::Test).unwrap_err();
    assert!(matches!(error, DataError::Io { .. }), "{error}");
}
