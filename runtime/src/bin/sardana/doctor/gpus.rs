//! GPUs, and what programs need to compute on them.

use std::fs;

use super::finding::{Finding, State};

const COMPUTING: &str = "computing on a GPU; a job that has none runs on processors";

#[cfg(feature = "cuda")]
pub(super) fn findings() -> Vec<Finding> {
    let module = kernel_module(fs::read_to_string("/proc/driver/nvidia/version").ok().as_deref());
    let mut findings = vec![module, with_cuda::driver()];
    findings.extend(with_cuda::gpus());
    findings.push(with_cuda::dealt(sardana_cuda::instances::gpus()));
    findings.extend(sardana_cuda::inventory::libraries().into_iter().map(with_cuda::library));
    findings
}

#[cfg(not(feature = "cuda"))]
pub(super) fn findings() -> Vec<Finding> {
    let module = kernel_module(fs::read_to_string("/proc/driver/nvidia/version").ok().as_deref());
    let not_asked = Finding::new(
        "GPUs",
        State::Unknown,
        "this program was built without `cuda`, so it does not ask",
        COMPUTING,
    )
    .advising("cargo build --release -p sardana --bin sardana --features cuda (no CUDA is needed to build it)")
    .value("built_with_cuda", false);
    vec![module, not_asked]
}

/// The driver's part in the kernel says its version in the first line.
fn kernel_module(version: Option<&str>) -> Finding {
    let line = version
        .and_then(|text| text.lines().next())
        .map(|line| line.trim_start_matches("NVRM version:").trim());
    let finding = match line {
        Some(line) => Finding::new("NVIDIA module", State::Fine, line, COMPUTING),
        None => Finding::new("NVIDIA module", State::Missing, "none is loaded into the kernel", COMPUTING).advising(
            "nothing where there is no NVIDIA GPU; else install NVIDIA's driver, and give the container its devices",
        ),
    };
    finding.value("version", line)
}

#[cfg(feature = "cuda")]
mod with_cuda {
    use sardana_cuda::driver::{Absent, Driver, OLDEST, OLDEST_GPU};
    use sardana_cuda::instances::Named;
    use sardana_cuda::inventory::{self, Gpu, Library};

    use super::{COMPUTING, Finding, State};

    pub(super) fn driver() -> Finding {
        let finding = match Driver::of_this_machine() {
            Ok(driver) => {
                let version = driver.version().to_string();
                let found = format!("for CUDA {version}; kernels need {OLDEST} or later");
                Finding::new("NVIDIA driver", State::Fine, found, COMPUTING).value("version", version)
            }
            Err(absent) => missing(&absent),
        };
        finding.value("built_with_cuda", true)
    }

    fn missing(absent: &Absent) -> Finding {
        let words = absent.to_string();
        let (found, to_do) = words
            .rsplit_once("; ")
            .unwrap_or((&words, "run on processors with `--device cpu`"));
        Finding::new("NVIDIA driver", State::Missing, found, COMPUTING).advising(to_do)
    }

    pub(super) fn gpus() -> Vec<Finding> {
        match inventory::gpus() {
            Ok(gpus) => gpus.iter().map(gpu).collect(),
            // That there is no driver is said above.
            Err(_) if Driver::of_this_machine().is_err() => Vec::new(),
            Err(error) => {
                vec![Finding::new("GPUs", State::Unknown, error.to_string(), COMPUTING).advising("see `nvidia-smi`")]
            }
        }
    }

    fn gpu(gpu: &Gpu) -> Finding {
        let instance = if gpu.is_instance { ", an instance (MIG)" } else { "" };
        let found = format!(
            "{}{instance}: {}, {} multiprocessors, compute capability {}",
            gpu.name,
            bytesize::ByteSize(gpu.memory).display().iec(),
            gpu.multiprocessors,
            gpu.capability
        );
        let finding = if gpu.capability >= OLDEST_GPU {
            Finding::new(format!("GPU {}", gpu.ordinal), State::Fine, found, COMPUTING)
        } else {
            Finding::new(format!("GPU {}", gpu.ordinal), State::Limited, found, COMPUTING)
                .advising(format!("use another: kernels need compute capability {OLDEST_GPU} or later"))
        };
        finding
            .value("name", gpu.name.as_str())
            .value("capability", gpu.capability.to_string())
            .value("memory", gpu.memory)
            .value("multiprocessors", gpu.multiprocessors)
            .value("is_instance", gpu.is_instance)
    }

    /// What agents deal to their workers where a GPU is divided, of which CUDA shows one instance at most.
    pub(super) fn dealt(gpus: Option<Vec<Named>>) -> Finding {
        const DEALING: &str = "dealing the instances of divided GPUs (MIG) to workers";
        let Some(gpus) = gpus else {
            return Finding::new(
                "NVML",
                State::Missing,
                "libnvidia-ml.so.1 is not there, or does not begin",
                DEALING,
            )
            .advising("nothing where no GPU is divided; else install all of NVIDIA's driver");
        };
        let instances = gpus.iter().filter_map(|gpu| gpu.instances.as_ref());
        let names: Vec<&str> = instances.clone().flatten().map(String::as_str).collect();
        let found = format!(
            "{} GPUs, {} of them divided, into {} instances",
            gpus.len(),
            instances.count(),
            names.len()
        );
        Finding::new("NVML", State::Fine, found, DEALING).value("instances", names)
    }

    pub(super) fn library(library: Library) -> Finding {
        let needed_for = match library.name {
            "cudart" | "cuRAND" => {
                "programs with candle on GPUs, which are linked with it and do not start without it; nothing else calls it"
            }
            "NVRTC" => "kernels that a program compiles as it runs; those of Sardana come compiled",
            "NCCL" => {
                "sums in fast order, of jobs whose model sums its gradients by it, and of programs that call `sardana_cuda::nccl`"
            }
            _ => "layers of frameworks that compute on a GPU, as candle's are; none of Sardana's kernels calls it",
        };
        let finding = match library.found {
            Ok((file, Ok(version))) => Finding::new(library.name, State::Fine, format!("{version}, as {file}"), needed_for)
                .value("file", file)
                .value("version", version),
            Ok((file, Err(reason))) => Finding::new(
                library.name,
                State::Limited,
                format!("{file} is there, but {reason}"),
                needed_for,
            )
            .advising("install CUDA's anew, or name the folder of another one first in LD_LIBRARY_PATH")
            .value("file", file)
            .value("version", None::<String>),
            Err(reason) => Finding::new(library.name, State::Missing, reason, needed_for).advising(
                "nothing, unless a program asks for it; then install CUDA's, and name its folder in LD_LIBRARY_PATH",
            ),
        };
        finding.value("built_with_cuda", true)
    }

    #[cfg(test)]
    mod tests {
        use sardana_cuda::driver::Version;

        use super::*;

        #[test]
        fn a_gpu_that_is_too_old_says_so() {
            let described = |capability, is_instance| {
                gpu(&Gpu {
                    ordinal: 1,
                    name: "Any".to_owned(),
                    capability,
                    memory: 80 << 30,
                    multiprocessors: 108,
                    is_instance,
                })
            };
            let found = described(OLDEST_GPU, true);
            assert_eq!(
                found.text().lines().next(),
                Some(
                    "GPU 1               fine     Any, an instance (MIG): 80.0 GiB, 108 multiprocessors, compute capability 8.0"
                )
            );
            assert_eq!(found.values["memory"], 80_u64 << 30);
            let old = described(Version { major: 7, minor: 5 }, false);
            assert_eq!((old.state, old.to_do.is_some()), (State::Limited, true));
        }

        #[test]
        fn what_is_missing_says_what_was_found_and_what_to_do() {
            let finding = missing(&Absent::NoDevice);
            assert_eq!(finding.found, "expected a GPU, found none that the NVIDIA driver shows");
            assert!(finding.to_do.is_some_and(|words| words.starts_with("see `nvidia-smi`")));
            let absent = Library {
                name: "cuDNN",
                found: Err("no such file".to_owned()),
            };
            assert_eq!(
                (
                    library(absent).state,
                    library(Library {
                        name: "NCCL",
                        found: Ok(("libnccl.so.2".into(), Ok("2.27.3".into())))
                    })
                    .found
                    .as_str()
                ),
                (State::Missing, "2.27.3, as libnccl.so.2")
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_module_is_told_by_its_first_line() {
        let found = kernel_module(Some(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15\nGCC version: 12\n",
        ));
        assert_eq!(
            (found.state, found.found.as_str()),
            (State::Fine, "NVIDIA UNIX x86_64 Kernel Module  570.86.15")
        );
        assert_eq!(kernel_module(None).state, State::Missing);
    }
}
