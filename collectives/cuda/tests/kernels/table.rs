//! The table of kernels against their source.

use std::fs;
use std::path::Path;

use sardana_cuda::kernels::{ALL, Module};

use crate::twin::twin;

#[test]
fn parameters_are_as_large_as_the_compiler_lays_them_out() {
    for module in Module::ALL {
        let Some(twin) = twin(module) else { return };
        for kernel in module.kernels() {
            let sizes: Vec<u32> = kernel
                .parameters
                .iter()
                .map(|(_, parameter)| parameter.bytes() as u32)
                .collect();
            assert_eq!(twin.parameters(kernel.name), Some(sizes.as_slice()), "{}", kernel.name);
        }
    }
}

/// The names of the parameters between a kernel's parentheses.
fn names(signature: &str) -> Vec<&str> {
    signature.split(',').filter_map(|one| one.rsplit([' ', '*']).next()).collect()
}

#[test]
fn each_kernel_and_each_parameter_is_called_as_in_the_source() {
    let mut found = 0;
    for module in Module::ALL {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("kernels")
            .join(module.name())
            .with_extension("cu");
        let text = fs::read_to_string(path).unwrap();
        for kernel in text.split("extern \"C\" __global__ void ").skip(1) {
            let signature = kernel.split(") {").next().unwrap();
            let signature = signature.strip_prefix("__launch_bounds__(CHUNKS, 1) ").unwrap_or(signature);
            let (name, parameters) = signature.split_once('(').unwrap();
            let known = module.kernels().find(|kernel| kernel.name == name);
            let known = known.unwrap_or_else(|| panic!("`{name}` is not in the table of kernels: add it"));
            let expected: Vec<&str> = known.parameters.iter().map(|(name, _)| *name).collect();
            assert_eq!(names(parameters), expected, "{name}");
            found += 1;
        }
    }
    assert_eq!(found, ALL.len(), "the table has kernels that no source has");
}
