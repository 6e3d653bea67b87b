//! The twin driver of this process, made once.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sardana_cuda::kernels::Module;
use sardana_twins::{Driver, Planted, Session, Source};

fn source(module: Module) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a source file is read");
    let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
    let file = format!("{}.cu", module.name());
    Source::new(&file, &read(&file), &names).including("prelude.cuh", &read("prelude.cuh"))
}

/// The driver with all kernels; none, and a line that says so, where there is no compiler.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    Driver::once(&DRIVER, || Module::ALL.map(source).to_vec())
}

/// At which of these calls of its kind a fault is found in one of so many orders of streams, and which calls they are. `is_found`: whether something of this session
/// gives a fault away.
pub(crate) fn found_at(
    what: Planted,
    seeds: u64,
    calls: impl FnOnce(&Session<'_>) -> Vec<u64>,
    is_found: impl Fn(&Session<'_>) -> bool,
) -> Option<(Vec<u64>, Vec<u64>)> {
    let driver = driver()?;
    let session = driver.begin(1);
    assert!(!is_found(&session), "nothing is found where nothing is planted");
    let calls = calls(&session);
    drop(session);
    let finds = |&call: &u64| {
        (0..seeds).any(|seed| {
            let session = driver.begin(seed);
            session.plant(what, call);
            is_found(&session)
        })
    };
    Some((calls.iter().copied().filter(finds).collect(), calls))
}
