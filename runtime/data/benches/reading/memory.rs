//! How much memory a loader takes at most while a training takes samples at half the speed at which they are decoded, so that the budget is
//! full nearly all the time.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sardana_data::{
    Array, Coming, DataError, DataFingerprint, Dataset, DatasetExt, HeldBytes, Image, Loader, SampleRandom, Sampler,
};
use sardana_protocol::job::JobSpec;
use sardana_protocol::words::Step;

use crate::Failed;

/// Before the case that a child measures.
pub(crate) const CHILD: &str = "--held";

/// What workers that an agent starts are told of glibc's allocator.
const OF_WORKERS: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "33554432"),
    ("MALLOC_TRIM_THRESHOLD_", "67108864"),
];

const MEBIBYTES: [usize; 3] = [16, 64, 256];
const THREADS: usize = 2;
const SHARDS: u32 = 8;

/// Samples of a shard.
const SAMPLES: u64 = 8;

/// What is decoded, in budgets.
const TIMES: usize = 3;

/// Each case in a process of its own, twice: with glibc's allocator as workers have it that an agent starts, and as other programs have it, with
/// an arena for each thread that allocates: what is free in one arena is not used in another.
pub(crate) fn all(measuring: bool) -> Result<(), Failed> {
    if !cfg!(target_os = "linux") {
        println!("loader: skipped: only Linux tells how much memory a process has had at most");
        return Ok(());
    }
    let budgets = if measuring { &MEBIBYTES[..] } else { &[1] };
    let cases = ["normalised", "small", "mixed"].map(|kind| budgets.iter().map(move |budget| (kind, budget)));
    for (kind, budget) in cases.into_iter().flatten().chain([("rows", &budgets[0])]) {
        for as_worker in [true, false] {
            let mut child = Command::new(std::env::current_exe()?);
            child.args([CHILD, &format!("{kind}/{budget}")]);
            child.envs(OF_WORKERS.into_iter().filter(|_| as_worker));
            if !child.status()?.success() {
                return Err(format!("loader/{kind}/{budget}MiB failed").into());
            }
        }
    }
    Ok(())
}

/// One case: a kind of samples, and the budget in mebibytes.
pub(crate) fn measure(case: &str) -> Result<(), Failed> {
    let (kind, budget) = case.split_once('/').ok_or("expected KIND/MEBIBYTES")?;
    let budget = budget.parse::<usize>()? << 20;
    let normalise = |(image, label): (Image, u32), _: &mut _| {
        let values = image.normalise(&[0.5; 3], &[0.25; 3])?;
        Ok((values, label))
    };
    match kind {
        // 192 KiB each, and 12 KiB.
        "normalised" => hold(case, budget, Pictures(|_| 128).map("normalise", normalise)),
        "small" => hold(case, budget, Pictures(|_| 32).map("normalise", normalise)),
        // From 3 KiB to 768 KiB.
        "mixed" => hold(case, budget, Pictures(|index| 32 << (index * 7 % 5))),
        "rows" => hold(case, budget, Rows),
        other => Err(format!("expected a kind of samples, found {other}").into()),
    }
}

/// Pictures that are made, of three channels and as many rows and columns as this says.
struct Pictures(fn(u64) -> usize);

impl Dataset for Pictures {
    type Item = (Image, u32);

    fn len(&self) -> u64 {
        1 << 20
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        let side = (self.0)(index);
        Ok((Image::new(3, side, side, vec![index as u8; 3 * side * side])?, 1))
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(DataFingerprint::default())
    }
}

/// Rows of a table: 8 numbers and 1.
struct Rows;

impl Dataset for Rows {
    type Item = (Array<f64>, Array<f64>);

    fn len(&self) -> u64 {
        1 << 20
    }

    fn get(&self, index: u64, _random: &SampleRandom) -> Result<Self::Item, DataError> {
        Ok((Array::row(vec![index as f64; 8]), Array::row(vec![0.5])))
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(DataFingerprint::default())
    }
}

fn hold<D>(case: &str, budget: usize, data: D) -> Result<(), Failed>
where
    D: Dataset + 'static,
    D::Item: HeldBytes,
{
    let spec = JobSpec {
        samples: data.len(),
        batch: SAMPLES * u64::from(SHARDS),
        shards: SHARDS,
        steps: Step::new(1 << 30),
        ..sardana_protocol::samples::spec()
    };
    let sampler = Sampler::new(&spec)?;
    let (base, loader) = (status("VmRSS")?, Loader::on_demand(data).ahead(budget));
    let pause = shard_takes(&loader, &sampler)?;
    let loader = loader.threads(THREADS)?;
    let (mut taken, mut counted, mut largest) = (0, 0, 0);
    let mut step = Step::new(1);
    while taken < TIMES * budget {
        loader.coming(Coming::new(sampler.clone(), step, 0..SHARDS, spec.steps));
        for shard in 0..SHARDS {
            let samples = loader.samples(&sampler.shard(step, shard))?;
            let bytes: usize = samples.iter().map(HeldBytes::held_bytes).sum();
            (taken, largest) = (taken + bytes, bytes.max(largest));
            pass(pause);
            counted = loader.held_bytes().max(counted);
        }
        step = step.next();
    }
    let (peak, mebibytes) = (status("VmHWM")?.saturating_sub(base), |bytes: usize| {
        bytes as f64 / f64::from(1 << 20)
    });
    let of_budget = |bytes: usize| bytes as f64 / budget as f64;
    let told = |(name, _): &(&str, &str)| std::env::var_os(name).is_some();
    let allocator = if OF_WORKERS.iter().all(told) {
        "as a worker has it"
    } else {
        "glibc as usual"
    };
    println!(
        "loader/{case}MiB, {allocator}: {:.2} of the budget at most ({:.1} MiB), {:.2} without the shard in training; counted {:.2} of it",
        of_budget(peak),
        mebibytes(peak),
        of_budget(peak.saturating_sub(largest)),
        of_budget(counted),
    );
    Ok(())
}

/// How long one thread takes for a shard.
fn shard_takes<D>(loader: &Loader<D>, sampler: &Sampler) -> Result<Duration, Failed>
where
    D: Dataset + 'static,
    D::Item: HeldBytes,
{
    let begun = Instant::now();
    for shard in 0..SHARDS {
        loader.samples(&sampler.shard(Step::ZERO, shard))?;
    }
    Ok(begun.elapsed() / SHARDS)
}

/// A training computes for so long.
fn pass(time: Duration) {
    if time > Duration::from_millis(1) {
        return thread::sleep(time);
    }
    let begun = Instant::now();
    while begun.elapsed() < time {
        thread::yield_now();
    }
}

/// Bytes of memory, as the system tells them.
fn status(field: &str) -> Result<usize, Failed> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kibibytes.ok_or("expected kibibytes in /proc/self/status")?.parse::<usize>()? << 10)
}
