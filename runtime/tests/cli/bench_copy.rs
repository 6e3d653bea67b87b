//! `sardana bench copy`: real workers that join, are killed and come back.

use super::program::{has, said, sardana};

#[test]
fn a_join_kills_and_a_restore_are_measured_and_nothing_stays_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = tempfile::tempdir().unwrap();
    let picture = drawn.path().join("ways.svg");
    for (link, rest) in [("auto", "-n 2 --kills 2"), ("quic", "-n 1 --kills 0")] {
        let mut command = sardana(&format!(
            "bench copy --state 3MiB --step-ms 8 {rest} --link {link} --json --dir"
        ));
        let [out, _] = said(command.arg(folder.path()).arg("--svg").arg(&picture), 0);
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(found["state_bytes"], 3 << 20, "{found}");
        let number = |place: &str| {
            let number = found.pointer(place).and_then(serde_json::Value::as_f64);
            number
                .filter(|number| *number > 0.0)
                .unwrap_or_else(|| panic!("{place}: {found}"))
        };
        for limit in ["memory", "tcp", "tcp_whole", "file"] {
            number(&format!("/limits_bytes_per_second/{limit}"));
        }
        // Gradients sleep so long, whatever else there is to do.
        assert!(number("/step_seconds/median") >= 0.0079, "{found}");
        assert!(number("/step_seconds/max") >= number("/step_seconds/p99"), "{found}");
        for longest in ["starting", "copying", "taking_part"] {
            number(&format!("/join/longest_step_seconds/{longest}"));
        }
        let parts = [
            "start_to_hello_seconds",
            "hello_to_snapshot_seconds",
            "snapshot_to_copied_seconds",
            "copied_to_caught_up_seconds",
            "caught_up_to_taking_part_seconds",
        ];
        let sum: f64 = parts.iter().map(|part| number(&format!("/join/{part}"))).sum();
        assert!(
            (sum / number("/join/start_to_taking_part_seconds") - 1.0).abs() < 1e-9,
            "{found}"
        );
        let copied = number("/join/copied_bytes_per_second") * number("/join/snapshot_to_copied_seconds");
        assert!((copied / f64::from(3 << 20) - 1.0).abs() < 1e-9, "{found}");
        let kills = if link == "auto" { 2 } else { 0 };
        for times in ["to_next_update_seconds", "to_taking_part_seconds"] {
            let times = found["kills"][times].as_array().unwrap();
            assert_eq!(times.len(), kills, "{found}");
            assert!(times.iter().all(|time| time.as_f64().unwrap() > 0.0), "{found}");
        }
        // No part is left out. (They may overlap: one is over where a worker is, the next begins where this is heard of.)
        let ways = found["kills"]["ways"].as_array().unwrap();
        for (kill, way) in ways.iter().enumerate() {
            let of = |times: &str| found["kills"][times][kill].as_f64().unwrap();
            let sum = of("to_process_start_seconds") + way["start_to_taking_part_seconds"].as_f64().unwrap();
            assert!(sum > of("to_taking_part_seconds") - 1e-6, "{found}");
        }
        assert_eq!(ways.len(), kills);
        let svg = std::fs::read_to_string(&picture).unwrap();
        has(&svg, &["<svg", "process start to hello", "stop to disk", "seconds", "</svg>"]);
        assert_eq!(svg.contains("SIGKILL to process start"), kills > 0, "{svg}");
        let processors = number("/join/processor_seconds");
        let gigabytes = f64::from(3 << 20) / 1e9;
        let per_gigabyte = number("/join/processor_seconds_per_gigabyte") * gigabytes;
        assert!((per_gigabyte / processors - 1.0).abs() < 1e-9, "{found}");
        number("/restore/processor_seconds");
        for part in ["save", "restore"] {
            let bytes = number(&format!("/{part}/seconds")) * number(&format!("/{part}/bytes_per_second"));
            assert!((bytes / f64::from(3 << 20) - 1.0).abs() < 1e-9, "{found}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_report_is_printed_for_people() {
    let [out, err] = said(&mut sardana("bench copy --state 1MiB --step-ms 4 -n 1 --kills 1"), 0);
    has(
        &out,
        &[
            "a state of 1.0 MiB, 1 workers; a step takes",
            "limits    copy into fresh memory",
            "process start to hello",
            "copied and compared",
            "longest step while it copies",
            "SIGKILL to another takes part",
            "processors of all workers meanwhile",
            "save      stop to disk",
            "restore   checkpoint chosen",
        ],
    );
    assert_eq!(err, "", "no terminal sees how far it is");
}

#[test]
fn what_does_not_fit_is_refused_before_anything_begins() {
    let [out, err] = said(&mut sardana("bench copy --state 4GiB -n 16"), 1);
    has(
        &err,
        &[
            "a state of 4.0 GiB with 16 workers needs 144.2 GiB of memory",
            "give a smaller --state",
        ],
    );
    assert_eq!(out, "");
    let [_, err] = said(&mut sardana("bench copy --state 1MiB --svg no/such/folder.svg"), 1);
    has(&err, &["no/such/folder.svg could not be written", "No such file"]);
    let [_, err] = said(&mut sardana("bench copy --state 1MiB --dir no/such/folder"), 1);
    let expected = [
        "expected a folder that files can be written to, found no/such/folder",
        "No such file",
        "create it, or name another one by --dir",
    ];
    has(&err, &expected);
    for (wrong, expected) in [
        ("--state nothing", "expected a size from 4B to 4GiB"),
        ("--ranks 0", "0 is not in 1..=16"),
        ("--step-ms 10001", "10001 is not in 0..=10000"),
    ] {
        has(&said(&mut sardana(&format!("bench copy {wrong}")), 2)[1], &[expected]);
    }
    let member = "bench member --state 4 --shards 1 --rest-us 0 --folder x";
    has(
        &said(&mut sardana(member), 2)[1],
        &["this is what `sardana bench copy` starts"],
    );
}

#[test]
fn help_says_what_is_measured() {
    let [text, _] = said(&mut sardana("bench copy --help"), 0);
    has(
        &text,
        &[
            "join",
            "kill",
            "save",
            "restore",
            "SIGKILL",
            "Limits of this machine",
            "--step-ms",
            "Examples:",
        ],
    );
}
