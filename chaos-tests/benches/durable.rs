//! How fast a checkpoint becomes durable and comes back, and how much memory that takes: from a snapshot that workers have copied and hashed
//! to a checkpoint actor and its disk, until its manifest is committed; and back, until each worker has the whole state and has compared
//! every byte with its hash. How long the copying and hashing took is printed, too. Beside it, in turn: a plain file of as many bytes on the same disk, written in order and
//! synced, and read in order, of which nothing is in memory; and the same read once more by as many threads as there are workers at the
//! same time, each into memory of its own, which is what each worker needs in the end. The ratios are medians of the rounds'.
//!
//! Two workers hold the state, unless told otherwise, of which each writes its share, through memory that the checkpoint actor sees. (That
//! memory is no process's own, and not in the figures of memory: 16 MiB at most for each.) Back, each reads all of it from the disk, which
//! is that of its own host. With SARDANA_APART set, as between containers, all is written over QUIC, and each reads its share from the
//! checkpoint actor and gets the rest from the other workers, so that as many times the state's bytes pass QUIC as there are workers. One
//! stream over QUIC between two threads, which does nothing else, is printed for what the network's cryptography allows then. The coordinator and the checkpoint actor
//! are in this process. The gradients sleep.
//!
//! `benches/durable/torch.py` does the same with PyTorch, where that is installed.
//!
//! With torch for the `python3` of the path (or of SARDANA_BENCH_PYTHON) the same number of bytes is also saved by it.
//!
//! `cargo bench -p sardana-chaos-tests --bench durable [-- [MIB] [ROUNDS] [WORKERS]]`; 1,024 MiB unless told otherwise, which takes 8 GiB
//! of memory with two workers.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};
use sardana::launch::{Event, LaunchError, Launched, launch};
use sardana::{CheckpointEvent, Checkpointing, JobEvent, Reach};
use sardana_chaos_tests::dice::mix;
use sardana_chaos_tests::journal::{Deed, Journal, now_ns};
use sardana_chaos_tests::pace::quantile;
use sardana_chaos_tests::setup::Setup;
use sardana_chaos_tests::trial::Trial;
use tokio::time::{sleep, timeout};

#[path = "durable/at_hand.rs"]
mod at_hand;
#[path = "durable/process.rs"]
mod process;
#[path = "far/stream.rs"]
mod stream;

use at_hand::at_hand;
use process::{Memory, begin_anew};

const WORKER: &str = env!("CARGO_BIN_EXE_chaos_worker");

/// A gradient's sleep: four of them make a step of 40 ms.
const REST_US: u64 = 10_000;

/// The step of the checkpoint.
const EVERY: &str = "10";

/// One job that takes longer is stuck.
const LIMIT: Duration = Duration::from_secs(300);

/// Bytes that are written and read at once, in the plain file.
const CALL_BYTES: usize = 8 << 20;

/// What saving to the same disk by torch takes, in seconds: `torch.save` and its sync, then `async_save` of one process.
const TORCH: &str = r#"
import os, sys, time
try:
    import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
except Exception as error:
    print("skipped:", error); sys.exit()
folder, mib = sys.argv[1], int(sys.argv[2])
state = {f"t{i}": torch.randint(-2**62, 2**62, (mib << 20 >> 7,)) for i in range(16)}
begun = time.monotonic()
with open(folder + "/whole", "wb") as file:
    torch.save(state, file); file.flush(); os.fsync(file.fileno())
whole = time.monotonic() - begun
os.remove(folder + "/whole")
try:
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath(folder) + "/group", rank=0, world_size=1)
    begun = time.monotonic()
    future = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(folder + "/dcp", sync_files=True))
    stall = time.monotonic() - begun
    future.result()
    print(whole, time.monotonic() - begun, stall)
except Exception as error:
    print(whole, "nan", "nan", error)
"#;

/// Seconds of what was done each round.
#[derive(Default)]
struct Times {
    plain_write: Vec<f64>,
    durable: Vec<f64>,

    plain_read: Vec<f64>,
    plain_loads: Vec<f64>,
    restored: Vec<f64>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let benchmark = arguments.iter().any(|argument| argument == "--bench");
    let mut given = arguments.iter().filter(|argument| !argument.starts_with("--"));
    // Tests of all targets run this as well; then it only has to work.
    let mib: usize = given
        .next()
        .map_or(Ok(if benchmark { 1_024 } else { 4 }), |given| given.parse())?;
    let rounds: usize = given
        .next()
        .map_or(Ok(if benchmark { 3 } else { 1 }), |given| given.parse())?;
    let workers: u32 = given.next().map_or(Ok(2), |given| given.parse())?;
    let state = State { mib, workers };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let place = tempfile::tempdir_in(".")?;
    let mut times = Times::default();
    for round in 0..rounds {
        let folder = place.path().join(round.to_string());
        drop(at_hand(2 * mib)?);
        times.plain_write.push(plain_write(&place.path().join("plain"), mib)?);
        let trial = trial(state)?;
        times.durable.push(runtime.block_on(save(&trial, &folder, state))?);
        forget(&place.path().join("plain"))?;
        drop(at_hand(2 * mib)?);
        times.plain_read.push(plain_read(&place.path().join("plain"), mib)?);
        forget(&place.path().join("plain"))?;
        drop(at_hand(mib * (workers as usize + 3))?);
        times.plain_loads.push(plain_loads(&place.path().join("plain"), state)?);
        for entry in std::fs::read_dir(folder.join("segments"))? {
            forget(&entry?.path())?;
        }
        times.restored.push(runtime.block_on(restore(&trial, &folder, state))?);
        std::fs::remove_dir_all(&folder)?;
        std::fs::remove_file(place.path().join("plain"))?;
    }
    report("written", "a plain file", state, &times.durable, &times.plain_write);
    report("read", "a plain file", state, &times.restored, &times.plain_read);
    let loads = "a plain file into the memory of each";
    report("read", loads, state, &times.restored, &times.plain_loads);
    println!(
        "durable/{mib} MiB: one QUIC stream alone carries {:.0} MiB/s",
        stream::bandwidth(mib << 20, (Ipv4Addr::LOCALHOST.into(), Reach::default()), Ok)?
    );
    if benchmark {
        torch(place.path(), mib)?;
    }
    Ok(())
}

/// What is saved and loaded.
#[derive(Clone, Copy)]
struct State {
    mib: usize,
    /// The workers that have it.
    workers: u32,
}

fn report(what: &str, beside: &str, State { mib, workers }: State, through: &[f64], plain: &[f64]) {
    let quantiles = |mut of: Vec<f64>| [0.0, 0.5, 1.0].map(|share| quantile(&mut of, share));
    let rates = |times: &[f64]| quantiles(times.iter().map(|seconds| mib as f64 / seconds).collect());
    let ratios = through.iter().zip(plain).map(|(through, plain)| plain / through);
    let ([least, median, most], [plain_least, plain, plain_most]) = (rates(through), rates(plain));
    let [ratio_least, ratio, ratio_most] = quantiles(ratios.collect());
    println!(
        "durable/{mib} MiB/{workers}: {what} at {median:.0} MiB/s ({least:.0} to {most:.0}); {beside} {plain:.0} ({plain_least:.0} to \
         {plain_most:.0}); ratio {ratio:.2} ({ratio_least:.2} to {ratio_most:.2})"
    );
}

fn trial(State { mib, workers }: State) -> Result<Trial> {
    let setup = Setup {
        steps: 1 << 40,
        ballast: mib << 20,
        rest_us: REST_US,
        ..Setup::new(workers)
    };
    Trial::new(WORKER, setup)
}

async fn launched(trial: &Trial, folder: &Path) -> Result<Launched> {
    let mut config = trial.config()?;
    config.checkpoints = Some(Checkpointing::new(folder, EVERY.parse()?));
    let launching = async {
        loop {
            match launch(config.clone()).await {
                // The job before, in this very process, is letting go of it.
                Err(LaunchError::Checkpoints(error)) if error.to_string().contains("in use") => {
                    sleep(Duration::from_millis(5)).await;
                }
                launched => return Ok(launched?),
            }
        }
    };
    timeout(LIMIT, launching).await.context("the folder is not let go of")?
}

async fn next(launched: &mut Launched) -> Result<Event> {
    let event = timeout(LIMIT, launched.next_event()).await.context("nothing happens")?;
    event.context("the job ended")
}

/// The workers that run.
fn started(pids: &mut Vec<u32>, event: &Event) {
    if let Event::Agent(sardana::AgentEvent::Started { pid, .. }) = event {
        pids.push(*pid);
    }
}

/// Seconds from the snapshot to its last byte on the disk.
async fn save(trial: &Trial, folder: &Path, state: State) -> Result<f64> {
    let State { mib, workers } = state;
    // The copies, and the system's own of the files.
    let mut room = Some(at_hand(mib * (workers as usize + 3))?);
    let mut launched = launched(trial, folder).await?;
    let (mut pids, mut before, mut whole) = (Vec::new(), None, None);
    loop {
        let event = next(&mut launched).await?;
        started(&mut pids, &event);
        match event {
            Event::Job(JobEvent::Steps(_)) if before.is_none() => {
                drop(room.take());
                before = Some(memory(&pids)?);
            }
            Event::Job(JobEvent::Snapshot { step, .. }) => whole = Some((step.get(), now_ns())),
            Event::Job(JobEvent::Checkpoint(CheckpointEvent::Saved { took, .. })) => {
                let before = before.context("steps come before a checkpoint")?;
                let (step, whole) = whole.context("a checkpoint is made of a snapshot")?;
                let hashed = whole.saturating_sub(end_of(trial, step - 1)?) as f64 / 1e9;
                println!("durable/{mib} MiB/{workers}: copied and hashed {hashed:.2} s after the step before");
                print_memory("writing", state, &pids, &before)?;
                return Ok(took.as_secs_f64());
            }
            Event::Job(_) | Event::Agent(_) => {}
        }
    }
}

/// When the last worker had made the update of `step`.
fn end_of(trial: &Trial, step: u64) -> Result<u64> {
    let journal = Journal::read(trial.folder())?;
    let updates = journal.lines.iter().filter(|line| line.step == step);
    let updates = updates.filter(|line| matches!(line.deed, Deed::Update { .. }));
    updates
        .map(|line| line.end_ns)
        .max()
        .context("no worker made the step before the snapshot")
}

/// Seconds from the choice of the checkpoint until each worker has all bytes of it.
async fn restore(trial: &Trial, folder: &Path, state: State) -> Result<f64> {
    let State { mib, workers } = state;
    // The memory that the state is read into, and the system's own of the files.
    let mut room = Some(at_hand(mib * (workers as usize + 2))?);
    let mut launched = launched(trial, folder).await?;
    let (mut pids, mut begun, mut before) = (Vec::new(), 0, Vec::new());
    loop {
        let event = next(&mut launched).await?;
        started(&mut pids, &event);
        match event {
            Event::Job(JobEvent::Checkpoint(CheckpointEvent::Resumes { .. })) => {
                begun = now_ns();
                drop(room.take());
                before = memory(&pids)?;
            }
            Event::Job(JobEvent::Steps(_)) => {
                ensure!(begun > 0, "the job began anew, although there is a checkpoint");
                print_memory("reading", state, &pids, &before)?;
                let journal = Journal::read(trial.folder())?;
                let mut there = 0;
                for &pid in &pids {
                    let (loads, _) = journal.last_load(pid).context("each worker loads the state")?;
                    there = there.max(loads);
                }
                return Ok((there - begun) as f64 / 1e9);
            }
            Event::Job(_) | Event::Agent(_) => {}
        }
    }
}

/// What the workers and this process have; from now on the most is counted anew.
fn memory(pids: &[u32]) -> Result<Vec<Memory>> {
    let all = pids.iter().copied().chain([std::process::id()]);
    all.map(|pid| {
        begin_anew(pid)?;
        Memory::of(pid)
    })
    .collect()
}

fn print_memory(when: &str, State { mib, workers }: State, pids: &[u32], before: &[Memory]) -> Result<()> {
    let all = pids.iter().copied().chain([std::process::id()]);
    let mut words = String::new();
    for (index, (pid, before)) in all.zip(before).enumerate() {
        let more = Memory::of(pid)?.most - before.now;
        let who = if index < pids.len() {
            "a worker"
        } else {
            "coordinator and checkpoint actor"
        };
        words += &format!("; {who} {more:.0} MiB, {:.2} of the state", more / mib as f64);
    }
    println!("durable/{mib} MiB/{workers}: memory at most while {when}, beyond what was there before{words}");
    Ok(())
}

/// Bytes that are the same nowhere.
fn fresh(part: &mut [u8], number: u64) {
    let (words, _) = part.as_chunks_mut::<8>();
    for (index, word) in (0_u64..).zip(words) {
        *word = mix(number << 32 | index).to_le_bytes();
    }
}

fn plain_write(path: &Path, mib: usize) -> Result<f64> {
    let mut part = vec![0; CALL_BYTES.min(mib << 20)];
    fresh(&mut part, 0);
    let begun = Instant::now();
    let mut file = File::create_new(path)?;
    for _ in 0..(mib << 20) / part.len() {
        file.write_all(&part)?;
    }
    file.sync_all()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// What of a file is in memory is dropped.
fn forget(path: &Path) -> Result<()> {
    Ok(fadvise(File::open(path)?, 0, None::<NonZeroU64>, Advice::DontNeed)?)
}

fn plain_read(path: &Path, mib: usize) -> Result<f64> {
    let mut buffer = vec![0; CALL_BYTES];
    let begun = Instant::now();
    let (mut file, mut read) = (File::open(path)?, 0);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            more => read += more,
        }
    }
    ensure!(read == mib << 20, "the plain file has {read} bytes");
    Ok(begun.elapsed().as_secs_f64())
}

/// Until each of as many threads as there are workers has read the file into memory of its own.
fn plain_loads(path: &Path, State { mib, workers }: State) -> Result<f64> {
    let begun = Instant::now();
    let loaded: Vec<Result<Vec<u8>>> = std::thread::scope(|scope| {
        let load = || -> Result<Vec<u8>> {
            let mut bytes = Vec::with_capacity(mib << 20);
            File::open(path)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(load)).collect();
        let loaded = threads
            .into_iter()
            .map(|thread| thread.join().expect("reading does not panic"));
        loaded.collect()
    });
    let took = begun.elapsed().as_secs_f64();
    for loaded in loaded {
        ensure!(loaded?.len() == mib << 20, "a thread has read another number of bytes");
    }
    Ok(took)
}

fn torch(place: &Path, mib: usize) -> Result<()> {
    let python = std::env::var_os("SARDANA_BENCH_PYTHON").unwrap_or_else(|| "python3".into());
    let output = Command::new(&python)
        .arg("-c")
        .arg(TORCH)
        .arg(place)
        .arg(mib.to_string())
        .output();
    let said = match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => format!("skipped: {}: {error}", python.display()),
    };
    let numbers: Vec<f64> = said.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let &[whole, async_save, stall] = numbers.as_slice() else {
        println!("durable/{mib} MiB/torch: {said}");
        return Ok(());
    };
    let rate = |seconds: f64| mib as f64 / seconds;
    println!(
        "durable/{mib} MiB/torch: torch.save and a sync {:.0} MiB/s; distributed.checkpoint.async_save {:.0} MiB/s, of which training \
         waits {stall:.2} s",
        rate(whole),
        rate(async_save)
    );
    Ok(())
}
