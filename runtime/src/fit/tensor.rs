//! What the tensors of a fit are called, and which shapes they have.

use std::sync::Arc;

use sardana_protocol::state::{Dtype, TensorSpec};

use super::network::{Parameter, Role};

/// What a tensor of the network is called, and each slot that the optimizer has for it, in the optimizer's order.
#[derive(Debug)]
pub(super) struct Tensor {
    pub(super) spec: TensorSpec,
    pub(super) slots: Vec<TensorSpec>,
}

impl Tensor {
    /// Elements of it, and of each of its slots.
    pub(super) fn elements(&self) -> usize {
        self.spec.elements().unwrap_or(0)
    }
}

/// All tensors of a network, for an optimizer with these slots.
pub(super) fn tensors(parameters: &[Parameter], slots: &[&str]) -> Arc<[Tensor]> {
    let of = |parameter: &Parameter| {
        let names = if parameter.role == Role::Trained { slots } else { &[] };
        let spec = |name: &str| TensorSpec::new(name, Dtype::F32, &parameter.shape);
        let slot = |slot: &&str| spec(&format!("{}.{slot}", parameter.name));
        Tensor {
            spec: spec(&parameter.name),
            slots: names.iter().map(slot).collect(),
        }
    };
    parameters.iter().map(of).collect()
}
