//! `sardana doctor` and `sardana bench gpu` of a program that asks for GPUs: without a driver, and with one that is none.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::path::Path;
use std::process::{Command, Output};

use sardana_cuda::kernels::Module;
use sardana_twins::{Compiler, DriverFiles, Source};
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
    let Some(compiler) = Compiler::or_skip() else { return };
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

/// A driver with all kernels.
fn driver(compiler: &Compiler) -> DriverFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collectives/cuda/kernels");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let sources = Module::ALL.map(|module| {
        let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
        let file = format!("{}.cu", module.name());
        Source::new(&file, &read(&file), &names).including("prelude.cuh", &read("prelude.cuh"))
    });
    compiler.driver_files(&sources).unwrap()
}

fn bench(arguments: &[&str], driver: Option<&DriverFiles>) -> Output {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_sardana"));
    bench.args(["bench", "gpu"]).args(arguments);
    bench.envs(driver.map(DriverFiles::environment).unwrap_or_default());
    bench.output().unwrap()
}

#[test]
fn what_a_gpu_reaches_is_measured_beside_its_own_copies() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let driver = driver(&compiler);
    let output = bench(&["--size", "32000B", "--json"], Some(&driver));
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        found["device"].as_str().unwrap().starts_with("cuda, Twin of a GPU"),
        "{found}"
    );
    let rows = found["rows"].as_array().unwrap();
    // What is read and written, in gradients; and what it is compared with.
    let expected = [
        ("copy within", 2, ""),
        ("pack", 2, "a copy within"),
        ("ordered sum", 4, "a copy within"),
        ("mean", 2, "a copy within"),
        ("AdamW", 7, "a copy within"),
        ("BLAKE3", 1, ""),
        ("copy up, pinned", 1, ""),
        ("copy down, pinned", 1, ""),
        ("ring of two workers", 4, "copies up and down"),
    ];
    assert_eq!(rows.len(), expected.len(), "{found}");
    for (row, (what, gradients, beside)) in rows.iter().zip(expected) {
        // A multiple of what gradients are aligned to.
        assert_eq!(
            (row["what"].as_str(), row["bytes"].as_u64()),
            (Some(what), Some(32_000 * gradients))
        );
        let rate = row["bytes_per_second"].as_f64().filter(|rate| *rate > 0.0).unwrap();
        assert_eq!(row["limit"]["what"].as_str().unwrap_or_default(), beside);
        if let Some(limit) = row["limit"]["bytes_per_second"].as_f64() {
            let part = row["of_limit"].as_f64().unwrap();
            assert!((part * limit / rate - 1.0).abs() < 1e-9, "{row}");
        }
    }
    let table = bench(&["--size", "4KiB"], Some(&driver));
    let table = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.lines().count(), 2 + expected.len(), "{table}");
}

#[test]
fn what_cannot_be_measured_on_a_gpu_is_said() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let driver = driver(&compiler);
    let large = bench(&["--size", "2GiB"], Some(&driver));
    let words = String::from_utf8(large.stderr).unwrap();
    assert_eq!(large.status.code(), Some(1), "{words}");
    assert!(
        words.contains("expected 10.1 GiB of the GPU's memory") && words.contains("smaller --size"),
        "{words}"
    );
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.path().join("libcuda.so")).unwrap();
    let mut none = Command::new(env!("CARGO_BIN_EXE_sardana"));
    let none = none
        .args(["bench", "gpu"])
        .env("LD_LIBRARY_PATH", folder.path())
        .output()
        .unwrap();
    let words = String::from_utf8(none.stderr).unwrap();
    assert_eq!(none.status.code(), Some(1), "{words}");
    assert!(words.contains("expected the NVIDIA driver's library"), "{words}");
}
