//! Each kernel with its reference.

mod dense;
mod pointwise;
mod sums;
mod tables;
mod updates;

use sardana_cuda::kernels::Kernel;

use super::on::{On, Tried};

/// Compares a kernel with its reference.
pub(crate) type Run = fn(&mut On<'_>) -> Tried;

/// One kernel, and what compares it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) kernel: Kernel,
    pub(crate) run: Run,
}

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let groups: [&[(Kernel, Run)]; 5] = [
        &sums::TRIALS,
        &tables::TRIALS,
        &updates::TRIALS,
        &dense::TRIALS,
        &pointwise::TRIALS,
    ];
    let trials = groups.into_iter().flatten();
    trials.map(|&(kernel, run)| Trial { kernel, run }).collect()
}
