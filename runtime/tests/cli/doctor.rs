//! `sardana doctor`: what this machine has, for people and for programs.

use super::program::{has, said, sardana};

/// What is looked at on every host, in this order.
const HOST: [&str; 8] = [
    "processors",
    "memory",
    "huge pages",
    "loopback",
    "socket buffers",
    "open files",
    "locked memory",
    "NVIDIA module",
];

#[test]
fn each_thing_says_what_was_found_what_it_is_needed_for_and_what_to_do() {
    let [out, err] = said(&mut sardana("doctor --json"), 0);
    assert_eq!(err, "");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["program"], env!("CARGO_PKG_VERSION"));
    let findings = found["findings"].as_array().unwrap();
    let about: Vec<&str> = findings.iter().map(|finding| finding["about"].as_str().unwrap()).collect();
    assert_eq!(about[..HOST.len()], HOST);
    for finding in findings {
        let words = |name: &str| finding[name].as_str().is_some_and(|words| !words.is_empty());
        assert!(
            words("found") && words("needed_for") && finding["values"].is_object(),
            "{finding}"
        );
        match finding["state"].as_str() {
            Some("fine") => assert!(finding["to_do"].is_null(), "{finding}"),
            Some("limited" | "missing") => assert!(words("to_do"), "{finding}"),
            state => assert_eq!(state, Some("unknown"), "{finding}"),
        }
    }
    let processors = &findings[0]["values"];
    let count = std::thread::available_parallelism().unwrap().get();
    assert_eq!(processors["count"], count);
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 = std::arch::is_x86_feature_detected!("avx2");
        assert_eq!(processors["additions"] == "AVX2", has_avx2, "{processors}");
        let features = processors["features"].as_array().unwrap();
        assert_eq!(features.iter().any(|feature| feature == "avx2"), has_avx2, "{processors}");
    }
    assert!(findings[1]["values"]["available"].as_u64() > Some(1 << 20));
}

#[test]
fn people_read_the_same_line_by_line() {
    let [out, err] = said(&mut sardana("doctor"), 0);
    assert_eq!(err, "");
    let lines: Vec<&str> = out.lines().collect();
    for about in HOST {
        let at = lines.iter().position(|line| line.starts_with(&format!("{about:<20}")));
        let at = at.unwrap_or_else(|| panic!("{about} is missing from: {out}"));
        assert!(lines[at + 1].trim_start().starts_with("for: "), "{out}");
    }
    let last = lines.last().unwrap();
    has(last, &[" fine, ", " limited, ", " missing, ", " unknown"]);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_program_that_cannot_ask_for_gpus_says_how_to_build_one_that_can() {
    let [out, _] = said(&mut sardana("doctor"), 0);
    has(
        &out,
        &[
            "built without `cuda`",
            "do: cargo build --release -p sardana --bin sardana --features cuda",
        ],
    );
}

#[test]
fn a_limit_that_is_low_says_how_to_raise_it() {
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -S -n 256 && exec \"$0\" doctor --json"])
        .arg(env!("CARGO_BIN_EXE_sardana"));
    let [out, _] = said(&mut limited, 0);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    let files = &found["findings"][5];
    assert_eq!(
        (&files["state"], &files["values"]["now"]),
        (&"limited".into(), &256.into()),
        "{files}"
    );
    assert_eq!(files["to_do"], "ulimit -n 1024");
}
