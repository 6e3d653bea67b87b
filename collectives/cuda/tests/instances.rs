//! GPUs by name, and the instances of those that are divided, as NVML tells them: each case in a process of its own, whose loader finds a twin of NVML.

#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::path::Path;
use std::process::Command;

use sardana_cuda::instances;
use sardana_twins::Compiler;

/// Set in the processes that only ask.
const ASK: &str = "SARDANA_TEST_ASKS";

/// Not a test by itself: what a process says that was started by the others.
#[test]
fn asks() {
    if std::env::var_os(ASK).is_none() {
        return;
    }
    let gpus = instances::gpus();
    assert_eq!(gpus, instances::gpus(), "it begins and ends as often as it is asked");
    let words = gpus.unwrap_or_default().into_iter().map(|gpu| match gpu.instances {
        None => gpu.name,
        Some(names) => format!("{}=[{}]", gpu.name, names.join(" ")),
    });
    println!("asked: {}", words.collect::<Vec<_>>().join(" "));
}

/// What a process says whose loader looks into `folder` first.
fn said(folder: &Path, gpus: Option<&str>) -> String {
    let mut asks = Command::new(std::env::current_exe().unwrap());
    asks.args(["--exact", "asks", "--nocapture"])
        .envs(gpus.map(|gpus| ("TWIN_GPUS", gpus)));
    let output = asks.env(ASK, "1").env("LD_LIBRARY_PATH", folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let words = text.lines().find_map(|line| Some(line.split_once("asked: ")?.1));
    words.unwrap_or_else(|| panic!("nothing was said: {text}")).to_owned()
}

#[test]
fn gpus_are_named_with_the_instances_of_those_that_are_divided() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let files = compiler
        .driver_files(&[])
        .and_then(|files| files.with_nvml(&compiler))
        .unwrap();
    let of = |gpus| said(files.folder(), Some(gpus));
    assert_eq!(of("GPU-a;GPU-b?"), "GPU-a GPU-b");
    // With gaps between the instances, as where some were deleted.
    assert_eq!(of("GPU-a:MIG-1,,MIG-2,MIG-3"), "GPU-a=[MIG-1 MIG-2 MIG-3]");
    assert_eq!(of("GPU-a;GPU-b:MIG-1;GPU-c:;GPU-d?"), "GPU-a GPU-b=[MIG-1] GPU-c=[] GPU-d");
    // One that is another container's, and one that does not answer.
    assert_eq!(of("GPU-a!;GPU-b:MIG-1"), "GPU-b=[MIG-1]");
    let long = format!("GPU-{};GPU-b", "a".repeat(96));
    assert_eq!(of(&long), "GPU-b");
}

#[test]
fn without_nvml_or_where_it_does_not_begin_none_is_named() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let files = compiler.driver_files(&[]).unwrap();
    // A library without its functions, as an older one is.
    std::fs::copy(files.folder().join("libcuda.so"), files.folder().join("libnvidia-ml.so.1")).unwrap();
    assert_eq!(said(files.folder(), Some("GPU-a")), "");
    let files = files.with_nvml(&compiler).unwrap();
    assert_eq!(said(files.folder(), None), "");
    let none = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/null", none.path().join("libnvidia-ml.so.1")).unwrap();
    std::os::unix::fs::symlink("/dev/null", none.path().join("libnvidia-ml.so")).unwrap();
    assert_eq!(said(none.path(), Some("GPU-a")), "");
}
