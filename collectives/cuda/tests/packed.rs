//! What is packed for machines with a GPU, and the table that is made there: where paths lead, what is erased, and that no exit code goes without a row. With
//! programs that are none, so that no GPU is asked.

#![cfg(feature = "cuda")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAMS: [&str; 3] = ["sardana", "cuda_mlp", "gpu_check"];

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci").join(name)
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat()
}

fn write_program(path: &Path, lines: &str) {
    fs::write(path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn paths_are_those_of_the_caller_and_no_folder_is_erased_that_was_not_packed() {
    let place = tempfile::tempdir().unwrap();
    let pack = |arguments: [&str; 2]| {
        let mut pack = Command::new(script("gpu"));
        pack.arg("pack").args(arguments).current_dir(place.path()).output().unwrap()
    };
    fs::create_dir(place.path().join("built")).unwrap();
    for name in PROGRAMS {
        fs::copy(env!("CARGO_BIN_EXE_gpu_check"), place.path().join("built").join(name)).unwrap();
    }
    // The second time over what the first one has made.
    for _ in 0..2 {
        let packed = pack(["new", "built"]);
        assert_eq!(packed.status.code(), Some(0), "{}", text(&packed));
        for name in PROGRAMS.into_iter().chain(["run", "lib", "cuda_mlp.py"]) {
            assert!(place.path().join("new").join(name).exists(), "{name}");
        }
        fs::write(place.path().join("new/out"), "").unwrap();
    }
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("run"), "a program of a person's own\n").unwrap();
    for folder in ["other", "other/run", "."] {
        let refused = pack([folder, "built"]);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).contains("expected a folder that is new, empty or was packed before"));
    }
    assert!(other.join("run").exists() && place.path().join("built").exists());
}

#[test]
fn all_that_asks_for_gpus_is_built_with_nccl() {
    let place = tempfile::tempdir().unwrap();
    // It says what it was called with, and builds nothing.
    write_program(&place.path().join("cargo"), "echo \"$@\"; exit 1");
    let path = std::env::var("PATH").unwrap();
    let packed = Command::new(script("gpu"))
        .args(["pack", "new"])
        .env("PATH", format!("{}:{path}", place.path().display()))
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = text(&packed);
    assert_eq!(packed.status.code(), Some(1), "{said}");
    let (_, features) = said.split_once("--features ").unwrap();
    let features: Vec<&str> = features.split(' ').next().unwrap().split(',').collect();
    for package in ["sardana", "sardana-cuda", "sardana-examples"] {
        assert!(features.contains(&format!("{package}/nccl").as_str()), "{said}");
    }
    for program in PROGRAMS {
        assert!(said.contains(&format!("--bin {program}")), "{said}");
    }
}

/// What the programs do beside which the table is made.
struct Programs<'a> {
    python3: &'a str,
    sardana: &'a str,
    cuda_mlp: &'a str,
    gpu_check: &'a str,
    /// Seconds that it is said to have taken so far.
    taken: u32,
}

impl Default for Programs<'_> {
    fn default() -> Self {
        Self {
            python3: "echo 'no PyTorch'; exit 1",
            sardana: "exit 1",
            cuda_mlp: "exit 1",
            gpu_check: "exit 1",
            taken: 0,
        }
    }
}

impl Programs<'_> {
    /// The exit code and the table.
    fn table(&self) -> (Option<i32>, String) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("path");
        fs::create_dir(&path).unwrap();
        write_program(&path.join("python3"), self.python3);
        fs::copy(script("gpu-there"), place.path().join("run")).unwrap();
        for (name, lines) in [("sardana", self.sardana), ("cuda_mlp", self.cuda_mlp)] {
            write_program(&place.path().join(name), lines);
        }
        let asked = "case \"$*\" in --seed*) exit 2 ;; --free) echo noise >&2; . ./gpu_check.free; exit 0 ;; esac";
        fs::write(place.path().join("gpu_check.free"), "echo 5\n").unwrap();
        write_program(&place.path().join("gpu_check"), &format!("{asked}\n{}", self.gpu_check));
        let others = std::env::var("PATH").unwrap();
        let output = Command::new("bash")
            .env("PATH", format!("{}:{others}", path.display()))
            .env("SECONDS", self.taken.to_string())
            .arg(place.path().join("run"))
            .arg("--quick")
            .output()
            .unwrap();
        (output.status.code(), text(&output))
    }
}

/// The same where `gpu_check` does this and all else fails.
fn table(gpu_check: &str) -> (Option<i32>, String) {
    let programs = Programs {
        gpu_check,
        ..Programs::default()
    };
    programs.table()
}

fn row(about: &str, what: &str, words: &str) -> String {
    format!("{about:<24}{what:<9}{words}")
}

fn says_of_kernels(gpu_check: &str) -> Option<String> {
    let (code, table) = table(gpu_check);
    assert_eq!(code, Some(1), "jobs fail: {table}");
    assert!(
        table.contains("left-behind             ok       0 bytes of the GPU"),
        "{table}"
    );
    let row = table.lines().find(|line| line.starts_with("kernels "));
    row.map(str::to_owned)
}

#[test]
fn no_exit_code_of_the_comparison_goes_without_a_row() {
    let memory = "printf '%-24s%-9s%s\\n' memory ok '0 bytes held'";
    let differs = "printf '%-24s%-9s%s\\n' add_f32 DIFFERS 'bits'";
    assert_eq!(says_of_kernels(memory), None);
    assert_eq!(says_of_kernels(&format!("{differs}; {memory}; exit 1")), None);
    for (gpu_check, told) in [
        (format!("{memory}; exit 1"), "exit code 1, and no row says why"),
        (differs.to_owned(), "it did not come to its end"),
        (format!("{memory}; exit 7"), "exit code 7"),
    ] {
        let row = says_of_kernels(&gpu_check).unwrap();
        assert!(row.contains("FAILED") && row.contains(told), "{row}");
    }
}

#[test]
fn each_figure_is_a_row_and_so_is_one_that_is_missing() {
    let memory = "printf '%-24s%-9s%s\\n' memory ok '0 bytes held'";
    let rows = ["exposed behind it   1.0 GiB   3.00 ms", "NCCL abort      missing  no library"];
    let says = rows.map(|row| format!("echo '{row}'")).join("; ");
    let summed = "sums on GPUs of 2 ranks";
    let bench = format!(
        "case \"$1 $2\" in 'bench gpu') {says}; exit 0 ;; 'bench all-reduce') echo '{summed}'; exit 0 ;; esac; exit 1"
    );
    let table_with = |sardana: &str| {
        let programs = Programs {
            sardana,
            gpu_check: memory,
            ..Programs::default()
        };
        programs.table().1
    };
    let table = table_with(&bench);
    for figure in [rows[0], rows[1], summed] {
        let line = row("", "figure", figure);
        assert!(table.lines().any(|own| own == line), "{line}\n{table}");
    }
    let table = table_with(&bench.replace("exit 0", "exit 1"));
    for line in [row("figures", "FAILED", rows[1]), row("all-reduce", "FAILED", summed)] {
        assert!(table.lines().any(|own| own == line), "{line}\n{table}");
    }
}

#[test]
fn pytorch_is_compared_with_where_it_is_and_fails_nothing_where_it_is_not() {
    let (_, table) = Programs::default().table();
    assert!(
        table.lines().any(|own| own == row("PyTorch", "skipped", "no PyTorch")),
        "{table}"
    );
    // It is given the script, the program, and what to compute on.
    let python = "echo \"median $1 $2 $3 $4\"; echo 'round 1'";
    let programs = Programs {
        python3: python,
        ..Programs::default()
    };
    let (_, table) = programs.table();
    let compared = row("", "figure", "median ./cuda_mlp.py ./cuda_mlp --device cuda");
    assert!(table.lines().any(|own| own == compared), "{table}");
    assert!(!table.contains("round 1"), "{table}");
}

#[test]
fn a_job_by_nccl_says_what_has_summed_and_is_of_a_worker_for_each_gpu() {
    let state = format!("echo final state {}", "5".repeat(64));
    let found = |gpus: &str, by_nccl: &str| {
        let sardana = format!("case \"$1\" in doctor) printf '{gpus}'; exit 0 ;; esac; exit 1");
        let cuda_mlp = format!("case \"$*\" in *--nccl*) {by_nccl} ;; *) {state} ;; esac");
        let programs = Programs {
            sardana: &sardana,
            cuda_mlp: &cuda_mlp,
            ..Programs::default()
        };
        let (_, table) = programs.table();
        let mut rows = table.lines().filter(|line| line.starts_with("job-nccl "));
        rows.next().unwrap_or_else(|| panic!("{table}")).to_owned()
    };
    let three = "GPU 0 fine\\nGPU 1 fine\\nGPU 2 fine\\n";
    let summed = format!("echo all ranks sum by NCCL; echo 'epoch 1, -n' $5; {state}");
    assert_eq!(found(three, &summed), row("job-nccl", "ok", "3 workers; epoch 1, -n 3"));
    let shared = format!("echo links sum, and not NCCL: two on one; {state}");
    let limited = "2 workers; links sum, and not NCCL: two on one";
    assert_eq!(found("GPU 0 fine\\n", &shared), row("job-nccl", "limited", limited));
    let neither = found(three, &state);
    assert!(
        neither.contains("FAILED   expected sums by NCCL, or why not, found neither"),
        "{neither}"
    );
    for died in [format!("{summed}; exit 3"), "echo all ranks sum by NCCL".to_owned()] {
        let died = found(three, &died);
        assert!(died.contains("FAILED   exit code "), "{died}");
    }
}

#[test]
fn what_hangs_is_ended_and_what_no_time_is_left_for_is_said() {
    // A second is left, which the kernels take.
    let programs = Programs {
        gpu_check: "exec sleep infinity",
        taken: 579,
        ..Programs::default()
    };
    let (code, table) = programs.table();
    assert_eq!(code, Some(1), "{table}");
    let hung = row("kernels", "FAILED", "exit code 124; ");
    assert!(table.lines().any(|own| own.starts_with(&hung)), "{table}");
    for line in [
        row("job-cpu", "FAILED", "exit code 124; no time was left"),
        row("figures", "FAILED", "no time was left"),
        row("all-reduce", "FAILED", "no time was left"),
        row("PyTorch", "skipped", "no time was left"),
    ] {
        assert!(table.lines().any(|own| own == line), "{line}\n{table}");
    }
    assert!(table.contains("not all is as it should be"), "{table}");
}

#[test]
fn memory_that_others_may_have_fails_nothing_and_a_process_that_is_left_does() {
    let left_behind = |gpu_check: &str| {
        let (_, table) = table(gpu_check);
        let mut rows = table.lines().filter(|line| line.starts_with("left-behind "));
        rows.next().unwrap_or_else(|| panic!("{table}")).to_owned()
    };
    // It is asked before and behind this.
    let fewer = left_behind("sed -i 's/echo 5/echo 3/' gpu_check.free");
    assert!(
        fewer[24..].starts_with("skipped  2 bytes of the GPU are no longer free: others use it"),
        "{fewer}"
    );
    let left = left_behind("cp \"$(command -v sleep)\" left && ./left infinity &");
    let pid = left.rsplit_once("expected no process of these programs, found ").unwrap().1;
    assert!(Command::new("kill").arg(pid).status().unwrap().success(), "{left}");
    assert!(left[24..].starts_with("FAILED "), "{left}");
}

#[test]
fn a_gpu_that_does_not_answer_is_a_row_as_well() {
    let place = tempfile::tempdir().unwrap();
    fs::copy(script("gpu-there"), place.path().join("run")).unwrap();
    for (name, lines) in [
        ("sardana", "exit 1"),
        ("cuda_mlp", "exit 1"),
        // As one that `timeout` has ended.
        ("gpu_check", "case \"$*\" in --seed*) exit 2 ;; esac; exit 124"),
    ] {
        write_program(&place.path().join(name), lines);
    }
    let output = Command::new("bash")
        .arg(place.path().join("run"))
        .arg("--quick")
        .output()
        .unwrap();
    let table = text(&output);
    assert_eq!(output.status.code(), Some(1), "{table}");
    assert!(
        table.contains("GPU                     FAILED   it does not say how much memory is free: exit code 124"),
        "{table}"
    );
}
