//! `sardana doctor` of a program that asks for GPUs: without a driver, and with one that is none.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::process::Command;

use sardana_twins::Compiler;
use serde_json::Value;

/// What it finds with these variables, by what each is about.
fn findings(variables: &[(&str, &std::ffi::OsStr)]) -> Vec<Value> {
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_sardana"));
    let output = doctor
        .args(["doctor", "--json"])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["findings"].as_array().unwrap().clone()
}

fn about<'a>(findings: &'a [Value], about: &str) -> &'a Value {
    let found = findings.iter().find(|finding| finding["about"] == about);
    found.unwrap_or_else(|| panic!("{about} is missing from {findings:?}"))
}

#[test]
fn each_library_is_found_or_says_why_not_and_what_it_would_be_for() {
    let findings = findings(&[]);
    for name in ["NVIDIA driver", "NVRTC", "cuBLAS", "cuDNN", "NCCL"] {
        let finding = about(&findings, name);
        assert_eq!(finding["values"]["built_with_cuda"], true);
        match finding["state"].as_str() {
            Some("fine") => assert!(finding["to_do"].is_null(), "{finding}"),
            state => {
                assert_eq!(state, Some("missing"));
                assert!(finding["to_do"].is_string() && finding["found"].is_string(), "{finding}");
            }
        }
    }
}

#[test]
fn gpus_are_told_as_the_driver_shows_them() {
    let Some(compiler) = Compiler::find() else {
        return println!("skipped: no C++ compiler is installed, or the variable CXX names none");
    };
    let driver = compiler.driver(&[]).unwrap();
    let folder = driver.folder().as_os_str();
    let found = findings(&[("LD_LIBRARY_PATH", folder), ("TWIN_DEVICES", "2".as_ref())]);
    assert_eq!(about(&found, "NVIDIA driver")["values"]["version"], "12.8");
    let first = &about(&found, "GPU 0")["values"];
    let expected = serde_json::json!({
        "name": "Twin of a GPU", "capability": "9.0", "memory": 4_u64 << 30, "multiprocessors": 132, "is_instance": false,
    });
    assert_eq!(*first, expected);
    assert_eq!(about(&found, "GPU 1")["values"]["is_instance"], true);
    let old = findings(&[("LD_LIBRARY_PATH", folder), ("TWIN_VERSION", "11040".as_ref())]);
    let driver = about(&old, "NVIDIA driver");
    assert_eq!(
        driver["found"],
        "expected an NVIDIA driver for CUDA 12.8 or later, found one for 11.4"
    );
    assert_eq!(
        driver["to_do"],
        "install a newer driver, or run on processors with `--device cpu`"
    );
    assert!(old.iter().all(|finding| finding["about"] != "GPU 0"));
}
