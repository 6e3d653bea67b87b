//! A twin that finds nothing may only be blind: faults planted in the kernels, each of which must be found, in the way in which it shows.

mod faults;

use std::fmt;

use sardana_cuda::kernels::Module;
use sardana_twins::{CompileError, Twin};

use crate::twin::{Found, SEEDS, compiler, source};
use crate::{dense, halves, hashes, norms, pointwise, sums, tensors, updates};

/// How a fault shows.
#[derive(Clone, Copy, Debug)]
enum Shows {
    /// The kernel does not compile; the compiler names this.
    Refused(&'static str),
    /// A launch ends with a fault that says this, in whatever order.
    Fault(&'static str),
    /// The result has other bits than the reference.
    Bits,
}
use Shows::{Bits, Fault, Refused};
use faults::{BETWEEN_LAYERS, BLOCKS, ELEMENTS, SUMS};

/// A fault: what it is, in which module, which text it replaces by which, and how it shows.
type Planted = (&'static str, Module, &'static str, &'static str, Shows);

impl fmt::Display for Shows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused(name) => write!(f, "a compiler that refuses `{name}`"),
            Fault(text) => write!(f, "a fault that says `{text}`"),
            Bits => f.write_str("other bits"),
        }
    }
}

fn check(module: Module, twin: &Twin, seed: u64) -> Result<(), Found> {
    match module {
        Module::Sums => sums::check(twin, seed),
        Module::Halves => halves::check(twin, seed),
        Module::Tensors => tensors::check(twin, seed),
        Module::Updates => updates::check(twin, seed),
        Module::Norms => norms::check(twin, seed),
        Module::Hashes => hashes::check(twin, seed),
        Module::Dense => dense::check(twin, seed),
        Module::Pointwise => pointwise::check(twin, seed),
    }
}

/// What shows of a fault. None if nothing does.
fn shown(&(_, module, from, to, _): &Planted) -> Option<Result<Found, String>> {
    let compiler = compiler().expect("it was asked for before");
    let twin = match compiler.compile(&source(module).replaced(from, to)) {
        Ok(twin) => twin,
        Err(CompileError::Refused { said, .. }) => return Some(Err(said)),
        Err(error @ (CompileError::Load(_) | CompileError::Io(_))) => panic!("{error}"),
    };
    (0..SEEDS).find_map(|seed| check(module, &twin, seed).err()).map(Ok)
}

fn all_are_found(planted: &[Planted]) {
    if compiler().is_none() {
        return println!("skipped: no C++ compiler that can make twins is found");
    }
    let missed: Vec<String> = planted.iter().filter_map(missed).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// What is to be said of a fault that is not found, or not in its way.
fn missed(planted: &Planted) -> Option<String> {
    let (what, .., expected) = planted;
    let found = match (shown(planted), expected) {
        (Some(Err(said)), Refused(name)) if said.contains("deleted") && said.contains(name) => return None,
        (Some(Ok(Found::Bits(_))), Bits) => return None,
        (Some(Ok(Found::Fault(fault))), Fault(text)) if fault.to_string().contains(text) => return None,
        (None, _) => "nothing".to_owned(),
        (Some(Err(said)), _) => said,
        (Some(Ok(found)), _) => found.to_string(),
    };
    Some(format!("{what}: expected {expected}, found {found}"))
}

#[test]
fn faults_in_sums_are_found() {
    all_are_found(SUMS);
}

#[test]
fn faults_in_what_is_done_element_by_element_are_found() {
    all_are_found(ELEMENTS);
}

#[test]
fn faults_in_what_a_block_does_together_are_found() {
    all_are_found(BLOCKS);
}

#[test]
fn faults_between_layers_are_found() {
    all_are_found(BETWEEN_LAYERS);
}
