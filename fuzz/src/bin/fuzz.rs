//! The engine's program: `FUZZ_TARGET` says which target it is for, its arguments are the engine's. `.ci/fuzz` runs it.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sardana_fuzz::{TARGETS, Target, target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let names = TARGETS.map(|(name, _)| name);
    target(&name).unwrap_or_else(|| panic!("FUZZ_TARGET: expected one of {names:?}, found {name:?}"))
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
