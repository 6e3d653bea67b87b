//! Updates where a network's tensors lie, on a GPU: slots stay there, and so does the mean. Each kernel has the bits of the optimizer that it stands for, but
//! that of a result that is not a number there is one. Must not know which optimizer that is, nor why it is updated.

use std::iter::once;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardana_cuda::device::{
    Device, DeviceError, DeviceTensor, LentTensor, Pinned, SharedTensor, Stream, Transfer, View, ViewMut,
};
use sardana_cuda::gradient::{DeviceSum, MeanOnDevice, SumRoom};
use sardana_cuda::parameters::{Adam, Descent, MAX_PIECE_BYTES, SQUARES_TILE};
use sardana_protocol::limits::PIECE_BYTES;

use super::network::{DeviceNetwork, Network};
use super::norm::TILE;
use super::tensor::Tensor;
use super::updating::Updating;
use crate::model::{Mean, ModelError, PieceHash};
use crate::optim::{DeviceUpdate, Update};

/// What devices hash and add up at once is what the host does.
const _: () = assert!(MAX_PIECE_BYTES == PIECE_BYTES as u64 && SQUARES_TILE == TILE as u64);

/// All is done in order.
const ON: Stream = Stream::Compute;

/// What an optimizer remembers, on a device, with what an update takes there besides.
#[derive(Debug)]
pub(super) struct DeviceSlots {
    device: Device,
    update: DeviceUpdate,
    /// By tensor.
    values: Vec<Vec<SharedTensor<f32>>>,
    sum: SumRoom,
    /// Sums of squares, for as many tensors as were asked for at most.
    squares: Pinned<f64>,
    /// What is loaded or shown passes through it.
    transfer: Arc<Mutex<Transfer>>,
}

impl DeviceSlots {
    /// Before the first update.
    pub(super) fn new(device: &Device, update: DeviceUpdate, tensors: &[Tensor]) -> Result<Self, DeviceError> {
        let of = |tensor: &Tensor| {
            let zeros = || DeviceTensor::zeros(device, ON, tensor.elements());
            tensor.slots.iter().map(|_| Ok(SharedTensor::new(zeros()?))).collect()
        };
        Ok(Self {
            device: device.clone(),
            update,
            values: tensors.iter().map(of).collect::<Result<_, DeviceError>>()?,
            sum: SumRoom::new(device)?,
            squares: Pinned::zeros(device, tensors.len())?,
            transfer: Arc::new(Mutex::new(Transfer::new(device)?)),
        })
    }

    pub(super) fn load(
        &mut self,
        tensor: usize,
        slot: usize,
        load: impl FnOnce(&mut [f32]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let there = self.values[tensor][slot].change()?;
        let mut values = vec![0.0; there.len()];
        load(&mut values)?;
        Ok(locked(&self.transfer).up(&values, &mut there.view_mut())?)
    }

    /// As they are now. What keeps them from being read is said when they are.
    pub(super) fn shown(&self) -> ShownDeviceSlots {
        let lend = |ready| {
            let of = |slots: &Vec<SharedTensor<f32>>| slots.iter().map(|slot| slot.lend(&ready)).collect();
            self.values.iter().map(of).collect()
        };
        ShownDeviceSlots {
            values: self.device.record(ON).map(lend),
            transfer: Arc::clone(&self.transfer),
        }
    }

    /// The hashes of the pieces of each tensor of the network and of the slots of each, all where they lie, in the order in which they are shown.
    /// None if the device has no room for them.
    pub(super) fn piece_hashes(
        &self,
        network: &dyn DeviceNetwork,
        tensors: &[Tensor],
    ) -> Result<Option<Vec<Vec<PieceHash>>>, ModelError> {
        let expected: Vec<usize> = tensors.iter().map(Tensor::elements).collect();
        let (mut found, mut hashes) = (Vec::new(), Ok(Vec::new()));
        network.look(&mut |views| {
            found = views.iter().map(View::len).collect();
            if found == expected {
                let slots = self.values.iter().map(|slots| slots.iter().map(|slot| slot.tensor().view()));
                let with_slots = views.iter().zip(slots).flat_map(|(tensor, slots)| once(*tensor).chain(slots));
                hashes = self.device.hash(ON, &with_slots.collect::<Vec<_>>());
            }
            Ok(())
        })?;
        if found != expected {
            let all = "expected `DeviceNetwork::look` to show all tensors of the network, of these numbers of elements";
            return Err(format!("{all}: {expected:?}, found {found:?}").into());
        }
        match hashes {
            Ok(hashes) => {
                let pieces = |pieces: Vec<_>| pieces.into_iter().map(PieceHash::new).collect();
                Ok(Some(hashes.into_iter().map(pieces).collect()))
            }
            Err(DeviceError::Memory { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// With the sum of the mean where it is used.
    pub(super) fn updating<'a>(&'a mut self, mean: &'a Mean<'a>) -> Result<DeviceUpdating<'a>, ModelError> {
        Ok(DeviceUpdating {
            device: &self.device,
            update: self.update,
            values: &mut self.values,
            sum: mean.device_sum(&mut self.sum)?,
            divisor: mean.divisor()? as f32,
            squares: &mut self.squares,
        })
    }
}

/// Values of slots at one boundary.
pub(super) struct ShownDeviceSlots {
    values: Result<Vec<Vec<LentTensor<f32>>>, DeviceError>,
    transfer: Arc<Mutex<Transfer>>,
}

impl ShownDeviceSlots {
    pub(super) fn see(&self, tensor: usize, slot: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), DeviceError> {
        let all = self.values.as_ref().map_err(Clone::clone)?;
        let values = all[tensor][slot].to_vec(&mut locked(&self.transfer))?;
        see(&values);
        Ok(())
    }
}

/// One update.
pub(super) struct DeviceUpdating<'a> {
    device: &'a Device,
    update: DeviceUpdate,
    values: &'a mut Vec<Vec<SharedTensor<f32>>>,
    sum: DeviceSum<'a>,
    divisor: f32,
    squares: &'a mut Pinned<f64>,
}

impl<N: Network> Updating<N> for DeviceUpdating<'_> {
    fn squares(&mut self, tensors: &mut dyn Iterator<Item = usize>) -> Result<f64, ModelError> {
        let views = tensors.map(|tensor| self.sum.tensor(tensor)).collect::<Result<Vec<_>, _>>()?;
        let mut there = DeviceTensor::unset(self.device, ON, views.len())?;
        self.device.on(ON).squares(&mut there.view_mut(), &views, self.divisor)?;
        self.squares.copy_down(ON, &there, 0, 0..views.len())?;
        Ok(self.squares.read()?[..views.len()].iter().sum())
    }

    fn update(&mut self, network: &mut N, tensor: usize, update: &Update, factor: Option<f32>) -> Result<(), ModelError> {
        let network = network
            .on_device_mut()
            .ok_or("expected a network that stays on its device, found one that has left it")?;
        let (sum, factor) = (self.sum.tensor(tensor)?, factor.unwrap_or(1.0));
        network.change(tensor, &mut |values| self.enqueue(tensor, update, values, &sum, factor))
    }
}

impl DeviceUpdating<'_> {
    fn enqueue(
        &mut self,
        tensor: usize,
        update: &Update,
        mut values: ViewMut<'_, f32>,
        sum: &View<'_, f32>,
        factor: f32,
    ) -> Result<(), DeviceError> {
        let (on, divisor) = (self.device.on(ON), self.divisor);
        let mut slots = self.values[tensor]
            .iter_mut()
            .map(|slot| slot.change().map(DeviceTensor::view_mut));
        let mut slot = || slots.next().expect("there are as many slots as the update has");
        let descent = |momentum: f64| Descent {
            divisor,
            factor,
            rate: update.rate as f32,
            decay: update.decay as f32,
            momentum: momentum as f32,
        };
        match self.update {
            DeviceUpdate::Sgd => on.sgd(&mut values, sum, descent(0.0)),
            DeviceUpdate::Momentum { momentum } => on.momentum(&mut values, &mut slot()?, sum, descent(momentum)),
            DeviceUpdate::Nesterov { momentum } => on.nesterov(&mut values, &mut slot()?, sum, descent(momentum)),
            DeviceUpdate::Adam {
                betas,
                epsilon,
                decoupled,
            } => {
                let adam = Adam {
                    number: update.number,
                    rate: update.rate,
                    decay: update.decay,
                    betas,
                    epsilon,
                    decoupled,
                };
                on.adam(&mut values, &mut slot()?, &mut slot()?, sum, adam.moments(divisor, factor))
            }
        }
    }
}

fn locked(transfer: &Mutex<Transfer>) -> MutexGuard<'_, Transfer> {
    // It holds no value between two transfers.
    transfer.lock().unwrap_or_else(PoisonError::into_inner)
}
