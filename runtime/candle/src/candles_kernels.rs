//! Candle's kernels, as this program was built with them: which they are, and whether a GPU and its driver take them. Must not launch.

use candle_core::cuda_backend::kernels;
use candle_core::{Result, bail};
use sardana_cuda::driver::Version;

/// A GPU's compute capability, as in (9, 0).
pub(crate) type Capability = (i32, i32);

/// But those of quantised networks, which are not trained.
const ALL: [kernels::Module; 10] = [
    kernels::AFFINE,
    kernels::BINARY,
    kernels::CAST,
    kernels::CONV,
    kernels::FILL,
    kernels::INDEXING,
    kernels::REDUCE,
    kernels::SORT,
    kernels::TERNARY,
    kernels::UNARY,
];

/// Which they are, by the first digits of their hash: nvcc's version decides them as well.
pub(crate) fn description() -> String {
    let mut hash = blake3::Hasher::new();
    for module in &ALL {
        hash.update(module.ptx().as_bytes());
    }
    format!("kernels of candle {}", &hash.finalize().to_hex()[..8])
}

/// Whether this driver reads them. Asked before anything of candle is: that would say a number alone.
///
/// # Errors
/// When it is too old.
pub(crate) fn require_driver(found: Version) -> Result<()> {
    reads(found, ALL[0].ptx())
}

/// Whether they are for GPUs of this capability.
///
/// # Errors
/// When they are for others.
pub(crate) fn require_gpu(found: Capability) -> Result<()> {
    runs(found, ALL[0].ptx())
}

fn reads(found: Version, ptx: &str) -> Result<()> {
    let Some(needed) = said(ptx, ".version ").and_then(cuda_of) else {
        return Ok(());
    };
    if found < needed {
        bail!(
            "expected a driver for CUDA {needed} or later, of which the nvcc is that this program's kernels of candle were built with; found one for {found}: install a \
             newer driver, or compute on processors with `--device cpu`"
        );
    }
    Ok(())
}

/// The CUDA that came with this version of PTX, where that is known: 9.0 came with 13.0, and so on.
fn cuda_of(version: &str) -> Option<Version> {
    let minor = version.strip_prefix("9.")?.parse().ok()?;
    Some(Version { major: 13, minor })
}

fn runs(found: Capability, ptx: &str) -> Result<()> {
    let Some(target) = said(ptx, ".target ") else { return Ok(()) };
    let digits = target.trim_start_matches("sm_");
    let number: String = digits.chars().take_while(char::is_ascii_digit).collect();
    let Ok(number) = number.parse::<i32>() else { return Ok(()) };
    let built = (number / 10, number % 10);
    // Later ones run what was built for one before, unless it was built for that alone, or for those of its kind.
    let fits = match digits.chars().last() {
        Some('a') => found == built,
        Some('f') => found.0 == built.0 && found >= built,
        _ => found >= built,
    };
    if !fits {
        bail!(
            "expected a GPU for which this program's kernels of candle were built, which is {target}; found one of compute capability {}.{}: build it with \
             CUDA_COMPUTE_CAP={}{} in the environment, or compute on processors with `--device cpu`",
            found.0,
            found.1,
            found.0,
            found.1
        );
    }
    Ok(())
}

/// What PTX says of itself behind this word.
fn said<'a>(ptx: &'a str, word: &str) -> Option<&'a str> {
    let line = ptx.lines().find_map(|line| line.strip_prefix(word))?;
    line.split([',', ' ']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ptx(target: &str) -> String {
        format!("//\n// made by nvcc\n//\n\n.version 9.1\n.target {target}\n.address_size 64\n")
    }

    #[test]
    fn a_driver_reads_what_an_nvcc_of_its_cuda_or_an_older_one_wrote() {
        let found = |major, minor| reads(Version { major, minor }, &ptx("sm_80"));
        assert!(found(13, 1).is_ok() && found(14, 0).is_ok());
        let refusal = found(13, 0).unwrap_err().to_string();
        assert!(refusal.starts_with("expected a driver for CUDA 13.1 or later"), "{refusal}");
        assert!(refusal.contains("found one for 13.0"), "{refusal}");
        // What is not known is the driver's to say.
        let old = Version { major: 12, minor: 8 };
        assert!(reads(old, ".version 10.0\n").is_ok() && reads(old, "").is_ok());
    }

    #[test]
    fn a_gpu_runs_what_was_built_for_it_or_for_one_before_but_not_what_is_for_one_alone() {
        let runs = |found, target: &str| runs(found, &ptx(target)).is_ok();
        assert!(runs((8, 0), "sm_80") && runs((9, 0), "sm_80") && runs((12, 0), "sm_80, debug"));
        assert!(!runs((7, 5), "sm_80"));
        assert!(runs((9, 0), "sm_90a") && !runs((10, 0), "sm_90a") && !runs((8, 9), "sm_90a"));
        assert!(runs((10, 3), "sm_100f") && !runs((12, 0), "sm_100f") && runs((12, 1), "sm_121f"));
        let refusal = super::runs((8, 9), &ptx("sm_90a")).unwrap_err().to_string();
        assert!(
            refusal.contains("which is sm_90a") && refusal.contains("CUDA_COMPUTE_CAP=89"),
            "{refusal}"
        );
    }

    #[test]
    fn this_programs_kernels_say_what_they_are_for() {
        for module in &ALL {
            assert!(said(module.ptx(), ".version ").and_then(cuda_of).is_some());
            assert!(said(module.ptx(), ".target ").is_some_and(|target| target.starts_with("sm_")));
        }
    }
}
