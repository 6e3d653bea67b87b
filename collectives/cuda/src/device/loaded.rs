//! The kernels' code on a device: made of the PTX when a kernel of a module is first launched, and compared with the table. Must not launch.

use std::sync::{Arc, OnceLock};

use cudarc::driver::{CudaContext, CudaFunction, DriverError};
use cudarc::nvrtc::Ptx;

use super::error::DeviceError;
use super::name_of;
use crate::driver::Driver;
use crate::kernels::{Kernel, Module};
use crate::raw::context;

/// The modules that are loaded.
#[derive(Debug, Default)]
pub(super) struct Modules([OnceLock<Vec<CudaFunction>>; Module::ALL.len()]);

impl Modules {
    /// The code of a kernel.
    pub(super) fn function(
        &self,
        driver: &Driver,
        context: &Arc<CudaContext>,
        kernel: &Kernel,
    ) -> Result<&CudaFunction, DeviceError> {
        let module = Module::ALL.iter().position(|module| *module == kernel.module);
        let place = &self.0[module.expect("all modules are in the list of all")];
        if place.get().is_none() {
            // Two threads may load it at once: either's is as good.
            let _ = place.set(load(driver, context, kernel.module)?);
        }
        let functions = place.get().expect("it was loaded just now");
        let index = kernel.module.kernels().position(|other| other.name == kernel.name);
        Ok(&functions[index.expect("a kernel is one of its module's")])
    }
}

fn load(driver: &Driver, context: &Arc<CudaContext>, module: Module) -> Result<Vec<CudaFunction>, DeviceError> {
    let refused = |error: DriverError| DeviceError::Kernels {
        module: module.name(),
        code: error.0 as u32,
        name: name_of(error),
    };
    let loaded = context.load_module(Ptx::from_src(module.ptx())).map_err(refused)?;
    let mut functions = Vec::new();
    for kernel in module.kernels() {
        let function = loaded.load_function(kernel.name).map_err(refused)?;
        if driver.tells_parameter_sizes() {
            compare(kernel, &context::parameter_sizes(&function).map_err(refused)?)?;
        }
        functions.push(function);
    }
    Ok(functions)
}

fn compare(kernel: &Kernel, found: &[usize]) -> Result<(), DeviceError> {
    let expected: Vec<usize> = kernel.parameters.iter().map(|(_, parameter)| parameter.bytes()).collect();
    if expected == found {
        return Ok(());
    }
    Err(DeviceError::Launch {
        kernel: kernel.name,
        expected: format!("parameters of {expected:?} bytes, as the table of kernels has them,"),
        found: format!("{found:?} in its code"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::MEAN_F32;

    #[test]
    fn code_with_other_parameters_than_the_tables_is_refused() {
        assert_eq!(compare(&MEAN_F32, &[8, 8, 4, 8]), Ok(()));
        for wrong in [vec![8, 8, 8, 8], vec![8, 8, 4], vec![]] {
            let error = compare(&MEAN_F32, &wrong).unwrap_err().to_string();
            assert!(error.contains("[8, 8, 4, 8]") && error.contains("mean_f32"), "{error}");
        }
    }
}
