//! The state of a fit: the network's tensors, what the optimizer remembers of each, and the number of updates. All of it is shown, saved
//! and loaded.

use std::sync::Arc;

use sardana_protocol::state::{Dtype, TensorSpec};

use super::network::{Parameter, Role, Values};
use crate::model::{ModelError, SharedState};

/// What an optimizer remembers of one tensor.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// In the optimizer's order.
    pub(super) specs: Vec<TensorSpec>,
    pub(super) values: Vec<Vec<f32>>,
}

/// Where a tensor of the state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Parameter(usize),
    Slot { parameter: usize, slot: usize },
    Updates,
}

/// All but the values of the network, which the network keeps.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) specs: Vec<TensorSpec>,
    /// Of each tensor, behind `Arc`s, so that a snapshot may read them while gradients are computed.
    pub(super) slots: Vec<Arc<Slots>>,
    pub(super) updates: u64,
}

impl State {
    /// Before the first update.
    pub(super) fn new(parameters: &[Parameter], slots: &[&str]) -> Self {
        let spec = |parameter: &Parameter| TensorSpec::new(&parameter.name, Dtype::F32, &parameter.shape);
        let of = |parameter: &Parameter| {
            let names = if parameter.role == Role::Trained { slots } else { &[] };
            let named = |slot: &&str| TensorSpec::new(format!("{}.{slot}", parameter.name), Dtype::F32, &parameter.shape);
            let elements = spec(parameter).elements().unwrap_or(0);
            Arc::new(Slots {
                specs: names.iter().map(named).collect(),
                values: vec![vec![0.0; elements]; names.len()],
            })
        };
        Self {
            specs: parameters.iter().map(spec).collect(),
            slots: parameters.iter().map(of).collect(),
            updates: 0,
        }
    }

    /// Where the tensor is kept, if it is one of this state.
    pub(super) fn place(&self, tensor: &TensorSpec) -> Option<Place> {
        if *tensor == updates_spec() {
            return Some(Place::Updates);
        }
        let parameters = self.specs.iter().zip(&self.slots).enumerate();
        parameters.into_iter().find_map(|(parameter, (spec, slots))| {
            if spec == tensor {
                return Some(Place::Parameter(parameter));
            }
            let slot = slots.specs.iter().position(|spec| spec == tensor)?;
            Some(Place::Slot { parameter, slot })
        })
    }
}

fn updates_spec() -> TensorSpec {
    TensorSpec::new("fit.updates", Dtype::U64, &[])
}

/// A state with the network's values: what is shown.
pub(super) struct Shown {
    pub(super) state: State,
    pub(super) values: Box<dyn Values>,
}

impl SharedState for Shown {
    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        let mut bytes = Vec::new();
        let parameters = self.state.specs.iter().zip(&self.state.slots).enumerate();
        for (number, (spec, slots)) in parameters {
            self.values
                .see(number, &mut |values| show(spec, values, &mut bytes, visitor))?;
            for (spec, values) in slots.specs.iter().zip(&slots.values) {
                show(spec, values, &mut bytes, visitor);
            }
        }
        visitor(&updates_spec(), &self.state.updates.to_le_bytes());
        Ok(())
    }
}

/// On most machines the values are the very bytes that are shown.
fn show(spec: &TensorSpec, values: &[f32], bytes: &mut Vec<u8>, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) {
    if cfg!(target_endian = "little") {
        return visitor(spec, bytemuck::cast_slice(values));
    }
    bytes.clear();
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    visitor(spec, bytes);
}

/// Takes values back from the bytes that were shown.
pub(super) fn load(values: &mut [f32], bytes: &[u8]) -> Result<(), ModelError> {
    let (elements, rest) = bytes.as_chunks::<4>();
    if elements.len() != values.len() || !rest.is_empty() {
        return Err(format!("expected {} bytes, found {}", values.len() * 4, bytes.len()).into());
    }
    for (value, bytes) in values.iter_mut().zip(elements) {
        *value = f32::from_le_bytes(*bytes);
    }
    Ok(())
}
