//! GPUs that are divided: an agent finds the instances by itself, and deals out one to each worker.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use super::read;
use super::site::{Site, site};

/// Two instances with a gap between them, a whole GPU, and a divided one without an instance.
const GPUS: &str = "GPU-a:MIG-1,,MIG-2;GPU-b;GPU-c:";

/// The program on a machine with these GPUs.
fn runs(site: &Site, gpus: &str, workers: u32, more: &[(&str, &Path)]) -> Output {
    let mut program = site.program();
    program
        .args(["--device", "cuda", "-n", &workers.to_string()])
        .envs(site.gpu("0"));
    program.env_remove("CUDA_VISIBLE_DEVICES").env_remove("SARDANA_DEVICE");
    program
        .env("TWIN_GPUS", gpus)
        .env("RUST_LOG", "info")
        .envs(more.iter().copied());
    program.output().unwrap()
}

/// How many workers have had each GPU, by its name, and what was said.
fn dealt(site: &Site, gpus: &str, workers: u32) -> (BTreeMap<String, usize>, String) {
    let accounts = tempfile::tempdir().unwrap();
    let ended = runs(site, gpus, workers, &[("TWIN_ACCOUNT", accounts.path())]);
    let [out, err] = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(ended.status.success(), "{err}");
    assert!(out.contains(&format!("final state {}", site.expected().hash)), "{out}");
    let mut had = BTreeMap::new();
    for account in read(accounts.path()) {
        let gpu = account.split_whitespace().last().unwrap().to_owned();
        // The agent's own process has asked for none.
        if gpu != "-" {
            *had.entry(gpu).or_default() += 1;
        }
    }
    (had, err)
}

fn had(names: &[(&str, usize)]) -> BTreeMap<String, usize> {
    names.iter().map(|(name, workers)| ((*name).to_owned(), *workers)).collect()
}

#[test]
fn each_worker_has_an_instance_of_its_own_or_shares_one_in_turn() {
    let Some(site) = site() else { return };
    let (own, said) = dealt(site, GPUS, 3);
    assert_eq!(own, had(&[("GPU-b", 1), ("MIG-1", 1), ("MIG-2", 1)]));
    assert!(
        said.contains("each worker is given a GPU of its own workers=3 gpus=MIG-1 MIG-2 GPU-b"),
        "{said}"
    );
    let (shared, said) = dealt(site, GPUS, 4);
    assert_eq!(shared, had(&[("GPU-b", 1), ("MIG-1", 2), ("MIG-2", 1)]));
    assert!(
        said.contains("there are fewer GPUs than workers: they share them in turn"),
        "{said}"
    );
    // Where none is divided all is as without NVML.
    let (whole, _) = dealt(site, "GPU-a;GPU-b", 1);
    assert_eq!(whole, had(&[("0", 1)]));
}

#[test]
fn what_a_person_names_counts_more_than_what_is_found() {
    let Some(site) = site() else { return };
    let named = runs(site, GPUS, 2, &[("CUDA_VISIBLE_DEVICES", Path::new("MIG-2"))]);
    let said = String::from_utf8_lossy(&named.stderr).into_owned();
    assert!(named.status.success(), "{said}");
    assert!(
        said.contains("they share them in turn, and their memory workers=2 gpus=MIG-2"),
        "{said}"
    );
}

#[test]
fn a_divided_gpu_without_an_instance_is_refused_in_words_that_say_what_to_do() {
    let Some(site) = site() else { return };
    let refused = runs(site, "GPU-c:", 2, &[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let expected =
        "expected a GPU for `--device cuda`, found none: GPU-c is divided (MIG) and has no instance that can be seen here";
    assert!(said.contains(expected) && said.contains("nvidia-smi mig -cgi"), "{said}");
    assert!(!said.contains("a worker process was started"), "{said}");
}
