//! The network on a GPU, by the kernels: its tensors, what passes between layers, and gradients lie there. Images and sums go up, what is shown comes down; a
//! gradient only as far as it is asked for.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sardana::fit::{DeviceChange, DeviceLook, DeviceNetwork, Values};
use sardana::model::{DeviceMemory, GradientWriter, ModelError};
use sardana_cuda::device::{
    Device, DeviceError, DeviceTensor, Element, LentTensor, Pinned, SharedTensor, Stream, Transfer, Uploads,
};
use sardana_cuda::gradient::WriteOnDevice;

use super::arithmetic::{Arithmetic, Batch, Found};
use super::shape::Shape;

/// Images and labels, of the batch that goes up and of the one before, whose gradient is computed.
const UPLOADS: usize = 4;

/// All is done in order.
const ON: Stream = Stream::Compute;

/// A network's tensors in a GPU's memory.
#[derive(Debug)]
pub struct Gpu {
    shape: Arc<Shape>,
    description: String,
    values: SharedTensor<f32>,
    /// Where a gradient lies until it is packed, which changes nothing that is shown.
    gradient: RefCell<DeviceTensor<f32>>,
    /// Through which batches go up.
    uploads: RefCell<Uploads>,
    /// Rooms that no batch has.
    spare: Spare,
    /// What is shown or changed on the host passes through it.
    transfer: Arc<Mutex<Transfer>>,
    device: Device,
}

/// Where what is found of a batch comes to.
#[derive(Debug)]
struct Room {
    squares: Pinned<f64>,
    /// For so many images at most.
    hits: Pinned<u32>,
}

type Spare = Arc<Mutex<Vec<Room>>>;

impl Gpu {
    /// With these values, on the GPU of this number.
    ///
    /// # Errors
    /// When it cannot be used, or has too little memory.
    pub fn new(ordinal: usize, shape: Arc<Shape>, values: &[f32]) -> Result<Self, DeviceError> {
        let device = Device::open(ordinal)?;
        Ok(Self {
            shape,
            description: device.description()?,
            values: SharedTensor::new(DeviceTensor::from_slice(&device, ON, values)?),
            gradient: RefCell::new(DeviceTensor::zeros(&device, ON, values.len())?),
            uploads: RefCell::new(Uploads::new(&device, UPLOADS)),
            spare: Spare::default(),
            transfer: Arc::new(Mutex::new(Transfer::new(&device)?)),
            device,
        })
    }

    /// Room for what is found of so many images.
    fn room(&self, rows: usize) -> Result<Room, DeviceError> {
        let spare = locked(&self.spare).pop().filter(|room| room.hits.len() >= rows);
        spare.map_or_else(|| Room::new(&self.device, rows), Ok)
    }

    /// Enqueues that values of a batch go up.
    fn up<T: Element>(&self, values: &[T]) -> Result<DeviceTensor<T>, DeviceError> {
        let mut tensor = DeviceTensor::unset(&self.device, ON, values.len())?;
        self.uploads.borrow_mut().up(ON, values, &mut tensor.view_mut())?;
        Ok(tensor)
    }

    /// Enqueues the passes through all layers. Gives what goes into each layer, and how far the scores are from their targets; what is found comes to `room`.
    fn forward(&self, batch: &Batch, room: &mut Room) -> Result<(Vec<DeviceTensor<f32>>, DeviceTensor<f32>), DeviceError> {
        let (device, on, rows) = (&self.device, self.device.on(ON), batch.labels.len());
        let own = self.values.tensor();
        let mut passed = Vec::new();
        let mut values = self.up(&batch.images)?;
        for layer in self.shape.layers() {
            if !passed.is_empty() {
                on.rectify(&mut values.view_mut())?;
            }
            let (weights, biases) = (own.part(layer.weights.clone()), own.part(layer.biases.clone()));
            let mut result = DeviceTensor::unset(device, ON, rows * layer.outputs)?;
            on.dense_forward(&mut result.view_mut(), [&values.view(), &weights, &biases], layer.sizes(rows))?;
            passed.push(std::mem::replace(&mut values, result));
        }
        let labels = self.up(&batch.labels)?;
        let mut hit = DeviceTensor::unset(device, ON, rows)?;
        on.hits(&mut hit.view_mut(), &values.view(), &labels.view())?;
        on.distances(&mut values.view_mut(), &labels.view())?;
        let mut of_all = DeviceTensor::<f64>::unset(device, ON, 1)?;
        on.squares(&mut of_all.view_mut(), &[values.view()], 1.0)?;
        room.squares.copy_down(ON, &of_all, 0, 0..1)?;
        room.hits.copy_down(ON, &hit, 0, 0..rows)?;
        Ok((passed, values))
    }

    /// Enqueues the passes back through all layers, from the scores' gradient on.
    fn backward(
        &self,
        mut gradient: DeviceTensor<f32>,
        passed: &[DeviceTensor<f32>],
        rows: usize,
        out: &mut DeviceTensor<f32>,
    ) -> Result<(), DeviceError> {
        let on = self.device.on(ON);
        let values = self.values.tensor();
        for (number, layer) in self.shape.layers().iter().enumerate().rev() {
            let (sizes, inputs) = (layer.sizes(rows), passed[number].view());
            let both = [&gradient.view(), &inputs];
            on.dense_backward_weights(&mut out.part_mut(layer.weights.clone()), both, sizes)?;
            on.dense_backward_biases(&mut out.part_mut(layer.biases.clone()), &gradient.view(), sizes)?;
            if number > 0 {
                let mut before = DeviceTensor::unset(&self.device, ON, inputs.len())?;
                let both = [&gradient.view(), &values.part(layer.weights.clone())];
                on.dense_backward_inputs(&mut before.view_mut(), both, sizes)?;
                on.rectify_backward(&mut before.view_mut(), &inputs)?;
                gradient = before;
            }
        }
        Ok(())
    }
}

impl Room {
    fn new(device: &Device, rows: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            squares: Pinned::zeros(device, 1)?,
            hits: Pinned::zeros(device, rows)?,
        })
    }

    /// Of a batch of so many rows, once it has come.
    fn found(self, rows: usize, spare: &Spare) -> Result<Found, DeviceError> {
        let found = Found {
            squares: self.squares.read()?.iter().sum(),
            hits: self.hits.read()?[..rows].iter().copied().map(u64::from).sum(),
        };
        locked(spare).push(self);
        Ok(found)
    }
}

impl Arithmetic for Gpu {
    fn device(&self) -> String {
        self.description.clone()
    }

    fn memory(&self, images: usize) -> Option<DeviceMemory> {
        // Its values, and a gradient; and of a batch what goes into each layer and comes out of the last, with as much on the way back.
        let sizes = self.shape.layers().iter().map(|layer| layer.outputs);
        let inputs = self.shape.layers().first().map_or(0, |layer| layer.inputs);
        let passes = inputs + 2 * sizes.sum::<usize>();
        let elements = 2 * self.shape.values() + images * passes;
        Some(self.device.worker_memory((elements * size_of::<f32>()) as u64))
    }

    #[cfg(feature = "nccl")]
    fn summation(&self) -> Option<std::sync::Arc<dyn sardana::model::Summation>> {
        Some(sardana_cuda::summation::SumsByNccl::new(&self.device))
    }

    fn gradient(&self, batch: &Batch, out: &mut GradientWriter<'_>, _: &mut [f64]) -> Result<(), ModelError> {
        let rows = batch.labels.len();
        let mut room = self.room(rows)?;
        let (passed, distances) = self.forward(batch, &mut room)?;
        let gradient = &mut *self.gradient.borrow_mut();
        self.backward(distances, &passed, rows, gradient)?;
        let places = self.shape.places().iter().enumerate();
        let tensors: Vec<_> = places.map(|(tensor, place)| (tensor, gradient.part(place.clone()))).collect();
        out.write_all_on_device(&tensors)?;
        let spare = Arc::clone(&self.spare);
        out.auxiliary_later(move |sums| room.found(rows, &spare).map(|found| found.add_to(sums)))?;
        Ok(())
    }

    fn measure(&self, batch: &Batch) -> Result<Found, ModelError> {
        let rows = batch.labels.len();
        let mut room = self.room(rows)?;
        self.forward(batch, &mut room)?;
        Ok(room.found(rows, &self.spare)?)
    }

    fn values(&self) -> Box<dyn Values> {
        Box::new(Lent {
            shape: Arc::clone(&self.shape),
            values: self.device.record(ON).map(|ready| self.values.lend(&ready)),
            transfer: Arc::clone(&self.transfer),
        })
    }

    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<(), ModelError> {
        let mut values = self.values.change()?.part_mut(self.shape.places()[tensor].clone());
        Ok(locked(&self.transfer).change(&mut values, change)?)
    }

    fn on_device(&self) -> Option<&dyn DeviceNetwork> {
        Some(self)
    }

    fn on_device_mut(&mut self) -> Option<&mut dyn DeviceNetwork> {
        Some(self)
    }
}

impl DeviceNetwork for Gpu {
    fn device(&self) -> &Device {
        &self.device
    }

    fn look(&self, look: &mut DeviceLook<'_>) -> Result<(), ModelError> {
        let own = self.values.tensor();
        let views: Vec<_> = self.shape.places().iter().map(|place| own.part(place.clone())).collect();
        Ok(look(&views)?)
    }

    fn change(&mut self, tensor: usize, change: &mut DeviceChange<'_>) -> Result<(), ModelError> {
        let place = self.shape.places()[tensor].clone();
        Ok(change(self.values.change()?.part_mut(place))?)
    }
}

/// The values at one boundary. What keeps them from being read is said when they are.
struct Lent {
    shape: Arc<Shape>,
    values: Result<LentTensor<f32>, DeviceError>,
    transfer: Arc<Mutex<Transfer>>,
}

impl Values for Lent {
    fn see(&self, tensor: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        let (all, place) = (
            self.values.as_ref().map_err(Clone::clone)?,
            self.shape.places()[tensor].clone(),
        );
        let values = all.part_to_vec(place, &mut locked(&self.transfer))?;
        see(&values);
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A transfer holds no value between two, and spare memory none at all.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
