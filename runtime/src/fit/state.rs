//! The state of a fit: the network's tensors, what the optimizer remembers of each, and the number of updates. All of it is shown, saved
//! and loaded.

#[cfg(feature = "cuda")]
use std::iter::once;
use std::sync::Arc;

use sardana_protocol::state::{Dtype, TensorSpec};

#[cfg(feature = "cuda")]
use super::network::Network;
use super::network::Values;
use super::slots::{ShownSlots, Slots};
use super::tensor::Tensor;
#[cfg(feature = "cuda")]
use crate::model::{HashedTensor, PieceHash};
use crate::model::{ModelError, SharedState};

/// Where a tensor of the state is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Parameter(usize),
    Slot { parameter: usize, slot: usize },
    Updates,
}

/// All but the values of the network, which the network keeps.
#[derive(Debug)]
pub(super) struct State {
    pub(super) tensors: Arc<[Tensor]>,
    pub(super) slots: Slots,
    pub(super) updates: u64,
}

impl State {
    /// Where the tensor is kept, if it is one of this state.
    pub(super) fn place(&self, tensor: &TensorSpec) -> Option<Place> {
        if *tensor == updates_spec() {
            return Some(Place::Updates);
        }
        self.tensors.iter().enumerate().find_map(|(parameter, own)| {
            if own.spec == *tensor {
                return Some(Place::Parameter(parameter));
            }
            let slot = own.slots.iter().position(|spec| spec == tensor)?;
            Some(Place::Slot { parameter, slot })
        })
    }

    /// Bytes of all tensors, and so of a gradient or a sum.
    pub(super) fn tensor_bytes(&self) -> u64 {
        let elements = self.tensors.iter().map(Tensor::elements);
        (elements.sum::<usize>() * size_of::<f32>()) as u64
    }

    /// Bytes that updates take on a device, all the time: of what the optimizer remembers there, and of the sum.
    pub(super) fn device_bytes(&self) -> u64 {
        if self.slots.on_host() {
            return 0;
        }
        let elements = self.tensors.iter().map(|tensor| tensor.elements() * (tensor.slots.len() + 1));
        (elements.sum::<usize>() * size_of::<f32>()) as u64
    }

    /// All tensors, in the order in which they are shown, with the hashes of their pieces, if they lie where they can be hashed.
    #[cfg(feature = "cuda")]
    pub(super) fn piece_hashes(&self, network: &impl Network) -> Result<Option<Vec<HashedTensor>>, ModelError> {
        let (Some(network), Slots::OnDevice(slots)) = (network.on_device(), &self.slots) else {
            return Ok(None);
        };
        let Some(hashes) = slots.piece_hashes(network, &self.tensors)? else {
            return Ok(None);
        };
        let specs = self.tensors.iter().flat_map(|tensor| once(&tensor.spec).chain(&tensor.slots));
        let tensors = specs.zip(hashes);
        let mut hashed: Vec<_> = tensors
            .map(|(spec, pieces)| HashedTensor {
                spec: spec.clone(),
                pieces,
            })
            .collect();
        hashed.push(HashedTensor {
            spec: updates_spec(),
            pieces: vec![PieceHash::of(&self.updates.to_le_bytes())],
        });
        Ok(Some(hashed))
    }

    /// As it is now, with the network's values.
    pub(super) fn shown(&self, values: Box<dyn Values>) -> Shown {
        Shown {
            tensors: Arc::clone(&self.tensors),
            slots: self.slots.shown(),
            updates: self.updates,
            values,
        }
    }
}

fn updates_spec() -> TensorSpec {
    TensorSpec::new("fit.updates", Dtype::U64, &[])
}

/// A state at one boundary: what is shown.
pub(super) struct Shown {
    tensors: Arc<[Tensor]>,
    slots: ShownSlots,
    updates: u64,
    values: Box<dyn Values>,
}

impl SharedState for Shown {
    fn visit(&self, visitor: &mut dyn FnMut(&TensorSpec, &[u8])) -> Result<(), ModelError> {
        self.visit_wanted(&mut |_| true, visitor)
    }

    fn visit_wanted(
        &self,
        wanted: &mut dyn FnMut(&TensorSpec) -> bool,
        visitor: &mut dyn FnMut(&TensorSpec, &[u8]),
    ) -> Result<(), ModelError> {
        let mut bytes = Vec::new();
        for (number, tensor) in self.tensors.iter().enumerate() {
            if wanted(&tensor.spec) {
                self.values
                    .see(number, &mut |values| show(&tensor.spec, values, &mut bytes, visitor))?;
            }
            for (slot, spec) in tensor.slots.iter().enumerate() {
                if wanted(spec) {
                    self.slots
                        .see(number, slot, &mut |values| show(spec, values, &mut bytes, visitor))?;
                }
            }
        }
        let updates = updates_spec();
        if wanted(&updates) {
            visitor(&updates, &self.updates.to_le_bytes());
        }
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
