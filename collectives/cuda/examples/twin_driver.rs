//! Writes the twin driver with all kernels to a folder, for processes that are to take it for the machine's: `libcuda.so`, `libnccl.so`, a file for each module of
//! kernels, `meetings`, where ranks of NCCL share files, and `environment`, which a shell reads before it starts them.
//!
//! `cargo run -p sardana-cuda --features cuda --example twin_driver -- FOLDER [--wrong]`: with `--wrong` one kernel gives other bits, to see that it is found.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sardana_cuda::kernels::Module;
use sardana_twins::{Compiler, Source};

/// What is wrong with `--wrong`, and in which module.
const WRONG: (Module, &str, &str) = (Module::Pointwise, "scores[i] - target", "scores[i] - 0.75f * target");

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (folder, wrong) = match &arguments[..] {
        [folder] => (PathBuf::from(folder), false),
        [folder, word] if word == "--wrong" => (PathBuf::from(folder), true),
        _ => {
            eprintln!("usage: twin_driver FOLDER [--wrong]");
            return ExitCode::from(2);
        }
    };
    let Some(compiler) = Compiler::or_skip() else {
        return ExitCode::from(3);
    };
    match write(&compiler, &folder, wrong) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the twin driver cannot be written to {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn source(module: Module, wrong: bool) -> std::io::Result<Source> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let read = |name: &str| fs::read_to_string(folder.join(name));
    let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
    let file = format!("{}.cu", module.name());
    let source = Source::new(&file, &read(&file)?, &names).including("prelude.cuh", &read("prelude.cuh")?);
    let (place, from, to) = WRONG;
    Ok(if wrong && module == place {
        source.replaced(from, to)
    } else {
        source
    })
}

fn write(compiler: &Compiler, folder: &Path, wrong: bool) -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all(folder)?;
    let folder = folder.canonicalize()?;
    let sources = Module::ALL.map(|module| source(module, wrong));
    let sources = sources.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    let files = compiler.driver_files(&sources)?.with_nccl(compiler)?;
    for library in ["libcuda.so", "libnccl.so"] {
        fs::copy(files.folder().join(library), folder.join(library))?;
    }
    // Of earlier processes, which are gone.
    let meetings = folder.join("meetings");
    if meetings.exists() {
        fs::remove_dir_all(&meetings)?;
    }
    fs::create_dir(&meetings)?;
    let mut kernels = Vec::new();
    for (module, file) in Module::ALL.into_iter().zip(files.kernels()) {
        let own = folder.join(format!("{}.so", module.name()));
        fs::copy(file, &own)?;
        kernels.push(own.display().to_string());
    }
    let environment = format!(
        "export LD_LIBRARY_PATH='{}' TWIN_KERNELS='{}' TWIN_NCCL='{}'\n",
        folder.display(),
        kernels.join(":"),
        meetings.display()
    );
    fs::write(folder.join("environment"), environment)?;
    Ok(())
}
