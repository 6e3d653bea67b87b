//! What `sardana bench gpu` and `sardana bench all-reduce --device cuda` measure, on a driver that is none.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use sardana_cuda::kernels::Module;
use sardana_twins::{Compiler, DriverFiles, NCCL_CALLS, Source};
use serde_json::Value;
use tempfile::TempDir;

/// A driver with all kernels, and NCCL beside it, made once. None, and a line that says so, where there is no compiler.
fn driver() -> Option<&'static DriverFiles> {
    static DRIVER: OnceLock<Option<DriverFiles>> = OnceLock::new();
    let made = || {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collectives/cuda/kernels");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let sources = Module::ALL.map(|module| {
            let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
            let file = format!("{}.cu", module.name());
            Source::new(&file, &read(&file), &names).including("prelude.cuh", &read("prelude.cuh"))
        });
        let compiler = Compiler::find()?;
        let driver = compiler.driver_files(&sources).unwrap();
        Some(driver.with_nccl(&compiler).unwrap())
    };
    let driver = DRIVER.get_or_init(made).as_ref();
    if driver.is_none() {
        println!("skipped: no C++ compiler is installed, or the variable CXX names none");
    }
    driver
}

/// On so many GPUs, with a folder in which ranks meet, and one for what the twin counts.
struct Bench {
    driver: &'static DriverFiles,
    gpus: usize,
    /// In which libraries are looked for before the driver's.
    before: TempDir,
    meetings: TempDir,
    accounts: TempDir,
}

impl Bench {
    fn new(driver: &'static DriverFiles, gpus: usize) -> Self {
        let folder = || tempfile::tempdir().unwrap();
        Self {
            driver,
            gpus,
            before: folder(),
            meetings: folder(),
            accounts: folder(),
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_sardana"));
        bench.args(["bench", "gpu"]).args(arguments).envs(self.driver.environment());
        let folders = [self.before.path(), self.driver.folder()];
        bench.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
        bench.env("TWIN_DEVICES", self.gpus.to_string());
        bench.env("TWIN_NCCL", self.meetings.path());
        bench.env("TWIN_ACCOUNT", self.accounts.path());
        bench.output().unwrap()
    }

    fn rows(&self, size: &str) -> Vec<Value> {
        let output = self.run(&["--size", size, "--json"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(
            found["device"].as_str().unwrap().starts_with("cuda, Twin of a GPU"),
            "{found}"
        );
        found["rows"].as_array().unwrap().clone()
    }

    /// How often ranks have done this, by their number and that of all.
    fn calls(&self, what: &str) -> BTreeMap<String, usize> {
        let calls = std::fs::read_to_string(self.meetings.path().join(NCCL_CALLS)).unwrap_or_default();
        let mut found = BTreeMap::new();
        for rank in calls.lines().filter_map(|line| line.strip_prefix(what)) {
            *found.entry(rank.trim().to_owned()).or_default() += 1;
        }
        found
    }
}

fn row<'a>(rows: &'a [Value], what: &str) -> &'a Value {
    let found = rows.iter().find(|row| row["what"] == what);
    found.unwrap_or_else(|| panic!("{what} is missing from {rows:?}"))
}

const ROWS: [&str; 17] = [
    "copy within",
    "pack",
    "ordered sum",
    "mean",
    "squares",
    "AdamW",
    "BLAKE3",
    "copy up, pinned",
    "copy down, pinned",
    "ring of two workers",
    "backward pass",
    "exposed behind it",
    "step of one worker",
    "stall by a snapshot",
    "snapshot, beside a step",
    "NCCL abort",
    "NCCL next generation",
];

/// Bytes of a gradient that is asked for, and of one that a backward pass makes: 7 layers of 33 by 33, each in a multiple of what tensors are aligned to.
const ASKED: u64 = 32_000;
const LAYERED: u64 = 7 * 4_416;
/// And of a state, three times as large, without what is between tensors.
const STATE: u64 = 3 * 7 * 33 * 33 * 4;

#[test]
fn what_a_gpu_reaches_is_measured_beside_its_own_copies() {
    let Some(driver) = driver() else { return };
    let rows = Bench::new(driver, 1).rows("32000B");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["what"].as_str()).collect();
    assert_eq!(names, ROWS);
    // What is read and written, and what it is compared with.
    let expected = [
        ("copy within", 2 * ASKED, ""),
        ("pack", 2 * ASKED, "a copy within"),
        ("ordered sum", 4 * ASKED, "a copy within"),
        ("mean", 2 * ASKED, "a copy within"),
        ("squares", ASKED, "a copy within"),
        ("AdamW", 7 * ASKED, "a copy within"),
        ("BLAKE3", ASKED, ""),
        ("copy up, pinned", ASKED, ""),
        ("copy down, pinned", ASKED, ""),
        ("ring of two workers", 4 * ASKED, "copies up and down"),
        ("snapshot, beside a step", STATE, "copies down"),
    ];
    for (what, bytes, beside) in expected {
        let row = row(&rows, what);
        assert_eq!(row["bytes"].as_u64(), Some(bytes), "{row}");
        let rate = row["bytes_per_second"].as_f64().filter(|rate| *rate > 0.0).unwrap();
        assert_eq!(row["limit"]["what"].as_str().unwrap_or_default(), beside);
        if let Some(limit) = row["limit"]["bytes_per_second"].as_f64() {
            let part = row["of_limit"].as_f64().unwrap();
            assert!((part * limit / rate - 1.0).abs() < 1e-9, "{row}");
        }
    }
    let table = Bench::new(driver, 1).run(&["--size", "4KiB"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.lines().count(), 2 + ROWS.len(), "{table}");
}

#[test]
fn what_a_step_waits_for_is_measured_on_work_that_was_done() {
    let Some(driver) = driver() else { return };
    let bench = Bench::new(driver, 1);
    let rows = bench.rows("32000B");
    let expected = [
        ("backward pass", LAYERED, "copies up and down"),
        ("exposed behind it", LAYERED, "copies up and down"),
        ("stall by a snapshot", STATE, "a step without"),
    ];
    for (what, bytes, beside) in expected {
        let row = row(&rows, what);
        assert_eq!(
            (row["bytes"].as_u64(), row["beside"]["what"].as_str()),
            (Some(bytes), Some(beside))
        );
        let [seconds, of] = [&row["seconds"], &row["beside"]["seconds"]].map(|time| time.as_f64().unwrap());
        assert!(
            of > 0.0 && (row["times"].as_f64().unwrap() - seconds / of).abs() < 1e-9,
            "{row}"
        );
        assert!(what == "stall by a snapshot" || seconds > 0.0, "{row}");
    }
    let stall = row(&rows, "stall by a snapshot");
    assert_eq!(stall["beside"]["seconds"], row(&rows, "step of one worker")["seconds"]);
    assert!(stall["of"].as_str().unwrap().starts_with("the update waits "), "{stall}");

    // The bench's own process is the one that has copied; NCCL's ranks copy nothing from or to pinned memory.
    let accounts = std::fs::read_dir(bench.accounts.path()).unwrap();
    let accounts = accounts.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let accounts: Vec<Vec<u64>> = accounts
        .map(|account| {
            let (numbers, wrong) = account.split_once('\n').unwrap();
            assert_eq!(wrong, "");
            numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect()
        })
        .collect();
    let own = accounts.iter().find(|account| account[7] > 0).unwrap();
    assert_eq!(own[..6], [0; 6], "all is given back");
    let [up, down] = [own[7], own[8]];
    // Six copies each way, four sums of two workers, and four of two that have computed before.
    let sums = 6 * ASKED + 4 * 2 * ASKED + 4 * 2 * LAYERED;
    assert_eq!(up, sums);
    // Three snapshots besides, and the sum of each step of the worker that trains alone: four, and one beside each snapshot.
    assert_eq!(down, sums + 3 * STATE + 7 * LAYERED);
}

#[test]
fn gradients_of_worker_processes_are_summed_where_they_lie_beside_copies_of_what_crosses() {
    let Some(driver) = driver() else { return };
    let mut bench = Command::new(env!("CARGO_BIN_EXE_sardana"));
    bench.args([
        "bench",
        "all-reduce",
        "-n",
        "2",
        "--sizes",
        "2KiB",
        "--device",
        "cuda",
        "--json",
    ]);
    let accounts = tempfile::tempdir().unwrap();
    bench.envs(driver.environment()).env("TWIN_ACCOUNT", accounts.path());
    let output = bench.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Each worker's kernels, by its own account: those of the bench's process are none.
    let accounts = std::fs::read_dir(accounts.path()).unwrap();
    let accounts = accounts.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let launches = accounts.map(|account| account.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap());
    assert_eq!(launches.filter(|launches| *launches > 100).count(), 2, "both compute there");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        found["what"]
            .as_str()
            .unwrap()
            .starts_with("all-reduce of f32 on GPUs, 2 ranks"),
        "{found}"
    );
    let row = &found["rows"][0];
    let [crossing, median, of_limit] =
        ["crossing_seconds", "median_seconds", "of_limit"].map(|name| row[name].as_f64().unwrap());
    assert!(crossing > 0.0 && (of_limit * median / crossing - 1.0).abs() < 1e-9, "{row}");
}

#[cfg(feature = "nccl")]
#[test]
fn nccl_aborts_while_the_others_wait_for_a_rank_that_was_killed_and_begins_again_without_it() {
    let Some(driver) = driver() else { return };
    let count = |calls: &[&str], times: usize| calls.iter().map(|&rank| (rank.to_owned(), times)).collect();
    for (gpus, abort, next) in [
        (1, "of 1 rank, on the one GPU: no other can die", "of 1 rank"),
        (
            3,
            "of 3 ranks, of which 1 was killed while the others waited for it in a sum",
            "of 2 ranks",
        ),
    ] {
        let bench = Bench::new(driver, gpus);
        let rows = bench.rows("4KiB");
        for (what, of) in [("NCCL abort", abort), ("NCCL next generation", next)] {
            let row = row(&rows, what);
            assert_eq!((row["of"].as_str(), &row["bytes"]), (Some(of), &Value::Null), "{row}");
            assert!(row["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{row}");
        }
        let (all, left): (&[&str], &[&str]) = if gpus == 1 {
            (&["0 1"], &["0 1"])
        } else {
            (&["0 3", "1 3", "2 3"], &["0 2", "1 2"])
        };
        // Each of three times. The sum that a dead rank is waited for in is none that was carried out.
        let mut made: BTreeMap<String, usize> = count(all, 3);
        for rank in left {
            *made.entry((*rank).to_owned()).or_default() += 3;
        }
        assert_eq!(bench.calls("made"), made);
        assert_eq!(bench.calls("summed"), made);
        let aborted = if gpus == 1 { all } else { &all[..2] };
        assert_eq!(bench.calls("aborted"), count(aborted, 3));
    }
}

#[test]
fn where_nccl_is_missing_its_rows_say_why_and_all_else_is_measured() {
    let Some(driver) = driver() else { return };
    let bench = Bench::new(driver, 1);
    // A library that is another one, in front of the twin's and of one that the machine may have.
    std::fs::copy(&driver.kernels()[0], bench.before.path().join("libnccl.so")).unwrap();
    let rows = bench.rows("4KiB");
    let expected = if cfg!(feature = "nccl") {
        "expected ncclGetErrorString in NCCL's library libnccl.so, which lacks it; install NCCL 2.18 or later"
    } else {
        "expected a program with the feature `nccl`, found one without: "
    };
    let (measured, missing) = rows.split_at(ROWS.len() - 2);
    assert!(measured.iter().all(|row| row["seconds"].is_number()), "{measured:?}");
    for row in missing {
        let why = row["missing"].as_str().unwrap();
        assert!(why.starts_with(expected), "{row}");
        assert_eq!(row["seconds"], Value::Null);
    }
    assert_eq!(bench.calls("made"), BTreeMap::new());
    let table = bench.run(&["--size", "4KiB"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.matches(&format!("missing  {expected}")).count(), 2, "{table}");
}

#[test]
fn what_cannot_be_measured_on_a_gpu_is_said() {
    let Some(driver) = driver() else { return };
    let large = Bench::new(driver, 1).run(&["--size", "2GiB"]);
    let words = String::from_utf8(large.stderr).unwrap();
    assert_eq!(large.status.code(), Some(1), "{words}");
    assert!(
        words.contains("expected 12.1 GiB of the GPU's memory") && words.contains("smaller --size"),
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
