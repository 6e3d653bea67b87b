//! A job that trains on GPUs, in real worker processes on a twin driver: however many there are, killed in the middle of copies and launches, with a
//! GPU that fails, or beside workers on processors, the final state is that of the plain loop on processors. Where there is no C++ compiler, each
//! test says that it is skipped.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod divided;
#[cfg(feature = "nccl")]
mod nccl;
mod runs;
mod site;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use runs::{Run, env};
use sardana::device::DeviceChoice;
use sardana::reference;
use sardana_cuda::kernels::Module;
use sardana_examples::cuda_mlp::shape::Shape;
use sardana_examples::cuda_mlp::{Sums, fit, job};
use sardana_examples::mnist::Data;
use sardana_twins::{Compiler, DriverFiles, Planted};
use site::{HIDDEN, SIZES, Site, site, source};

#[test]
fn one_two_and_four_workers_on_gpus_end_like_the_plain_loop_and_leave_nothing_there() {
    let Some(site) = site() else { return };
    for workers in [1, 2, 4] {
        let accounts = tempfile::tempdir().unwrap();
        let mut run = Run::new(site, workers).on(&["GPU-a", "GPU-b", "GPU-c"].map(|gpu| site.gpu(gpu)));
        run.environment.push(env("TWIN_ACCOUNT", accounts.path()));
        run.waits_for_all = true;
        run.ends_like_the_plain_loop();
        let accounts = read(accounts.path());
        assert_eq!(accounts.len(), workers as usize, "each has left an account");
        let mut gpus = BTreeSet::new();
        for account in &accounts {
            let words: Vec<&str> = account.split_whitespace().collect();
            let [left @ .., launches, _up, _down, gpu] = &words[..] else {
                panic!("an account has numbers: {account}");
            };
            assert_eq!(left, ["0"; 6], "all is given back, and nothing was wrong: {account}");
            assert!(launches.parse::<u64>().unwrap() > 100, "{account}");
            gpus.insert((*gpu).to_owned());
        }
        let shown = ["GPU-a", "GPU-b", "GPU-c"].map(str::to_owned);
        assert!(
            gpus.iter().eq(shown.iter().take(workers as usize)),
            "each berth has its GPU, in turn: {gpus:?}"
        );
    }
}

/// What processes have left in a folder.
fn read(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    files
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect()
}

#[test]
fn workers_that_die_in_the_middle_of_a_copy_or_a_launch_are_replaced_and_the_bits_stay() {
    let Some(site) = site() else { return };
    for (workers, what, number) in [(2, Planted::DieInCopy, 400), (3, Planted::DieInLaunch, 500)] {
        let marks = tempfile::tempdir().unwrap();
        let mark = marks.path().join("dead");
        let mut run = Run::new(site, workers).on(&[site.gpu("0"), site.gpu("1"), site.gpu("2")]);
        run.environment.extend(DriverFiles::planted(what, number, &mark));
        let seen = run.ends_like_the_plain_loop();
        assert!(mark.exists(), "{what:?}: no process came so far");
        assert!(
            seen.ends.iter().any(|how| how.contains("signal 9")),
            "{what:?}: {:?}",
            seen.ends
        );
        assert_eq!(seen.started, workers as usize + 1, "one takes the dead one's place");
        assert!(seen.steps_before_the_first_end > 0, "{what:?}: it was not in the middle");
    }
}

#[test]
fn a_gpu_that_fails_in_the_middle_costs_its_worker_and_nothing_else() {
    let Some(site) = site() else { return };
    let marks = tempfile::tempdir().unwrap();
    let mut run = Run::new(site, 2).on(&[site.gpu("0"), site.gpu("1")]);
    let mark = marks.path().join("gone");
    run.environment
        .extend(DriverFiles::planted(Planted::DeviceGone, 5_000, &mark));
    let seen = run.ends_like_the_plain_loop();
    assert!(
        mark.exists() && seen.steps_before_the_first_end > 0,
        "it was not in the middle"
    );
    assert_eq!(seen.started, 2, "another process would find the same GPU");
    let said = "CUDA_ERROR_ILLEGAL_ADDRESS, it is gone (700); nothing more is computed on it by this process";
    assert!(seen.logs.contains(said), "{}", seen.logs);
}

#[test]
fn workers_on_processors_and_on_gpus_train_together() {
    let Some(site) = site() else { return };
    let mut run = Run::new(site, 3).on(&[site.gpu("0"), vec![env("SARDANA_DEVICE", "cpu")]]);
    run.waits_for_all = true;
    let seen = run.ends_like_the_plain_loop();
    let [cpu, gpu] = &seen.devices[..] else {
        panic!("there are two devices: {:?}", seen.devices);
    };
    assert_eq!((cpu.device.as_str(), cpu.workers.len()), ("cpu", 1));
    assert!(
        gpu.device
            .starts_with("cuda, Twin of a GPU (9.0), 132 multiprocessors, driver 12.8")
            && gpu.workers.len() == 2,
        "{gpu:?}"
    );
    // Each of the two has the same GPU.
    assert_eq!(seen.memory.len(), 2, "{:?}", seen.memory);
    for memory in seen.memory {
        let known = (memory.gpu.as_str(), memory.total, memory.sharers);
        assert_eq!(known, ("0", 4 << 30, 2), "{memory:?}");
        let [held, peak] = [memory.held, memory.peak];
        // The state's three kinds of values, at least; and what it says that it needs is no less than that, and a gradient and a sum.
        let values = 4 * Shape::new(&SIZES).values() as u64;
        assert!(3 * values <= held && held <= peak, "{memory:?}");
        assert!(5 * values < memory.needed && memory.needed < peak + 4 * values, "{memory:?}");
        assert!(memory.pinned >= 16 << 20, "what carries gradients, and a sum: {memory:?}");
    }
}

#[test]
fn a_worker_whose_model_can_never_fit_on_its_gpu_is_refused_with_both_sizes() {
    let Some(site) = site() else { return };
    // It has more than it says, so that the probe succeeds. It comes once the job has begun.
    let mut small = site.gpu("GPU-a");
    small.push(env("TWIN_MEMORY", "20000"));
    let mut run = Run::new(site, 1).on(&[site.gpu("0"), small]);
    run.grows_to = Some(4);
    let seen = run.ends_like_the_plain_loop();
    for said in [
        "a worker needs 13.5 KiB of its GPU's memory at once, beside gradients; this one's, GPU-a, has 19.5 KiB, which is 9.7 KiB for each of the 2 workers that share it",
        "start fewer workers for each GPU",
    ] {
        assert!(seen.logs.contains(said), "{said}: {}", seen.logs);
    }
}

#[test]
fn a_gpu_that_gives_other_bits_is_refused_and_told_why() {
    let Some(site) = site() else { return };
    let compiler = Compiler::find().unwrap();
    let mutant = source(Module::Pointwise).replaced("scores[i] - target", "scores[i] - 0.75f * target");
    let mutant = compiler.driver_files(&[mutant]).unwrap();
    // The first code of a kernel's name counts.
    let [(_, _), (name, first)] = &mutant.environment()[..] else {
        panic!("there are two variables");
    };
    let mut both = first.clone();
    both.push(":");
    both.push(site.kernels());
    let mut wrong = site.gpu("1");
    wrong.retain(|(own, _)| own != name);
    wrong.extend([(name.clone(), both), env("TWIN_VERSION", "13000")]);
    // It comes once the job is what the first says.
    let mut run = Run::new(site, 1).on(&[site.gpu("0"), wrong]);
    run.grows_to = Some(2);
    let seen = run.ends_like_the_plain_loop();
    for said in [
        "it computes on cuda, Twin of a GPU (9.0), 132 multiprocessors, driver 13.0",
        "the job's first worker on cuda, Twin of a GPU (9.0), 132 multiprocessors, driver 12.8",
        "it alone has driver 13.0",
        "the first alone driver 12.8",
        ": its first update gave other bits",
    ] {
        assert!(seen.logs.contains(said), "{said}: {}", seen.logs);
    }
    assert_eq!(seen.started, 2);
}

#[test]
fn the_program_finds_the_gpus_by_itself_and_says_at_once_where_there_are_none() {
    let Some(site) = site() else { return };
    let mut found = site.program();
    found.args(["--device", "cuda", "-n", "2"]).envs(site.gpu("0"));
    found.env_remove("CUDA_VISIBLE_DEVICES").env_remove("SARDANA_DEVICE");
    found.env("TWIN_DEVICES", "2").env("RUST_LOG", "info");
    let ended = found.output().unwrap();
    let [out, err] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(ended.status.success(), "{err}");
    assert!(out.contains(&format!("final state {}", site.expected().hash)), "{out}");
    assert!(out.contains(" ms a step, over the last "), "{out}");
    assert!(
        err.contains("each worker is given a GPU of its own workers=2 gpus=0 1"),
        "{err}"
    );
    assert_eq!(err.matches("a worker says what it computes on").count(), 2, "{err}");

    let none = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/null", none.path().join("libcuda.so")).unwrap();
    let without = |device: &str| -> Command {
        let mut program = site.program();
        program.args(["--device", device, "-n", "2"]).env("RUST_LOG", "info");
        program.env_remove("CUDA_VISIBLE_DEVICES").env("LD_LIBRARY_PATH", none.path());
        program
    };
    let refused = without("cuda").output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(
        words.contains("expected a GPU for `--device cuda`, found none") && words.contains("`--device cpu`"),
        "{words}"
    );
    assert!(!words.contains("a worker process was started"), "{words}");
    let ended = without("auto").output().unwrap();
    let [out, err] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(out.contains(&format!("final state {}", site.expected().hash)), "{out}{err}");
    assert_eq!(err.matches("workers compute on processors").count(), 1, "{err}");
}

/// What the plain loop ends with on processors.
fn plain(data: &Path, epochs: u64) -> reference::Reference {
    let data = Data::in_folder(data);
    let spec = job(&data, epochs).unwrap().build().unwrap().spec().clone();
    let mut model = fit(&spec, &data, &HIDDEN, DeviceChoice::Cpu, Sums::ByLinks).unwrap();
    reference::train(&spec, &mut model).unwrap()
}

impl Site {
    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cuda_mlp"));
        command.args(self.arguments()).env("NO_COLOR", "1");
        command
    }
}
