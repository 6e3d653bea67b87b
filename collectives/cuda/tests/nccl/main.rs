//! Sums by NCCL between processes, on a twin driver and a twin of NCCL: each test starts its ranks, talks with them by lines, and lets some die. Where there is no
//! C++ compiler, each says that it is skipped.

#![cfg(feature = "nccl")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod jobs;
mod rank;

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use sardana_twins::{Compiler, DriverFiles, Planted, Source};
use tempfile::TempDir;

/// A twin driver with NCCL, and the folder in which ranks meet.
struct Host {
    driver: DriverFiles,
    meeting: TempDir,
}

impl Host {
    fn new(with_nccl: bool) -> Option<Self> {
        Self::with(with_nccl, &[])
    }

    /// The same with kernels.
    fn with(with_nccl: bool, kernels: &[Source]) -> Option<Self> {
        let compiler = Compiler::or_skip()?;
        let driver = compiler.driver_files(kernels).unwrap();
        let driver = if with_nccl {
            driver.with_nccl(&compiler).unwrap()
        } else {
            driver
        };
        let meeting = tempfile::tempdir().unwrap();
        Some(Self { driver, meeting })
    }

    /// Starts a process that plays this part.
    fn start(&self, part: &str, seed: u64) -> Rank {
        let mut process = self
            .plays(part, seed)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Rank { process, input, output }
    }

    /// Whether a process that plays this part, by itself, says this and does nothing wrong, where this call of its kind is another than it should be.
    fn is_right(&self, part: &str, seed: u64, says: &str, (what, call): (Planted, u64)) -> bool {
        let accounts = tempfile::tempdir().unwrap();
        let mut plays = self.plays(part, seed);
        plays
            .env("TWIN_PLANT", format!("{}@{call}", what as u32))
            .env("TWIN_ACCOUNT", accounts.path());
        let played = plays.output().unwrap();
        let account = fs::read_dir(accounts.path()).unwrap().next();
        // Its last line is what was wrong.
        let account = account.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        played.status.success()
            && String::from_utf8_lossy(&played.stdout).contains(says)
            && account.is_some_and(|account| account.ends_with('\n'))
    }

    fn plays(&self, part: &str, seed: u64) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "rank::plays", "--nocapture"])
            .envs(self.driver.environment());
        let variables: [(&str, OsString); 3] = [
            (rank::PART, part.into()),
            ("TWIN_NCCL", self.meeting.path().into()),
            ("TWIN_SEED", seed.to_string().into()),
        ];
        // More GPUs than any part has ranks.
        command.env("TWIN_DEVICES", "4").envs(variables);
        command
    }
}

/// A process of a test's.
struct Rank {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Rank {
    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line that it says, behind `told: `.
    fn hear(&mut self) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it says no more: {all}");
            if let Some((_, words)) = line.trim_end().split_once("told: ") {
                return words.to_owned();
            }
            all += &line;
        }
    }

    fn hears(&mut self, expected: &str) {
        assert_eq!(self.hear(), expected);
    }

    fn ends_well(mut self) {
        drop(self.input);
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
    }
}

/// Starts so many ranks that play a part, and tells each its number and the id that the first has made.
fn start_all(host: &Host, part: &str, ranks: usize, seed: u64) -> Vec<Rank> {
    let mut all: Vec<Rank> = (0..ranks).map(|rank| host.start(part, seed + rank as u64)).collect();
    agree(&mut all);
    all
}

fn agree(ranks: &mut [Rank]) {
    let count = ranks.len();
    ranks[0].tell("make an id");
    let id = ranks[0].hear();
    for (number, rank) in ranks.iter_mut().enumerate() {
        rank.tell(&format!("{number} {count} {id}"));
    }
}

#[test]
fn all_ranks_get_the_sum_of_each_type_on_either_stream_for_any_order_of_streams() {
    let Some(host) = Host::new(true) else { return };
    for seed in 0..6 {
        let mut ranks = start_all(&host, "sums", 1 + seed as usize % 3, 10 * seed);
        for rank in &mut ranks {
            rank.hears("all sums are right");
        }
        ranks.into_iter().for_each(Rank::ends_well);
    }
}

#[test]
fn a_rank_that_dies_keeps_the_others_waiting_until_they_abort_and_the_next_communicator_works() {
    let Some(host) = Host::new(true) else { return };
    for seed in 0..4 {
        let mut ranks = start_all(&host, "survives", 3, 20 * seed);
        for rank in &mut ranks {
            rank.hears("the first sum is right");
        }
        let mut dead = ranks.remove(1 + seed as usize % 2);
        dead.process.kill().unwrap();
        dead.process.wait().unwrap();
        for rank in &mut ranks {
            rank.tell("sum");
            rank.hears("it waits");
        }
        for rank in &mut ranks {
            rank.tell("a rank is dead");
            rank.hears("the wait has ended");
        }
        agree(&mut ranks);
        for rank in &mut ranks {
            rank.hears("the next sum is right");
        }
        ranks.into_iter().for_each(Rank::ends_well);
    }
}

#[test]
fn what_is_enqueued_with_a_tensor_comes_behind_its_sum_and_one_that_is_dropped_is_not_summed() {
    let Some(host) = Host::new(true) else { return };
    for seed in 0..4 {
        let mut ranks = start_all(&host, "early", 1 + seed as usize % 3, 30 * seed);
        for rank in &mut ranks {
            rank.hears("all are behind their sums");
        }
        for rank in &mut ranks {
            rank.hears("nothing was left behind");
        }
        ranks.into_iter().for_each(Rank::ends_well);
    }
}

#[test]
fn a_rank_that_never_comes_is_waited_for_without_blocking_and_given_up() {
    let Some(host) = Host::new(true) else { return };
    let mut rank = host.start("alone", 1);
    rank.hears("given up");
    rank.ends_well();
}

#[test]
fn calls_that_make_no_sense_are_told() {
    let Some(host) = Host::new(true) else { return };
    let mut rank = host.start("mistakes", 2);
    rank.hears("all are told");
    rank.ends_well();
}

#[test]
fn no_library_or_one_without_a_function_is_told_with_what_to_do() {
    let Some(host) = Host::new(false) else { return };
    let said = || {
        let mut rank = host.start("absent", 3);
        let said = rank.hear();
        rank.ends_well();
        said
    };
    let words = said();
    // A machine may have one.
    if words == "it is there" {
        println!("skipped: this machine has NCCL");
    } else {
        assert!(
            words.starts_with("expected NCCL's library (libnccl.so.2), found none: ")
                && words.contains("pip install nvidia-nccl-cu12"),
            "{words}"
        );
    }
    fs::copy(any_library(), host.driver.folder().join("libnccl.so")).unwrap();
    let words = said();
    assert!(
        words.starts_with("expected ncclGetErrorString in NCCL's library libnccl.so, which lacks it"),
        "{words}"
    );
}

/// The file of a library that this process has open, whatever its folder is called here.
fn any_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let found = paths.find(|path| path.contains("libgcc_s.so") || path.contains("libm.so"));
    Path::new(found.expect("Rust's programs have one of these open")).to_owned()
}
