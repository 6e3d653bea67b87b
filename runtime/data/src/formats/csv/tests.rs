//! Tables as people have them, and what is wrong in them.

use std::fs;

use super::*;

fn open(text: impl AsRef<[u8]>, options: &CsvOptions) -> Result<Csv, DataError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.csv");
    fs::write(&path, text).unwrap();
    Csv::open(&path, options)
}

fn rows(data: &Csv) -> Vec<(Vec<f64>, Vec<f64>)> {
    let random = SampleRandom::held_out(0, 0);
    let rows = (0..data.len()).map(|index| data.get(index, &random).unwrap());
    rows.map(|(inputs, targets)| (inputs.into_values(), targets.into_values()))
        .collect()
}

fn refusal(text: impl AsRef<[u8]>, options: &CsvOptions) -> String {
    let error = open(text, options).unwrap_err();
    assert!(matches!(error, DataError::Malformed { .. }), "{error}");
    error.to_string()
}

const TABLE: &str = "age, height,\"name, full\",price\n1,2.5,x,-3e2\r\n\n\" 4 \",5,,.5";

#[test]
fn the_last_column_is_the_target_unless_others_are_named() {
    let plain = CsvOptions::default();
    let numbers = open("a,b,c\n1,2,3\n4,5,6\n", &plain).unwrap();
    let expected = [(vec![1.0, 2.0], vec![3.0]), (vec![4.0, 5.0], vec![6.0])];
    assert_eq!(rows(&numbers), expected);
    assert_eq!(
        rows(&open("1,2,3\n4,5,6", &CsvOptions::default().without_header()).unwrap()),
        expected
    );
    let tabs = CsvOptions::default().delimiter(b'\t');
    assert_eq!(rows(&open("a\tb\tc\n1\t2\t3\n4\t5\t6", &tabs).unwrap()), expected);
    let by_name = CsvOptions::default().inputs(["height"]).targets(["price", "age"]);
    let expected = [(vec![2.5], vec![-300.0, 1.0]), (vec![5.0], vec![0.5, 4.0])];
    assert_eq!(rows(&open(TABLE, &by_name).unwrap()), expected);
    let by_number = CsvOptions::default().inputs([1]).targets([3, 0]);
    assert_eq!(rows(&open(TABLE, &by_number).unwrap()), expected);
    let marked = [b"\xef\xbb\xbf", TABLE.as_bytes()].concat();
    assert_eq!(
        rows(&open(marked, &by_name).unwrap()),
        expected,
        "a byte order mark is no part of a name"
    );
    let data = open("a,b\n", &plain).unwrap();
    assert!(data.is_empty());
    assert!(matches!(
        data.get(0, &SampleRandom::held_out(0, 0)),
        Err(DataError::NoSample { samples: 0, index: 0 })
    ));
}

#[test]
fn a_bad_cell_is_named_by_line_and_column() {
    let plain = CsvOptions::default();
    let text = refusal("a,b\n1,2\n3,four\n", &plain);
    assert!(
        text.contains("table.csv, at byte 8: expected a finite number in line 3, column 1 (`b`), found `four`"),
        "{text}"
    );
    assert!(refusal("a,b\n1,2\n,4\n", &plain).contains("column 0 (`a`), found an empty cell"));
    for cell in ["NaN", "inf", "-infinity", "1e999"] {
        let text = refusal(format!("a,b\n{cell},2\n"), &plain);
        assert!(
            text.contains(&format!("found `{cell}`, after which every weight would be NaN")),
            "{text}"
        );
    }
    assert!(refusal(b"a,b\n1,\xff\n", &plain).contains("found `\u{fffd}`"));
    let text = refusal("1,2,3\n4,5", &CsvOptions::default().without_header());
    assert!(
        text.contains("at byte 6: expected 3 cells in line 2, as many as in the first, found 2 of them"),
        "{text}"
    );
    let text = refusal(format!("a,b\n1,{}", "x".repeat(100_000)), &plain);
    assert!(text.len() < 400, "{text}");
}

#[test]
fn columns_that_are_not_there_are_named() {
    let text = refusal(TABLE, &CsvOptions::default().targets(["prize"]));
    assert!(
        text.contains("one column `prize`, found the columns `age`, `height`, `name, full`, `price`"),
        "{text}"
    );
    assert!(refusal(TABLE, &CsvOptions::default().inputs([4])).contains("a column 4 (from 0), found columns 0 to 3"));
    assert!(refusal("a,a,b\n1,2,3", &CsvOptions::default().inputs(["a"])).contains("two, 0 and 1"));
    assert!(refusal("1,2", &CsvOptions::default().without_header().inputs(["a"])).contains("without a header"));
    assert!(refusal("a,b\n1,2", &CsvOptions::default().inputs(["b"])).contains("column 1 as both"));
    assert!(refusal("a\n1", &CsvOptions::default()).contains("none beside the target"));
    for options in [CsvOptions::default(), CsvOptions::default().without_header()] {
        assert!(refusal("", &options).contains("an empty file"));
    }
    let error = Csv::open(Path::new("/nowhere/at/all"), &CsvOptions::default()).unwrap_err();
    assert!(matches!(error, DataError::Io { .. }), "{error}");
}

#[test]
fn what_is_cut_or_flipped_is_refused_or_has_another_fingerprint() {
    let options = CsvOptions::default().inputs([1]).targets([3, 0]);
    let whole = open(TABLE, &options).unwrap().fingerprint().unwrap();
    let check = |bytes: &[u8]| match open(bytes, &options) {
        Ok(data) => assert_ne!(data.fingerprint().unwrap(), whole),
        Err(error) => assert!(matches!(error, DataError::Malformed { .. }), "{error}"),
    };
    (0..TABLE.len()).for_each(|end| check(&TABLE.as_bytes()[..end]));
    for bit in 0..TABLE.len() * 8 {
        let mut bytes = TABLE.as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        check(&bytes);
    }
}

#[test]
fn the_fingerprint_says_which_columns_are_used_of_which_file() {
    let print = |options: CsvOptions| open("a,b,c\n1,2,3\n", &options).unwrap().fingerprint().unwrap();
    let plain = print(CsvOptions::default());
    assert_eq!(plain, print(CsvOptions::default().inputs(["a", "b"]).targets([2])));
    assert_ne!(plain, print(CsvOptions::default().inputs(["b", "a"])));
    let print = |options: CsvOptions| open("1,2\n3,4\n", &options).unwrap().fingerprint().unwrap();
    assert_ne!(print(CsvOptions::default()), print(CsvOptions::default().without_header()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.csv");
    // Longer than any buffer.
    fs::write(&path, format!("a,b\n{}", "1,2\n".repeat(50_000))).unwrap();
    let data = Csv::open(&path, &CsvOptions::default()).unwrap();
    assert_eq!(data.len(), 50_000);
    let part = data.fingerprint().unwrap().into_parts().remove(0);
    assert_eq!(
        (part.name.as_str(), part.hash),
        ("long.csv", crate::fingerprint::of_file(&path).unwrap())
    );
}
