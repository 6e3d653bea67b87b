//! Does the GPU of this machine compute what Sardana's kernels say? Runs each kernel as the driver has translated it, and compares every bit with the
//! kernel's reference in Rust: on any input, infinities and NaNs included, at lengths at which something ends, on both streams. Prints a line for each.
//!
//! `cargo run --release -p sardana-cuda --features cuda --bin gpu_check [-- --quick]`
//!
//! Exit codes: 0 all are equal, 1 one is not or the device failed, 2 wrong usage, 3 there is no GPU that can be used. Must not know why a kernel is
//! launched.

mod on;
mod trials;

#[path = "../../../tests/kernels/numbers.rs"]
mod numbers;

use std::process::ExitCode;

use on::{On, Wrong};
use sardana_cuda::device::{Device, DeviceError, Stream};
use sardana_cuda::kernels;
use trials::{Trial, all};

const USAGE: &str = "usage: gpu_check [--quick] [--seed N] [--free]\n\n\
    Compares each kernel on the first GPU with its reference in Rust.\n\n\
    \x20 --quick    only short input, as for a sanitizer\n\
    \x20 --seed N   the input is drawn from it; 1 by default\n\
    \x20 --free     prints how many bytes of the GPU's memory are free, and compares nothing";

/// The state of what is as it should be.
const OK: &str = "ok";

/// What it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    quick: bool,
    free: bool,
    seed: u64,
}

impl Asked {
    fn of(arguments: impl IntoIterator<Item = String>) -> Option<Self> {
        let mut asked = Self {
            quick: false,
            free: false,
            seed: 1,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => asked.quick = true,
                "--free" => asked.free = true,
                "--seed" => asked.seed = arguments.next()?.parse().ok()?,
                _ => return None,
            }
        }
        Some(asked)
    }
}

fn main() -> ExitCode {
    let Some(asked) = Asked::of(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let ended = if asked.free { free() } else { compare(asked) };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(DeviceError::Absent(absent)) => {
            println!("{}", line("GPU", "skipped", &absent.to_string()));
            ExitCode::from(3)
        }
        Err(error) => {
            println!("{}", line("device", "FAILED", &error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn line(about: &str, state: &str, found: &str) -> String {
    format!("{about:<24}{state:<9}{found}")
}

fn free() -> Result<bool, DeviceError> {
    println!("{}", Device::open(0)?.free_memory()?);
    Ok(true)
}

/// Whether all is as it should be.
fn compare(asked: Asked) -> Result<bool, DeviceError> {
    let device = Device::open(0)?;
    println!("{}", line("GPU", OK, &device.description()?));
    // The first time code is loaded, which stays. Of this pass only what is wrong is said.
    let trials = all();
    let first = try_all(&device, &trials, asked, |name, state, found| {
        if state != OK {
            println!("{}", line(name, state, &format!("in the first of two passes: {found}")));
        }
    })?;
    device.synchronize()?;
    let before = device.free_memory()?;
    let asked = Asked {
        seed: asked.seed.wrapping_add(1),
        ..asked
    };
    let again = try_all(&device, &trials, asked, |name, state, found| {
        println!("{}", line(name, state, found));
    })?;
    device.synchronize()?;
    let (held, less) = (device.memory().held, before.saturating_sub(device.free_memory()?));
    let unseen = unseen(&trials);
    for name in &unseen {
        println!("{}", line(name, "FAILED", "nothing compares it"));
    }
    let state = if held == 0 { OK } else { "FAILED" };
    // What is free is that of all processes on the GPU.
    let found = format!("{held} bytes held; {less} bytes less are free than before the second pass, here or by others");
    println!("{}", line("memory", state, &found));
    Ok(first && again && held == 0 && unseen.is_empty())
}

/// Kernels that nothing tries.
fn unseen(trials: &[Trial]) -> Vec<&'static str> {
    let names = kernels::ALL.iter().map(|kernel| kernel.name);
    names
        .filter(|name| trials.iter().all(|trial| trial.kernel.name != *name))
        .collect()
}

/// Tries each kernel on both streams, and says of each its state and what was found. Whether all gave their references' bits; an error when the device is of no use any more.
fn try_all(device: &Device, trials: &[Trial], asked: Asked, say: impl Fn(&str, &str, &str)) -> Result<bool, DeviceError> {
    let mut right = true;
    for trial in trials {
        let name = trial.kernel.name;
        let (mut compared, mut wrong) = (0, None);
        for stream in [Stream::Compute, Stream::Copies] {
            let mut on = On::new(device, stream, asked.seed, asked.quick);
            match (trial.run)(&mut on) {
                Ok(()) => {}
                Err(Wrong::Bits(words)) => wrong = wrong.or(Some(words)),
                Err(Wrong::Device(error)) => return Err(error),
            }
            compared += on.compared();
        }
        match wrong {
            None => say(name, OK, &format!("{compared} comparisons")),
            Some(words) => {
                right = false;
                say(name, "DIFFERS", &words);
            }
        }
    }
    Ok(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_is_tried() {
        assert_eq!(unseen(&all()), [""; 0]);
        assert_eq!(unseen(&[]).len(), kernels::ALL.len());
    }

    #[test]
    fn what_is_asked_for_is_understood_or_refused() {
        let of = |words: &str| Asked::of(words.split_whitespace().map(str::to_owned));
        let expected = Asked {
            quick: true,
            free: false,
            seed: 9,
        };
        assert_eq!(of("--quick --seed 9"), Some(expected));
        for wrong in ["--seed", "--seed x", "--fast", "1"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
