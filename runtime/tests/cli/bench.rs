//! `sardana bench`: real workers, and figures that can be.

use super::program::{has, said, sardana};

#[test]
fn an_all_reduce_is_measured_through_shared_memory_and_over_quic_beside_the_machines_limits() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("rates.svg");
    for (link, kind) in [("auto", "shared memory"), ("quic", "QUIC")] {
        let mut command = sardana(&format!(
            "bench all-reduce -n 2 --shards 2 --sizes 4KiB,300KiB --link {link} --json --svg"
        ));
        let [out, _] = said(command.arg(&picture), 0);
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&found["ranks"], &found["shards"]), (&2.into(), &4.into()), "{found}");
        let rows = found["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{found}");
        for (row, bytes) in rows.iter().zip([4_096, 307_200]) {
            assert_eq!(row["bytes"], bytes);
            assert_eq!(row["links"], serde_json::json!([kind]));
            let number = |name: &str| row[name].as_f64().unwrap();
            let (least, median) = (number("min_seconds"), number("median_seconds"));
            assert!(0.0 < least && least <= median, "{row}");
            let rate = number("bytes_per_second") * median / f64::from(bytes);
            assert!((rate - 1.0).abs() < 1e-9, "{row}");
            let limits = row["limits_bytes_per_second"].as_object().unwrap();
            assert!(limits.values().all(|limit| limit.as_f64().unwrap() > 0.0), "{row}");
            assert!(
                number("processor_seconds_per_gigabyte") > 0.0 && number("of_limit") > 0.0,
                "{row}"
            );
        }
    }
    let drawn = std::fs::read_to_string(&picture).unwrap();
    has(
        &drawn,
        &[
            "<svg",
            "all-reduce of f32, 2 ranks, K = 4, exact order",
            "TCP within the host",
        ],
    );
}

#[test]
fn a_table_is_printed_line_by_line() {
    let [out, _] = said(&mut sardana("bench all-reduce -n 1 --sizes 64KiB --plan fast"), 0);
    has(&out, &["1 ranks, K = 1, fast order", "median", "of limit", "64.0 KiB"]);
    assert_eq!(out.lines().count(), 3);
    let compressed = "bench all-reduce -n 2 --sizes 300KiB --plan fast --compression bf16";
    let [out, _] = said(&mut sardana(compressed), 0);
    has(&out, &["2 ranks, K = 2, fast order", "bf16", "300.0 KiB"]);
}

#[test]
fn a_picture_that_cannot_be_written_is_said_before_anything_is_measured() {
    let [out, err] = said(&mut sardana("bench all-reduce --json --svg no/such/folder.svg"), 1);
    has(&err, &["no/such/folder.svg could not be written", "No such file"]);
    assert_eq!(out, "");
}

#[test]
fn sizes_that_cannot_be_are_said_with_what_was_expected() {
    for wrong in ["nothing", "2MiB..1MiB", "9TiB"] {
        let [_, err] = said(&mut sardana(&format!("bench all-reduce --sizes {wrong}")), 2);
        has(&err, &["expected", wrong]);
    }
    has(
        &said(
            &mut sardana("bench rank --bytes 4 --warm-up 1 --steps 1 --ranks 1 --shards 1 --folder x"),
            2,
        )[1],
        &["all-reduce"],
    );
}

#[test]
fn sums_are_measured_beside_a_plain_loop() {
    let [out, _] = said(&mut sardana("bench sums --sizes 64KiB --terms 1,3 --json"), 0);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    let of = |row: &serde_json::Value| (row["type"].as_str().unwrap().to_owned(), row["gradients"].as_u64().unwrap());
    let rows = found["rows"].as_array().unwrap();
    let expected = [("f32", 1), ("f64", 1), ("f32", 3), ("f64", 3)].map(|(dtype, terms)| (dtype.to_owned(), terms));
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        let ratio = number("ratio") * number("seconds") / number("plain_seconds");
        assert!(number("seconds") > 0.0 && (ratio - 1.0).abs() < 1e-9, "{row}");
    }
    let [_, err] = said(&mut sardana("bench sums --sizes 1GiB --terms 16"), 2);
    has(&err, &["expected at most 8.0 GiB", "16 gradients of 1.0 GiB"]);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_program_that_was_built_without_gpus_measures_none_and_says_how_to_build_one() {
    let [out, err] = said(&mut sardana("bench gpu --size 1MiB"), 1);
    assert_eq!(out, "");
    has(&err, &["expected a program that can compute on a GPU", "--features cuda"]);
}
