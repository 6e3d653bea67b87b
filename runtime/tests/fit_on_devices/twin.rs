//! The twin driver of this process, made once.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sardana_cuda::kernels::Module;
use sardana_twins::{Driver, Source};

fn source(module: Module) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collectives/cuda/kernels");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a source file is read");
    let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
    let file = format!("{}.cu", module.name());
    Source::new(&file, &read(&file), &names).including("prelude.cuh", &read("prelude.cuh"))
}

/// The driver with the kernels of sums, updates and hashes; none, and a line that says so, where there is no compiler.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    Driver::once(&DRIVER, || {
        [Module::Sums, Module::Updates, Module::Norms, Module::Hashes]
            .map(source)
            .to_vec()
    })
}
