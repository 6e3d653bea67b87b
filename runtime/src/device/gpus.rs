//! Which GPUs a process may use, by the names that CUDA gives them. Must not know how many workers there are.

use std::ffi::OsString;

pub use sardana_actors::agent::GPUS_VARIABLE;

use super::DeviceChoice;

/// What a reader can do about it.
const OTHERWISE: &str = "or run on processors with `--device cpu`";

/// Why workers get no GPU, though they were to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoGpu {
    /// [`GPUS_VARIABLE`] has what is no GPU's name.
    #[error(
        "expected numbers, or names that begin with GPU- or MIG-, with commas between them, in {GPUS_VARIABLE}, found {0:?}: correct it, {OTHERWISE}"
    )]
    Names(OsString),
    /// [`GPUS_VARIABLE`] hides all of them.
    #[error(
        "expected a GPU for `--device {0}`, found that {GPUS_VARIABLE} hides all: name some there, or leave it out, {OTHERWISE}"
    )]
    Hidden(DeviceChoice),
    /// There is none.
    #[error("expected a GPU for `--device {asked}`, found none: {reason}")]
    None {
        /// What was asked for.
        asked: DeviceChoice,
        /// Why, and what to do.
        reason: String,
    },
    /// There are some, and none of this number.
    #[error("expected a GPU of number {asked}, found {found}, numbered from 0; choose another, {OTHERWISE}")]
    Number {
        /// The number that was asked for.
        asked: u32,
        /// How many there are.
        found: usize,
    },
    /// This program cannot compute on one.
    #[error(
        "expected a program that can compute on a GPU, for `--device {0}`, found one that was built without: build it with `--features cuda`, {OTHERWISE}"
    )]
    NotBuilt(DeviceChoice),
    /// What this program computes is computed on processors.
    #[error(
        "expected `auto` or `cpu`, since this program computes on processors alone, found `--device {0}`: train a model that computes on a GPU, as the example cuda_mlp does, {OTHERWISE}"
    )]
    Processors(DeviceChoice),
}

/// The GPUs that `variable`, the value of [`GPUS_VARIABLE`], shows. As CUDA reads it: an entry below 0 hides those behind it.
pub(super) fn named(variable: OsString) -> Result<Vec<String>, NoGpu> {
    let Some(text) = variable.to_str() else {
        return Err(NoGpu::Names(variable));
    };
    let entries = text.split(',').map(str::trim);
    let mut gpus = Vec::new();
    for entry in entries.take_while(|entry| !entry.starts_with('-')) {
        let is_number = !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = ["GPU-", "MIG-"].iter().any(|start| entry.starts_with(start));
        if is_number || is_name {
            gpus.push(entry.to_owned());
        } else if !text.trim().is_empty() {
            return Err(NoGpu::Names(variable));
        }
    }
    Ok(gpus)
}

/// The GPUs of this machine, or why there are none and what to do: by number, or by name if one of them is divided.
pub(super) fn of_this_machine() -> Result<Vec<String>, String> {
    if let Some(named) = where_divided() {
        return named;
    }
    // The driver's module lists them here, whatever libraries there are.
    let listed = std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
    let found = if listed > 0 { listed } else { told_by_driver()? };
    Ok((0..found).map(|number| number.to_string()).collect())
}

/// By name, where one is divided: CUDA shows a process one instance at most, and numbers are then of nothing else.
#[cfg(feature = "cuda")]
fn where_divided() -> Option<Result<Vec<String>, String>> {
    by_name(sardana_cuda::instances::gpus().unwrap_or_default())
}

/// Without the feature nothing loads a library.
#[cfg(not(feature = "cuda"))]
const fn where_divided() -> Option<Result<Vec<String>, String>> {
    None
}

/// The instances of those that are divided, and the others whole. None if none is divided.
#[cfg(feature = "cuda")]
fn by_name(gpus: Vec<sardana_cuda::instances::Named>) -> Option<Result<Vec<String>, String>> {
    let divided = gpus.iter().find(|gpu| gpu.instances.is_some())?.name.clone();
    let names = gpus
        .into_iter()
        .flat_map(|gpu| gpu.instances.unwrap_or_else(|| vec![gpu.name]));
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return Some(Err(format!(
            "{divided} is divided (MIG) and has no instance that can be seen here; make some with `nvidia-smi mig -cgi`, {OTHERWISE}"
        )));
    }
    Some(Ok(names))
}

#[cfg(feature = "cuda")]
fn told_by_driver() -> Result<usize, String> {
    let driver = sardana_cuda::driver::Driver::of_this_machine();
    driver.map(|driver| driver.devices()).map_err(|absent| absent.to_string())
}

#[cfg(not(feature = "cuda"))]
fn told_by_driver() -> Result<usize, String> {
    Err(format!(
        "there is no NVIDIA driver under /proc/driver/nvidia, and this program was built without `--features cuda`, by which it would ask further; install a driver, or name GPUs in {GPUS_VARIABLE}, {OTHERWISE}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_as_cuda_names_them() {
        let of = |text: &str| named(text.into());
        assert_eq!(of("0"), Ok(vec!["0".to_owned()]));
        let names = ["3", "GPU-5f1c", "MIG-a1/2/0"].map(str::to_owned).to_vec();
        assert_eq!(of(" 3,GPU-5f1c, MIG-a1/2/0"), Ok(names));
        assert_eq!(of("1,-1,2"), Ok(vec!["1".to_owned()]));
        for none in ["", " ", "-1"] {
            assert_eq!(of(none), Ok(vec![]), "{none:?}");
        }
        for wrong in ["all", "0,,1", "0;1", "gpu-1", "1.5", ","] {
            assert_eq!(of(wrong), Err(NoGpu::Names(wrong.into())), "{wrong:?}");
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn where_a_gpu_is_divided_its_instances_are_dealt_and_the_others_whole() {
        use sardana_cuda::instances::Named;

        let gpu = |name: &str, instances: Option<&[&str]>| Named {
            name: name.to_owned(),
            instances: instances.map(|names| names.iter().map(ToString::to_string).collect()),
        };
        let of = |gpus: &[Named]| by_name(gpus.to_vec()).map(|named| named.map(|names| names.join(" ")));
        let (whole, divided) = (gpu("GPU-a", None), gpu("GPU-b", Some(&["MIG-1", "MIG-2"])));
        let empty = gpu("GPU-c", Some(&[]));
        // Their numbers do.
        for none in [&[][..], &[whole.clone(), whole.clone()]] {
            assert_eq!(of(none), None);
        }
        assert_eq!(of(std::slice::from_ref(&divided)), Some(Ok("MIG-1 MIG-2".to_owned())));
        let mixed = [whole.clone(), divided, empty.clone()];
        assert_eq!(of(&mixed), Some(Ok("GPU-a MIG-1 MIG-2".to_owned())));
        assert_eq!(of(&[empty.clone(), whole]), Some(Ok("GPU-a".to_owned())));
        let refused = of(&[empty]).unwrap().unwrap_err();
        assert!(
            refused.starts_with("GPU-c is divided (MIG) and has no instance") && refused.ends_with("`--device cpu`"),
            "{refused}"
        );
    }

    #[test]
    fn each_refusal_says_what_was_expected_and_found_and_what_to_do() {
        let cuda = DeviceChoice::Cuda(None);
        for refusal in [
            NoGpu::Names("x".into()),
            NoGpu::Hidden(cuda),
            NoGpu::Number { asked: 2, found: 1 },
            NoGpu::NotBuilt(cuda),
            NoGpu::Processors(cuda),
        ] {
            let words = refusal.to_string();
            assert!(
                words.starts_with("expected ") && words.contains(", found ") && words.ends_with("`--device cpu`"),
                "{words}"
            );
        }
    }
}
