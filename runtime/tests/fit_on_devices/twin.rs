//! The twin driver of this process, made once.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sardana_cuda::kernels::Module;
use sardana_twins::{Compiler, Driver, Left, Session, Source};

fn source(module: Module) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collectives/cuda/kernels");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a source file is read");
    let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
    let file = format!("{}.cu", module.name());
    Source::new(&file, &read(&file), &names).including("prelude.cuh", &read("prelude.cuh"))
}

/// The driver with the kernels of sums and updates; none, and a line that says so, where there is no compiler.
pub(crate) fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let make = || {
        let used = [Module::Sums, Module::Updates, Module::Norms].map(source);
        Some(Compiler::find()?.driver(&used).expect("the twin driver is made"))
    };
    let driver = DRIVER.get_or_init(make).as_ref();
    if driver.is_none() {
        println!("skipped: no C++ compiler is installed, or the variable CXX names none");
    }
    driver
}

/// Requires that nothing was wrong, and that everything was given back.
pub(crate) fn ends_well(session: &Session<'_>) {
    assert_eq!(session.fault(), None);
    assert_eq!(session.left(), Left::default());
}
