//! Arrays as numpy saves them, and what is damaged in them.

use std::fs;

use super::*;
use crate::DatasetExt;

/// A file of format 1.0 with this text and these bytes.
fn array(text: &str, bytes: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((text.len() as u16).to_le_bytes());
    file.extend(text.as_bytes());
    file.extend(bytes);
    file
}

const TEXT: &str = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 2), }\n";

/// Three rows of shape (1, 2), by hand.
fn golden() -> Vec<u8> {
    let numbers = [1.0_f32, -2.0, 0.5, f32::MAX, 0.0, 3.25];
    array(TEXT, &numbers.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<_>>())
}

fn open<T: Element>(bytes: &[u8]) -> Result<Npy<T>, DataError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array.npy");
    fs::write(&path, bytes).unwrap();
    // What is open can still be read when it has no name any more.
    Npy::open(&path)
}

fn samples<T: Element>(data: &Npy<T>) -> Vec<Array<T>> {
    let random = SampleRandom::held_out(0, 0);
    (0..data.len()).map(|index| data.get(index, &random).unwrap()).collect()
}

fn refusal(bytes: &[u8]) -> String {
    let error = open::<f32>(bytes).unwrap_err();
    assert!(matches!(error, DataError::Malformed { .. }), "{error}");
    error.to_string()
}

#[test]
fn rows_are_where_the_format_has_them() {
    let data = open::<f32>(&golden()).unwrap();
    assert_eq!((data.len(), data.shape()), (3, &[1, 2][..]));
    let rows = [vec![1.0, -2.0], vec![0.5, f32::MAX], vec![0.0, 3.25]];
    assert_eq!(samples(&data), rows.map(|row| Array::new(&[1, 2], row).unwrap()));
    let error = data.get(3, &SampleRandom::held_out(0, 0)).unwrap_err();
    assert!(matches!(error, DataError::NoSample { samples: 3, index: 3 }), "{error}");
}

#[test]
fn all_ways_to_write_the_same_header_are_read() {
    let texts = [
        "{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"|u1\"}",
        "{'descr': '<u1', 'fortran_order': False, 'shape': (2L,), }          \n",
        "  { 'fortran_order' : False , 'descr' : 'u1' , 'shape' : ( 2 ) }",
    ];
    for text in texts {
        let data = open::<u8>(&array(text, &[7, 8])).unwrap();
        assert_eq!(
            samples(&data),
            [7, 8].map(|number| Array::new(&[], vec![number]).unwrap()),
            "{text}"
        );
    }
    let mut second = b"\x93NUMPY\x02\x00".to_vec();
    second.extend((TEXT.len() as u32).to_le_bytes());
    second.extend(&golden()[10..]);
    assert_eq!(
        samples(&open::<f32>(&second).unwrap()),
        samples(&open::<f32>(&golden()).unwrap())
    );
}

/// Writes an array of each type.
const SCRIPT: &str = r#"
import numpy
for name in ["float32", "float64", "uint8", "int32", "int64", "uint32"]:
    kind = numpy.dtype(name)
    most = (numpy.finfo if kind.kind == "f" else numpy.iinfo)(kind).max
    numpy.save(name + ".npy", numpy.array([[0, 1], [2, 3], [4, most]], dtype=kind))
"#;

#[test]
fn arrays_of_all_types_are_read_as_numpy_writes_them() {
    fn check<T: Element>(file: &std::path::Path, numbers: [T; 6]) {
        let found = samples(&Npy::<T>::open(file).unwrap());
        assert_eq!(found.iter().flat_map(Array::values).copied().collect::<Vec<_>>(), numbers);
        assert_eq!(found[0].shape(), [2]);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut python = std::process::Command::new("python3");
    let output = python.args(["-c", SCRIPT]).current_dir(folder.path()).output();
    if !output.is_ok_and(|output| output.status.success()) {
        println!("skipped: python3 with the package numpy is not installed");
        return;
    }
    let file = |name: &str| folder.path().join(name).with_extension("npy");
    check(&file("float32"), [0.0_f32, 1.0, 2.0, 3.0, 4.0, f32::MAX]);
    check(&file("float64"), [0.0_f64, 1.0, 2.0, 3.0, 4.0, f64::MAX]);
    check(&file("uint8"), [0_u8, 1, 2, 3, 4, 255]);
    check(&file("int32"), [0_i32, 1, 2, 3, 4, i32::MAX]);
    check(&file("int64"), [0_i64, 1, 2, 3, 4, i64::MAX]);
    check(&file("uint32"), [0_u32, 1, 2, 3, 4, u32::MAX]);
}

#[test]
fn another_type_or_order_is_refused_by_name() {
    let with = |from: &str, to: &str| refusal(&array(&TEXT.replace(from, to), &golden()[10 + TEXT.len()..]));
    let double = with("<f4", "<f8");
    assert!(
        double.contains("array.npy, at byte 20: expected numbers of type f32 (`<f4`), found `'<f8'"),
        "{double}"
    );
    assert!(with("<f4", ">f4").contains("found `'>f4'"));
    assert!(with("'<f4'", "[('a', '<f4')]").contains("found `[('a'"), "a record");
    assert!(with("False", "True").contains("an array in C order"));
    assert!(with("(3, 1, 2)", "()").contains("at byte 60: expected an array of rows, found a single number"));
    assert!(with("(3, 1, 2)", "(-3, 1, 2)").contains("expected a size below 2^64, found `-3"));
    assert!(with("'shape': (3, 1, 2), ", "").contains("`descr`, `fortran_order` and `shape`"));
    assert!(with("shape", "shapes").contains("`descr`, `fortran_order` or `shape`"));
    assert!(with("}", "} + {}").contains("blanks up to the end of the header, found `+ {}`"));
    assert!(refusal(b"PK\x03\x04 a zip file").contains("at byte 0: expected `\\x93NUMPY`"));
    assert!(refusal(b"\x93NUMPY\x04\x00\x00\x00").contains("at byte 6: expected version 1.0"));
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    for shape in [
        "(4294967295, 1, 2)",
        "(3, 18446744073709551615, 2)",
        "(18446744073709551615, 0)",
        "(99999999999999999999,)",
        "(2, 1, 2)",
    ] {
        let text = refusal(&array(&TEXT.replace("(3, 1, 2)", shape), &golden()[10 + TEXT.len()..]));
        assert!(
            text.contains("24 bytes, as many as there are") || text.contains("a size below 2^64"),
            "{text}"
        );
    }
    let long = [b"\x93NUMPY\x02\x00\xff\xff\xff\xff", &golden()[10..]].concat();
    assert!(refusal(&long).contains("at byte 8: expected a header of at most 10000 bytes, found 4294967295"));
    let axes = refusal(&array(
        &TEXT.replace("3, 1, 2", &"1, ".repeat(3_000)),
        &golden()[10 + TEXT.len()..],
    ));
    assert!(axes.len() < 400 && axes.contains("found the shape [1, 1, "), "{axes}");
    for nested in ["(", "[", "{", "{'shape':(", "{'descr':["] {
        let text = refusal(&array(&nested.repeat(900), &[]));
        assert!(text.len() < 400, "{text}");
    }
}

#[test]
fn what_is_cut_or_flipped_is_refused_or_has_another_fingerprint() {
    let bytes = golden();
    let whole = open::<f32>(&bytes).unwrap();
    let expected = whole.fingerprint().unwrap();
    for end in 0..bytes.len() {
        refusal(&bytes[..end]);
    }
    refusal(&[&bytes[..], &[0]].concat());
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match open::<f32>(&bytes) {
            Ok(data) => assert_ne!(data.fingerprint().unwrap(), expected),
            Err(error) => assert!(matches!(error, DataError::Malformed { .. }), "bit {bit}: {error}"),
        }
    }
}

#[test]
fn two_files_make_pairs() {
    let labels = array("{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", &[0; 24]);
    let (inputs, targets) = (open::<f32>(&golden()).unwrap(), open::<i64>(&labels).unwrap());
    let prints = [inputs.fingerprint().unwrap(), targets.fingerprint().unwrap()];
    let pairs = inputs.zip(targets).unwrap();
    let (input, target) = pairs.get(2, &SampleRandom::held_out(0, 0)).unwrap();
    assert_eq!((input.values(), target.values()), (&[0.0, 3.25][..], &[0][..]));
    let parts = prints.map(|print| print.into_parts().remove(0));
    assert_eq!(pairs.fingerprint().unwrap().parts()[..2], parts);
}
