//! What is said where NVRTC cannot be used: each case in a process of its own, which is told where the compiler is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sardana_cuda::program::{Options, Program};
use sardana_twins::{Compiler, DriverFiles};

use super::swish::{SOURCE, device};

/// Set in the processes that only ask.
const ASK: &str = "SARDANA_TEST_COMPILES";

/// Not a test by itself: what a process says that was started by the others.
#[test]
fn asks() {
    if std::env::var_os(ASK).is_none() {
        return;
    }
    let device = device();
    let error = Program::compile(&device, "swish.cu", SOURCE, &Options::new()).unwrap_err();
    let again = Program::compile(&device, "swish.cu", SOURCE, &Options::new()).unwrap_err();
    assert_eq!(error, again, "the answer stays");
    println!("asked: {error}");
}

fn said(driver: &DriverFiles, nvrtc: &Path) -> String {
    let mut asks = Command::new(std::env::current_exe().unwrap());
    asks.args(["--exact", "absent::asks", "--nocapture"])
        .envs(driver.environment());
    let output = asks.env(ASK, "1").env("SARDANA_NVRTC", nvrtc).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let words = text.split_once("asked: ").map(|(_, words)| words);
    let words = words.unwrap_or_else(|| panic!("nothing was said: {text}"));
    words.lines().next().unwrap().to_owned()
}

/// The file of a library that this process has open, whatever its folder is called here.
fn any_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let found = paths.find(|path| path.contains("libgcc_s.so") || path.contains("libm.so"));
    PathBuf::from(found.expect("Rust's programs have one of these open"))
}

#[test]
fn a_compiler_that_is_missing_or_another_library_is_told_with_what_to_do() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let driver = compiler.driver_files(&[]).unwrap();
    let words = said(&driver, &driver.folder().join("libnvrtc.so"));
    assert!(
        words.starts_with("expected NVRTC, NVIDIA's compiler as a library (libnvrtc.so), to compile kernels, found none: ")
            && words.contains("No such file")
            && words.contains("pip install nvidia-cuda-nvrtc-cu12"),
        "{words}"
    );
    let words = said(&driver, &any_library());
    assert!(
        words.starts_with("expected nvrtcVersion in NVRTC's library ") && words.contains("which lacks it"),
        "{words}"
    );
}
