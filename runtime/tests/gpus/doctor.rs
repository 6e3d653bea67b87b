//! What `sardana doctor` says of GPUs, and of the libraries that programs use on them.

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
    for name in ["NVIDIA driver", "NVRTC", "cudart", "cuBLAS", "cuRAND", "cuDNN", "NCCL"] {
        let finding = about(&findings, name);
        assert_eq!(finding["values"]["built_with_cuda"], true);
        match finding["state"].as_str() {
            Some("fine") => assert!(finding["to_do"].is_null(), "{finding}"),
            state => {
                assert!(matches!(state, Some("missing" | "limited")), "{finding}");
                assert!(finding["to_do"].is_string() && finding["found"].is_string(), "{finding}");
            }
        }
    }
}

#[test]
fn a_library_without_the_function_that_tells_its_version_is_there_and_says_what_it_lacks() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let driver = compiler.driver_files(&[]).unwrap();
    // A library, and none of these.
    for name in [
        "libnvrtc.so",
        "libcudart.so",
        "libcublas.so",
        "libcurand.so",
        "libcudnn.so",
        "libnccl.so",
    ] {
        std::fs::copy(driver.folder().join("libcuda.so"), driver.folder().join(name)).unwrap();
    }
    let found = findings(&[
        ("LD_LIBRARY_PATH", driver.folder().as_os_str()),
        ("SARDANA_NVRTC", "".as_ref()),
    ]);
    for (name, file, function) in [
        ("NVRTC", "libnvrtc.so", "nvrtcVersion"),
        ("cudart", "libcudart.so", "cudaRuntimeGetVersion"),
        ("cuBLAS", "libcublas.so", "cublasGetProperty"),
        ("cuRAND", "libcurand.so", "curandGetVersion"),
        ("cuDNN", "libcudnn.so", "cudnnGetVersion"),
        ("NCCL", "libnccl.so", "ncclGetVersion"),
    ] {
        let finding = about(&found, name);
        let words = format!("{file} is there, but it lacks the function {function}, which each version has");
        assert_eq!(
            (finding["state"].as_str(), finding["found"].as_str()),
            (Some("limited"), Some(&*words))
        );
        assert!(
            finding["to_do"].as_str().unwrap().starts_with("install CUDA's anew"),
            "{finding}"
        );
        assert_eq!(finding["values"]["version"], Value::Null);
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
    let weak = findings(&[("LD_LIBRARY_PATH", folder), ("TWIN_CAPABILITY", "75".as_ref())]);
    let gpu = about(&weak, "GPU 0");
    assert_eq!(
        (gpu["state"].as_str(), gpu["values"]["capability"].as_str()),
        (Some("limited"), Some("7.5"))
    );
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

#[test]
fn the_instances_that_agents_deal_are_told() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let files = compiler.driver_files(&[]).unwrap().with_nvml(&compiler).unwrap();
    let folder = files.folder().as_os_str();
    let found = findings(&[("LD_LIBRARY_PATH", folder), ("TWIN_GPUS", "GPU-a;GPU-b:MIG-1,MIG-2".as_ref())]);
    let nvml = about(&found, "NVML");
    assert_eq!(nvml["found"], "2 GPUs, 1 of them divided, into 2 instances");
    assert_eq!(nvml["values"]["instances"], serde_json::json!(["MIG-1", "MIG-2"]));
    // It does not begin.
    let found = findings(&[("LD_LIBRARY_PATH", folder)]);
    let nvml = about(&found, "NVML");
    assert!(nvml["state"] == "missing" && nvml["to_do"].is_string(), "{nvml}");
}
