//! `sardana bench link`: real links between two real processes.

use super::program::{has, said, sardana};

#[test]
fn a_link_is_measured_through_shared_memory_and_over_quic_beside_the_machines_limits() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("rates.svg");
    for (link, through) in [("auto", "shared memory"), ("quic", "QUIC")] {
        let mut command = sardana(&format!("bench link --sizes 64B,300KiB --link {link} --json --svg"));
        let [out, _] = said(command.arg(&picture), 0);
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(found["through"], through, "{found}");
        let rows = found["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{found}");
        for (row, bytes) in rows.iter().zip([64, 307_200]) {
            assert_eq!(row["bytes"], bytes);
            let positive = |place: &str| {
                let number = row.pointer(place).and_then(serde_json::Value::as_f64);
                number
                    .filter(|number| *number > 0.0)
                    .unwrap_or_else(|| panic!("{place}: {row}"))
            };
            let trip = |name: &str| positive(&format!("/round_trip_seconds/{name}"));
            assert!(trip("min") <= trip("median") && trip("median") <= trip("p99"), "{row}");
            let one_way = positive("/one_way_bytes_per_second");
            positive("/each_way_bytes_per_second");
            positive("/processor_seconds_per_gigabyte");
            positive("/limits/copy/one_way_bytes_per_second");
            for limit in ["memory", "unix", "tcp"] {
                let rate = positive(&format!("/limits/{limit}/one_way_bytes_per_second"));
                let ratio = positive(&format!("/of_limits/{limit}/one_way"));
                assert!((ratio * rate / one_way - 1.0).abs() < 1e-9, "{row}");
                positive(&format!("/limits/{limit}/round_trip_seconds"));
                positive(&format!("/limits/{limit}/each_way_bytes_per_second"));
            }
        }
    }
    let drawn = std::fs::read_to_string(&picture).unwrap();
    has(
        &drawn,
        &[
            "<svg",
            "a link through QUIC between two processes",
            "Unix socket",
            "bytes of a message",
        ],
    );
}

#[test]
fn a_table_is_printed_line_by_line() {
    let [out, err] = said(&mut sardana("bench link --sizes 4KiB"), 0);
    has(&out, &["a link through shared memory", "round trip", "of limit", "4.0 KiB"]);
    assert_eq!(out.lines().count(), 4);
    assert_eq!(err, "", "no terminal sees how far it is");
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_is() {
    let [out, err] = said(&mut sardana("bench link --json --svg no/such/folder.svg"), 1);
    has(&err, &["no/such/folder.svg could not be written", "No such file"]);
    assert_eq!(out, "");
    let [_, err] = said(&mut sardana("bench link --sizes 2MiB..1MiB"), 2);
    has(&err, &["expected the smaller size first", "2MiB..1MiB"]);
    let mut wrong = sardana("bench link --sizes 64B --json");
    let [_, err] = said(wrong.env("SARDANA_LINK", "fast"), 1);
    has(
        &err,
        &["expected `auto` or `quic` in SARDANA_LINK", "an end of the link has ended"],
    );
    has(
        &said(&mut sardana("bench link-end"), 2)[1],
        &["this is what `sardana bench link` starts"],
    );
}

#[test]
fn help_says_what_is_measured() {
    let [text, _] = said(&mut sardana("bench link --help"), 0);
    has(
        &text,
        &[
            "round trip",
            "one way",
            "each way",
            "CPU s/GB",
            "Unix",
            "TCP",
            "encrypted",
            "Examples:",
        ],
    );
}
