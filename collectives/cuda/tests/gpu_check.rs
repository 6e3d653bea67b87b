//! The program that compares kernels with their references on a machine's GPU finds what is wrong, nothing where nothing is, and says what is missing. On
//! the twin driver; where there is no C++ compiler, it says that it is skipped.

#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sardana_cuda::kernels::{self, Module};
use sardana_twins::{Compiler, DriverFiles, Planted, Source};

/// What it says with these variables, and its exit code.
fn check(environment: impl IntoIterator<Item = (OsString, OsString)>) -> (Option<i32>, String) {
    let mut check = Command::new(env!("CARGO_BIN_EXE_gpu_check"));
    for variable in ["CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE"] {
        check.env_remove(variable);
    }
    let output = check.arg("--quick").envs(environment).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

fn source(module: Module) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
    let file = format!("{}.cu", module.name());
    Source::new(&file, &read(&file), &names).including("prelude.cuh", &read("prelude.cuh"))
}

/// What is said of this: `ok`, `DIFFERS`, `FAILED`.
fn state<'a>(text: &'a str, about: &str) -> &'a str {
    let mut lines = text.lines().map(|line| line.split_whitespace());
    let found = lines.find_map(|mut words| (words.next() == Some(about)).then(|| words.next()));
    found.flatten().unwrap_or_else(|| panic!("nothing of {about} in {text}"))
}

/// The environment of `right`, with other code for this module: the first code of a kernel's name counts.
fn with(right: &DriverFiles, mutant: &DriverFiles) -> Vec<(OsString, OsString)> {
    let mut environment = right.environment();
    for (name, value) in &mut environment {
        if name == "TWIN_KERNELS" {
            let first = mutant.kernels()[0].as_os_str();
            let mut both = first.to_owned();
            both.push(":");
            both.push(&value);
            *value = both;
        }
    }
    environment
}

#[test]
fn right_kernels_are_right_and_a_wrong_bit_in_one_is_found_there_alone() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let right = compiler.driver_files(&Module::ALL.map(source)).unwrap();
    let (code, text) = check(right.environment());
    assert_eq!(code, Some(0), "{text}");
    for name in kernels::ALL.iter().map(|kernel| kernel.name).chain(["GPU", "memory"]) {
        assert_eq!(state(&text, name), "ok", "{text}");
    }

    let wrong: [(Module, &str, &str, &str); 2] = [
        // Contracted: one rounding where the reference has two.
        (
            Module::Updates,
            "nesterov",
            "value - by.rate * (gradient + by.momentum * velocity)",
            "__fmaf_rn(-by.rate, gradient + by.momentum * velocity, value)",
        ),
        // Whatever NaN comes.
        (Module::Sums, "sum_f32x4", "one_nan(total.w + own.w)", "(total.w + own.w)"),
    ];
    for (module, kernel, from, to) in wrong {
        let mutant = compiler.driver_files(&[source(module).replaced(from, to)]).unwrap();
        let (code, text) = check(with(&right, &mutant));
        assert_eq!(code, Some(1), "{text}");
        for name in kernels::ALL.iter().map(|kernel| kernel.name) {
            let expected = if name == kernel { "DIFFERS" } else { "ok" };
            assert_eq!(state(&text, name), expected, "{name}: {text}");
        }
    }
}

#[test]
fn what_is_wrong_in_the_first_pass_alone_is_told_as_well() {
    let Some(compiler) = Compiler::or_skip() else { return };
    // The first number that a process draws by `rand` is always this one. So one element of one launch is wrong.
    let wrong = "(rand() == 1804289383 ? 12345.0f : scores[i] - target)";
    let declared = "extern \"C\" int rand();\nextern \"C\" __global__ void distances";
    let all = Module::ALL.map(|module| {
        let right = source(module);
        if module != Module::Pointwise {
            return right;
        }
        right
            .replaced("extern \"C\" __global__ void distances", declared)
            .replaced("scores[i] - target", wrong)
    });
    let (code, text) = check(compiler.driver_files(&all).unwrap().environment());
    assert_eq!(code, Some(1), "{text}");
    let told: Vec<&str> = text.lines().filter(|line| line.starts_with("distances ")).collect();
    let [first, second] = told[..] else { panic!("{text}") };
    assert!(first[24..].starts_with("DIFFERS  in the first of two passes: "), "{text}");
    assert!(second[24..].starts_with("ok "), "{text}");
}

#[test]
fn a_device_that_fails_and_one_that_is_not_there_are_told_apart() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let files = compiler.driver_files(&Module::ALL.map(source)).unwrap();
    let mark = tempfile::tempdir().unwrap();
    let gone = DriverFiles::planted(Planted::DeviceGone, 300, &mark.path().join("gone"));
    let (code, text) = check(files.environment().into_iter().chain(gone));
    assert_eq!((code, state(&text, "device")), (Some(1), "FAILED"), "{text}");
    assert!(text.contains("it is gone"), "{text}");

    let none: (OsString, OsString) = ("TWIN_DEVICES".into(), "0".into());
    let (code, text) = check(files.environment().into_iter().chain([none]));
    assert_eq!((code, state(&text, "GPU")), (Some(3), "skipped"), "{text}");
    assert!(text.contains("expected a GPU, found none"), "{text}");
}

/// A library that says that it is cuBLAS 12.8.4.
fn library(folder: &Path) -> Option<PathBuf> {
    let source = "extern \"C\" int cublasGetProperty(int which, int* value) {\n\
        \x20   const int parts[] = {12, 8, 4};\n    return *value = parts[which], 0;\n}\n";
    let (text, library) = (folder.join("library.cc"), folder.join("libcublas.so"));
    fs::write(&text, source).unwrap();
    let compiler = std::env::var_os("CXX")
        .filter(|name| !name.is_empty())
        .unwrap_or("c++".into());
    let mut make = Command::new(compiler);
    make.args(["-shared", "-fPIC", "-Wl,-soname,libcublas.so", "-o"]);
    let made = make.arg(&library).arg(&text).status().ok()?;
    made.success().then_some(library)
}

#[test]
fn a_gpu_is_described_with_what_decides_bits_on_it_and_with_nothing_that_is_not_there() {
    let Some(compiler) = Compiler::or_skip() else { return };
    let folder = tempfile::tempdir().unwrap();
    let files = compiler.driver_files(&[]).unwrap();
    // There are no kernels, so that it ends right after it has said what the GPU is.
    let described = |more: &[(&str, &OsStr)]| {
        let more = more.iter().map(|&(name, value)| (name.into(), value.to_owned()));
        let (code, text) = check(files.environment().into_iter().chain(more));
        assert_eq!(code, Some(1), "{text}");
        let first = text.lines().find(|line| line.starts_with("GPU ")).unwrap();
        let items = first.split_once("cuda, ").unwrap().1;
        items.split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    let bare = described(&[]);
    let [name, multiprocessors, driver, kernels] = &bare[..] else {
        panic!("expected four items, found {bare:?}");
    };
    assert_eq!([name, multiprocessors], ["Twin of a GPU (9.0)", "132 multiprocessors"]);
    let digest: String = kernels::digest()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(
        driver.starts_with("driver 12.8") && *kernels == format!("kernels {digest}"),
        "{bare:?}"
    );

    let variables = described(&[
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8, x".as_ref()),
        ("NVIDIA_TF32_OVERRIDE", "1".repeat(100).as_ref()),
    ]);
    let long = format!("NVIDIA_TF32_OVERRIDE={}", "1".repeat(32));
    assert_eq!(variables[4..], ["CUBLAS_WORKSPACE_CONFIG=:4096:8x", &long]);

    let Some(library) = library(folder.path()) else {
        return println!("skipped: the compiler makes no library by the usual options");
    };
    assert_eq!(described(&[("LD_PRELOAD", library.as_os_str())])[4..], ["cuBLAS 12.8.4"]);
}
