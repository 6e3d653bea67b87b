//! Files as others write them, and what is damaged in them.

use std::fs;

use ::safetensors::Dtype;
use ::safetensors::tensor::{TensorView, serialize};

use super::*;

const HEADER: &str = concat!(
    r#"{"__metadata__":{"by":"hand"},"x":{"dtype":"F32","shape":[2,1,2],"data_offsets":[0,16]},"#,
    r#""y":{"dtype":"U8","shape":[2],"data_offsets":[16,18]}}"#
);

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// Two rows, by hand.
fn golden() -> Vec<u8> {
    let numbers = [1.0_f32, -2.0, 0.5, 8.0].into_iter().flat_map(f32::to_le_bytes);
    file(HEADER, &numbers.chain([3, 200]).collect::<Vec<_>>())
}

fn open<I: Element, T: Element>(bytes: &[u8], names: [&str; 2]) -> Result<Safetensors<I, T>, DataError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.safetensors");
    fs::write(&path, bytes).unwrap();
    Safetensors::open(&path, names[0], names[1])
}

fn refusal(bytes: &[u8]) -> String {
    let error = open::<f32, u8>(bytes, ["x", "y"]).unwrap_err();
    assert!(matches!(error, DataError::Malformed { .. }), "{error}");
    error.to_string()
}

fn get<I: Element, T: Element>(data: &Safetensors<I, T>, index: u64) -> (Array<I>, Array<T>) {
    data.get(index, &SampleRandom::held_out(0, 0)).unwrap()
}

#[test]
fn rows_are_where_the_format_has_them() {
    let data = open::<f32, u8>(&golden(), ["x", "y"]).unwrap();
    assert_eq!(
        (data.len(), data.input_shape(), data.target_shape()),
        (2, &[1, 2][..], &[][..])
    );
    let sample = |values: [f32; 2], label| {
        (
            Array::new(&[1, 2], values.to_vec()).unwrap(),
            Array::new(&[], vec![label]).unwrap(),
        )
    };
    assert_eq!(
        [get(&data, 0), get(&data, 1)],
        [sample([1.0, -2.0], 3), sample([0.5, 8.0], 200)]
    );
    let error = data.get(2, &SampleRandom::held_out(0, 0)).unwrap_err();
    assert!(matches!(error, DataError::NoSample { samples: 2, index: 2 }), "{error}");
    let parts = data.fingerprint().unwrap().into_parts();
    assert_eq!(
        (parts[0].name.as_str(), parts[0].hash),
        ("train.safetensors", DataHash::of(&golden()))
    );
    assert!(parts[1].name.contains("`x` as input, `y` as target"), "{}", parts[1].name);
}

/// Against the library of those who made the format.
#[test]
fn tensors_are_read_as_others_write_them() {
    let (labels, images) = ([7_i64, -1, i64::MAX].map(i64::to_le_bytes).concat(), [9_u8, 8, 7, 6, 5, 4]);
    let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    let tensors = [
        ("labels", view(Dtype::I64, &[3], &labels[..])),
        ("images", view(Dtype::U8, &[3, 2], &images)),
        ("unused", view(Dtype::BF16, &[1], &[0, 0])),
    ];
    let bytes = serialize(tensors, None).unwrap();
    let data = open::<u8, i64>(&bytes, ["images", "labels"]).unwrap();
    let samples: Vec<_> = (0..3).map(|index| get(&data, index)).collect();
    assert_eq!(
        samples
            .iter()
            .flat_map(|(image, _)| image.values())
            .copied()
            .collect::<Vec<_>>(),
        images
    );
    assert_eq!(
        samples.iter().map(|(_, label)| label.values()[0]).collect::<Vec<_>>(),
        [7, -1, i64::MAX]
    );
    let swapped = open::<i64, u8>(&bytes, ["labels", "images"]).unwrap();
    assert_ne!(swapped.fingerprint().unwrap(), data.fingerprint().unwrap());
}

#[test]
fn what_does_not_fit_is_named() {
    let missing = open::<f32, u8>(&golden(), ["x", "z"]).unwrap_err().to_string();
    assert!(
        missing.contains("at byte 8: expected a tensor `z`, found `x`, `y`"),
        "{missing}"
    );
    let other = open::<f32, i64>(&golden(), ["x", "y"]).unwrap_err().to_string();
    assert!(
        other.contains("expected numbers of type i64 (I64) in `y`, found U8"),
        "{other}"
    );
    let with = |from: &str, to: &str| refusal(&file(&HEADER.replace(from, to), &golden()[8 + HEADER.len()..]));
    let fewer = with(r#""U8","shape":[2]"#, r#""U8","shape":[1,2]"#);
    assert!(
        fewer.contains("expected as many rows in `y` as in `x`, 2, found 1"),
        "{fewer}"
    );
    assert!(with("[2]", "[]").contains("in JSON"), "a shape that its bytes do not hold");
    let single = file(r#"{"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#, &[0; 4]);
    let single = open::<f32, f32>(&single, ["x", "x"]).unwrap_err().to_string();
    assert!(single.contains("an array of rows, in `x`, found a single number"), "{single}");
}

#[test]
fn absurd_lengths_and_shapes_are_refused_before_anything_is_allocated() {
    let with = |from: &str, to: &str| refusal(&file(&HEADER.replace(from, to), &golden()[8 + HEADER.len()..]));
    let mut long = golden();
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refusal(&long).contains("at byte 0: expected a header of at most 100000000 bytes"));
    long[..8].copy_from_slice(&MAX_HEADER_BYTES.to_le_bytes());
    assert!(refusal(&long).contains("more bytes of the header"));
    with("[2,1,2]", "[4294967295,1,2]");
    with("[2,1,2]", "[18446744073709551615,18446744073709551615,2]");
    with("[16,18]", "[16,18446744073709551615]");
    with("[0,16]", "[0,15]");
    let empty = r#"{"x":{"dtype":"F32","shape":[9999999999,0],"data_offsets":[0,0]}}"#;
    assert!(open::<f32, f32>(&file(empty, &[]), ["x", "x"]).is_err());
    refusal(&file(&"[".repeat(1 << 20), &[]));
    refusal(&file(&r#"{"a":"#.repeat(1 << 18), &[]));
}

#[test]
fn what_is_cut_or_flipped_is_refused_or_has_another_fingerprint() {
    let bytes = golden();
    let whole = open::<f32, u8>(&bytes, ["x", "y"]).unwrap().fingerprint().unwrap();
    for end in 0..bytes.len() {
        refusal(&bytes[..end]);
    }
    assert!(
        refusal(&[&bytes[..], &[0]].concat()).contains("expected 18 bytes of tensors up to the end of the file, found 19")
    );
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match open::<f32, u8>(&bytes, ["x", "y"]) {
            Ok(data) => assert_ne!(data.fingerprint().unwrap(), whole),
            Err(error) => assert!(matches!(error, DataError::Malformed { .. }), "bit {bit}: {error}"),
        }
    }
}
