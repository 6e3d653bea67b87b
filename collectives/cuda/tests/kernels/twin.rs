//! The modules' twins, each compiled once, and what a check has to say.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use bytemuck::NoUninit;
use sardana_cuda::geometry::Geometry;
use sardana_cuda::kernels::{Kernel, Module};
use sardana_twins::{Argument, Compiler, Fault, Launch, Memory, Source, Twin};

/// Orders of blocks and threads in which each kernel is run.
pub(crate) const SEEDS: u64 = 64;

/// What a check has found.
#[derive(Debug)]
pub(crate) enum Found {
    /// The launch went wrong.
    Fault(Fault),
    /// The result has other bits.
    Bits(String),
}

impl From<Fault> for Found {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => write!(f, "{fault}"),
            Self::Bits(what) => f.write_str(what),
        }
    }
}

/// The compiler, once.
pub(crate) fn compiler() -> Option<&'static Compiler> {
    static COMPILER: OnceLock<Option<Compiler>> = OnceLock::new();
    COMPILER.get_or_init(Compiler::find).as_ref()
}

/// The text of a module, with the names of its kernels.
pub(crate) fn source(module: Module) -> Source {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a source file is read");
    let names: Vec<&str> = module.kernels().map(|kernel| kernel.name).collect();
    let file = format!("{}.cu", module.name());
    Source::new(&file, &read(&file), &names).including("prelude.cuh", &read("prelude.cuh"))
}

/// The twin of a module; none, and a line that says so, where there is no compiler.
pub(crate) fn twin(module: Module) -> Option<&'static Twin> {
    static TWINS: [OnceLock<Twin>; Module::ALL.len()] = [const { OnceLock::new() }; Module::ALL.len()];
    let Some(compiler) = compiler() else {
        println!("skipped: no C++ compiler that can make twins is found");
        return None;
    };
    let make = || compiler.compile(&source(module)).unwrap_or_else(|error| panic!("{error}"));
    Some(TWINS[module as usize].get_or_init(make))
}

/// Runs a kernel with a geometry, in the order of a seed.
pub(crate) fn run(
    (twin, seed): (&Twin, u64),
    kernel: Kernel,
    geometry: Option<Geometry>,
    memory: &mut Memory,
    arguments: &[Argument],
) -> Result<(), Found> {
    // Nothing to do is no launch.
    let Some(Geometry { grid, block }) = geometry else {
        return Ok(());
    };
    twin.launch(&Launch::new(kernel.name, grid, block).seed(seed), memory, arguments)?;
    Ok(())
}

/// A geometry along x that the seed decides: from one thread to several blocks of several warps.
pub(crate) fn any_geometry(seed: u64) -> Option<Geometry> {
    let (blocks, threads) = ([1, 2, 3, 7][seed as usize % 4], [1, 31, 64, 96, 33][seed as usize % 5]);
    Some(Geometry {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
    })
}

/// Whether two results have the same bits.
pub(crate) fn same<T: NoUninit + fmt::Debug>(what: &str, found: &[T], expected: &[T]) -> Result<(), Found> {
    if bytemuck::cast_slice::<T, u8>(found) == bytemuck::cast_slice::<T, u8>(expected) {
        return Ok(());
    }
    let bits = |value: &T| bytemuck::bytes_of(value).to_vec();
    let differs = found
        .iter()
        .zip(expected)
        .position(|(found, expected)| bits(found) != bits(expected));
    let at = differs.unwrap_or(found.len().min(expected.len()));
    let of = |values: &[T]| values.get(at).map(|value| (*value, bits(value)));
    Err(Found::Bits(format!(
        "{what}: element {at} of {}: expected {:02x?}, found {:02x?}",
        expected.len(),
        of(expected),
        of(found)
    )))
}

/// Runs a module's check in all orders.
pub(crate) fn in_all_orders(module: Module, check: impl Fn(&Twin, u64) -> Result<(), Found>) {
    let Some(twin) = twin(module) else { return };
    let begin = Instant::now();
    for seed in 0..SEEDS {
        if let Err(found) = check(twin, seed) {
            panic!("in the order of seed {seed}: {found}");
        }
    }
    println!("{module:?}: {SEEDS} orders in {:.1?}", begin.elapsed());
}
