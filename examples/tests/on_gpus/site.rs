//! What all runs share, made once: a twin driver, made-up images, and what the plain loop makes of them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sardana::data::formats::{Part, mnist};
use sardana::reference::Reference;
use sardana_cuda::kernels::Module;
use sardana_twins::{Compiler, DriverFiles, Source};
use tempfile::TempDir;

use super::runs::{Environment, env};

/// So many rows and columns of pixels.
const SIDE: usize = 5;
/// Two steps of an epoch, the second of which is short.
const IMAGES: usize = 100;
const EPOCHS: u64 = 12;

pub(super) const HIDDEN: [usize; 2] = [9, 7];

/// Of an image, of what lies between layers, and of the scores.
pub(super) const SIZES: [usize; 4] = [SIDE * SIDE, HIDDEN[0], HIDDEN[1], 10];

pub(super) struct Site {
    files: DriverFiles,
    data: TempDir,
    expected: Reference,
}

/// The text of a module, with the names of its kernels.
pub(super) fn source(module: Module) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collectives/cuda/kernels");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a source file is read");
    let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
    let file = format!("{}.cu", module.name());
    Source::new(&file, &read(&file), &names).including("prelude.cuh", &read("prelude.cuh"))
}

/// None, and a line that says so, where there is no compiler.
pub(super) fn site() -> Option<&'static Site> {
    static SITE: OnceLock<Option<Site>> = OnceLock::new();
    let site = SITE
        .get_or_init(|| Compiler::find().map(|compiler| Site::new(&compiler)))
        .as_ref();
    if site.is_none() {
        println!("skipped: no C++ compiler is installed, or the variable CXX names none");
    }
    site
}

impl Site {
    fn new(compiler: &Compiler) -> Self {
        let data = tempfile::tempdir().unwrap();
        write_images(data.path());
        let used = Module::ALL.map(source);
        Self {
            files: files(compiler, &used),
            expected: super::plain(data.path(), EPOCHS),
            data,
        }
    }

    pub(super) const fn expected(&self) -> &Reference {
        &self.expected
    }

    /// What the program is told.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let hidden = HIDDEN.map(|size| size.to_string()).join(",");
        let epochs = EPOCHS.to_string();
        let mut arguments = vec!["--data".into(), self.data.path().into()];
        arguments.extend(["--hidden", &hidden, "--epochs", &epochs].map(OsString::from));
        arguments
    }

    /// What a worker finds in its environment to which this GPU was dealt.
    pub(super) fn gpu(&self, gpu: &str) -> Environment {
        let mut environment = self.files.environment();
        environment.extend([env("SARDANA_DEVICE", "cuda"), env("CUDA_VISIBLE_DEVICES", gpu)]);
        environment
    }

    /// The files of kernels, as the twin is told of them.
    pub(super) fn kernels(&self) -> OsString {
        let environment = self.files.environment();
        let own = environment.into_iter().find(|(name, _)| name == OsStr::new("TWIN_KERNELS"));
        own.expect("it is among them").1
    }
}

#[cfg(feature = "nccl")]
fn files(compiler: &Compiler, used: &[Source]) -> DriverFiles {
    let files = with_nvml(compiler, used);
    files.with_nccl(compiler).expect("the twin of NCCL is made")
}

#[cfg(not(feature = "nccl"))]
fn files(compiler: &Compiler, used: &[Source]) -> DriverFiles {
    with_nvml(compiler, used)
}

fn with_nvml(compiler: &Compiler, used: &[Source]) -> DriverFiles {
    let files = compiler.driver_files(used).expect("the twin driver is made");
    files.with_nvml(compiler).expect("the twin of NVML is made")
}

/// Images that are each of one of ten patterns.
fn write_images(folder: &Path) {
    let pixel = |number: usize, at: usize| ((at * (number % 10 + 1) * 37 + number) % 251) as u8;
    for (part, count) in [(Part::Train, IMAGES), (Part::Test, 20)] {
        let images: Vec<Vec<u8>> = (0..count)
            .map(|number| (0..SIDE * SIDE).map(|at| pixel(number, at)).collect())
            .collect();
        let labels: Vec<u8> = (0..count).map(|number| (number % 10) as u8).collect();
        mnist::write(folder, part, SIDE, SIDE, &images, &labels).expect("a set is written");
    }
}
