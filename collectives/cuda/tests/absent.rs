//! What is said where there is no driver that can be used: each case in a process of its own, whose loader looks into a folder of the test's.

#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sardana_cuda::driver::{Absent, Driver, FUNCTIONS, OLDEST, OLDEST_GPU, Version};
use sardana_twins::Compiler;

/// Set in the processes that only ask.
const ASK: &str = "SARDANA_TEST_ASKS";

/// Not a test by itself: what a process says that was started by the others.
#[test]
fn asks() {
    if std::env::var_os(ASK).is_none() {
        return;
    }
    let absent = Driver::of_this_machine();
    assert_eq!(absent, Driver::of_this_machine(), "the answer stays");
    match absent.and_then(|driver| Ok((driver.devices(), driver.first()?))) {
        Ok((devices, _)) => println!("asked: {devices} devices"),
        Err(absent) => println!("asked: {absent}"),
    }
}

/// What a process says whose loader looks into `folder` first, with these variables besides.
fn said_with(folder: &Path, variables: &[(&str, &str)]) -> String {
    let mut asks = Command::new(std::env::current_exe().unwrap());
    asks.args(["--exact", "asks", "--nocapture"]).envs(variables.iter().copied());
    let output = asks.env(ASK, "1").env("LD_LIBRARY_PATH", folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let words = text.split_once("asked: ").map(|(_, words)| words);
    words
        .unwrap_or_else(|| panic!("nothing was said: {text}"))
        .lines()
        .next()
        .unwrap()
        .to_owned()
}

fn said(folder: &Path) -> String {
    said_with(folder, &[])
}

/// The file of a library that this process has open, whatever its folder is called here.
fn any_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let found = paths.find(|path| path.contains("libgcc_s.so") || path.contains("libm.so"));
    PathBuf::from(found.expect("Rust's programs have one of these open"))
}

#[test]
fn no_library_is_said_in_the_loaders_words() {
    let folder = tempfile::tempdir().unwrap();
    if let Err(Absent::Library { reason }) = Driver::of_this_machine() {
        let words = said(folder.path());
        assert_eq!(words, Absent::Library { reason }.to_string());
        assert!(
            words.contains("libcuda.so.1, found none") && words.contains("No such file"),
            "{words}"
        );
    } else {
        println!("skipped: this machine has an NVIDIA driver");
    }
}

#[test]
fn a_file_that_is_no_library_is_not_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("libcuda.so"),
        "not a library, and long enough to be looked at by the loader of programs",
    )
    .unwrap();
    // Where there is a driver it is found by its other names.
    if Driver::of_this_machine().is_ok() {
        return println!("skipped: this machine has an NVIDIA driver");
    }
    let words = said(folder.path());
    assert!(
        words.contains("libcuda.so.1, found none") && words.contains("invalid ELF header"),
        "{words}"
    );
}

#[test]
fn a_library_without_the_drivers_functions_is_told_by_the_first_that_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(any_library(), folder.path().join("libcuda.so")).unwrap();
    let words = said(folder.path());
    assert!(
        words.starts_with("expected cuCtxGetCurrent in the NVIDIA driver's library libcuda.so, which lacks it"),
        "{words}"
    );
}

#[test]
fn a_driver_that_is_there_says_how_many_gpus_it_shows_or_why_it_does_not_start() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let driver = compiler.driver(&[]).unwrap();
    let says = |variables: &[(&str, &str)]| said_with(driver.folder(), variables);
    assert_eq!(says(&[]), "1 devices");
    assert_eq!(says(&[("TWIN_DEVICES", "8")]), "8 devices");
    for none in [("TWIN_DEVICES", "0"), ("TWIN_INIT", "100")] {
        assert_eq!(says(&[none]), Absent::NoDevice.to_string());
    }
    let refused = |code, name: &str| Absent::Refused {
        code,
        name: name.to_owned(),
    };
    let mismatch = refused(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
    assert_eq!(says(&[("TWIN_INIT", "803")]), mismatch.to_string());
    assert_eq!(says(&[("TWIN_INIT", "12345")]), refused(12_345, "unknown").to_string());
    let old = Absent::Old {
        found: Version { major: 12, minor: 4 },
    };
    assert_eq!(says(&[("TWIN_VERSION", "12040")]), old.to_string());
    let weak = Absent::Capability {
        ordinal: 0,
        found: Version { major: 7, minor: 5 },
    };
    assert_eq!(says(&[("TWIN_CAPABILITY", "75")]), weak.to_string());
    assert_eq!(says(&[("TWIN_CAPABILITY", "80")]), "1 devices");
}

#[test]
fn the_oldest_gpus_are_those_that_the_kernels_are_compiled_for() {
    let target = format!(".target sm_{}{}\n", OLDEST_GPU.major, OLDEST_GPU.minor);
    for module in sardana_cuda::kernels::Module::ALL {
        assert!(module.ptx().contains(&target), "{}", module.name());
    }
}

#[test]
fn the_functions_that_are_looked_for_are_those_that_are_called() {
    // The twin has these alone, and the other tests call all of the device layer on it: the bindings would end them with a panic at one that it lacks.
    let mut functions = sardana_twins::Driver::functions();
    functions.retain(|function| *function != "cuFuncGetParamInfo");
    functions.sort_unstable();
    let mut expected = FUNCTIONS;
    expected.sort_unstable();
    assert_eq!(functions, expected);
}

#[test]
fn the_oldest_driver_is_the_first_that_reads_the_kernels() {
    // CUDA 12.8 brought version 8.7 of PTX.
    for module in sardana_cuda::kernels::Module::ALL {
        assert!(module.ptx().contains(".version 8.7\n"), "{}", module.name());
    }
    assert_eq!(OLDEST, Version { major: 12, minor: 8 });
}
