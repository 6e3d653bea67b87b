//! What an optimizer remembers of each tensor, where the tensor is updated: in the host's memory, or on a device. Must not know what it means.

use std::sync::Arc;

use super::error::FitError;
#[cfg(feature = "cuda")]
use super::network::DeviceNetwork;
use super::network::Network;
#[cfg(feature = "cuda")]
use super::on_device::{DeviceSlots, ShownDeviceSlots};
use super::on_host::HostSlots;
use super::tensor::Tensor;
use crate::model::ModelError;
use crate::optim::Optimizer;

/// Values of slots, by tensor.
#[derive(Debug)]
pub(super) enum Slots {
    OnHost(HostSlots),
    #[cfg(feature = "cuda")]
    OnDevice(Box<DeviceSlots>),
}

impl Slots {
    /// Before the first update.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(
            unused_variables,
            clippy::unnecessary_wraps,
            reason = "without GPUs there is one place, and room for it"
        )
    )]
    pub(super) fn new<N: Network>(network: &mut N, optimizer: &dyn Optimizer, tensors: &[Tensor]) -> Result<Self, FitError> {
        #[cfg(feature = "cuda")]
        if let (Some(network), Some(update)) = (on_device(network)?, optimizer.device_update()) {
            let slots = DeviceSlots::new(network.device(), update, tensors)?;
            return Ok(Self::OnDevice(Box::new(slots)));
        }
        let of = |tensor: &Tensor| Arc::new(vec![vec![0.0; tensor.elements()]; tensor.slots.len()]);
        Ok(Self::OnHost(tensors.iter().map(of).collect()))
    }

    /// Lets `load` set the values of one slot, all of them.
    pub(super) fn load(
        &mut self,
        tensor: usize,
        slot: usize,
        load: impl FnOnce(&mut [f32]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        match self {
            Self::OnHost(slots) => load(&mut Arc::make_mut(&mut slots[tensor])[slot]),
            #[cfg(feature = "cuda")]
            Self::OnDevice(slots) => slots.load(tensor, slot, load),
        }
    }

    pub(super) const fn on_host(&self) -> bool {
        match self {
            Self::OnHost(_) => true,
            #[cfg(feature = "cuda")]
            Self::OnDevice(_) => false,
        }
    }

    /// As they are now, for any thread.
    pub(super) fn shown(&self) -> ShownSlots {
        match self {
            Self::OnHost(slots) => ShownSlots::OnHost(slots.clone()),
            #[cfg(feature = "cuda")]
            Self::OnDevice(slots) => ShownSlots::OnDevice(slots.shown()),
        }
    }
}

/// The network where its tensors lie on a device: it says so for reading and for changing, or for neither.
#[cfg(feature = "cuda")]
fn on_device<N: Network>(network: &mut N) -> Result<Option<&dyn DeviceNetwork>, FitError> {
    let is_changed_there = network.on_device_mut().is_some();
    let there = network.on_device();
    if there.is_some() == is_changed_there {
        Ok(there)
    } else {
        Err(FitError::HalfOnDevice)
    }
}

/// Values of slots at one boundary.
pub(super) enum ShownSlots {
    OnHost(HostSlots),
    #[cfg(feature = "cuda")]
    OnDevice(ShownDeviceSlots),
}

impl ShownSlots {
    pub(super) fn see(&self, tensor: usize, slot: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        match self {
            Self::OnHost(slots) => see(&slots[tensor][slot]),
            #[cfg(feature = "cuda")]
            Self::OnDevice(slots) => slots.see(tensor, slot, see)?,
        }
        Ok(())
    }
}
