//! The network on a GPU, by the kernels: the state, what passes between layers, and gradients lie there. Images and sums go up, what is shown comes down; a
//! gradient only as far as it is asked for.

use std::cell::RefCell;

use sardana::model::{GradientWriter, Mean, ModelError};
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, Pinned, Stream};
use sardana_cuda::gradient::{MeanOnDevice, SumRoom, WriteOnDevice};
use sardana_cuda::parameters::Adam;

use super::arithmetic::{Arithmetic, Batch, Found, Kind};
use super::shape::Shape;

/// All is done in order.
const ON: Stream = Stream::Compute;

/// A network's state in a GPU's memory.
#[derive(Debug)]
pub struct Gpu {
    shape: Shape,
    description: String,
    /// By [`Kind`].
    state: [DeviceTensor<f32>; 3],
    /// What a gradient takes, which changes nothing that is shown.
    room: RefCell<Room>,
    sum: SumRoom,
    /// What is loaded passes through it.
    on_host: Pinned<f32>,
    device: Device,
}

#[derive(Debug)]
struct Room {
    gradient: DeviceTensor<f32>,
    squares: Pinned<f64>,
    /// For as many images as a batch had at most.
    hits: Pinned<u32>,
}

/// A batch there.
struct Passed {
    labels: DeviceTensor<u32>,
    /// What goes into each layer, and the scores at the end.
    values: Vec<DeviceTensor<f32>>,
}

impl Gpu {
    /// With these values, and no update yet, on the GPU of this number.
    ///
    /// # Errors
    /// When it cannot be used, or has too little memory.
    pub fn new(ordinal: usize, shape: Shape, values: &[f32]) -> Result<Self, DeviceError> {
        let device = Device::open(ordinal)?;
        let none = || DeviceTensor::zeros(&device, ON, values.len());
        let state = [DeviceTensor::from_slice(&device, ON, values)?, none()?, none()?];
        let room = RefCell::new(Room {
            gradient: none()?,
            squares: Pinned::zeros(&device, 1)?,
            hits: Pinned::zeros(&device, 0)?,
        });
        Ok(Self {
            shape,
            description: device.description()?,
            state,
            room,
            sum: SumRoom::new(&device)?,
            on_host: Pinned::zeros(&device, values.len())?,
            device,
        })
    }

    fn forward(&self, batch: &Batch) -> Result<Passed, DeviceError> {
        let (device, on) = (&self.device, self.device.on(ON));
        let layers = self.shape.layers();
        let [state, ..] = &self.state;
        let rows = batch.labels.len();
        let mut values = vec![DeviceTensor::from_slice(device, ON, &batch.images)?];
        for (number, layer) in layers.iter().enumerate() {
            let (weights, biases) = (state.part(layer.weights.clone()), state.part(layer.biases.clone()));
            let mut result = DeviceTensor::unset(device, ON, rows * layer.outputs)?;
            let inputs = [&values[number].view(), &weights, &biases];
            on.dense_forward(&mut result.view_mut(), inputs, layer.sizes(rows))?;
            if number + 1 < layers.len() {
                on.rectify(&mut result.view_mut())?;
            }
            values.push(result);
        }
        let labels = DeviceTensor::from_slice(device, ON, &batch.labels)?;
        Ok(Passed { labels, values })
    }

    /// For each row of the scores whether it is right, once that is known.
    fn hit(&self, scores: &DeviceTensor<f32>, labels: &DeviceTensor<u32>) -> Result<DeviceTensor<u32>, DeviceError> {
        let mut hit = DeviceTensor::unset(&self.device, ON, labels.len())?;
        let on = self.device.on(ON);
        on.hits(&mut hit.view_mut(), &scores.view(), &labels.view())?;
        Ok(hit)
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
        let [state, ..] = &self.state;
        for (number, layer) in self.shape.layers().iter().enumerate().rev() {
            let (sizes, inputs) = (layer.sizes(rows), passed[number].view());
            let both = [&gradient.view(), &inputs];
            on.dense_backward_weights(&mut out.part_mut(layer.weights.clone()), both, sizes)?;
            on.dense_backward_biases(&mut out.part_mut(layer.biases.clone()), &gradient.view(), sizes)?;
            if number > 0 {
                let mut before = DeviceTensor::unset(&self.device, ON, inputs.len())?;
                let both = [&gradient.view(), &state.part(layer.weights.clone())];
                on.dense_backward_inputs(&mut before.view_mut(), both, sizes)?;
                on.rectify_backward(&mut before.view_mut(), &inputs)?;
                gradient = before;
            }
        }
        Ok(())
    }
}

impl Arithmetic for Gpu {
    fn device(&self) -> String {
        self.description.clone()
    }

    fn gradient(&self, batch: &Batch, out: &mut GradientWriter<'_>) -> Result<Found, ModelError> {
        let on = self.device.on(ON);
        let Passed { labels, mut values } = self.forward(batch)?;
        let mut scores = values.pop().ok_or("expected scores, found none")?;
        let hit = self.hit(&scores, &labels)?;
        on.distances(&mut scores.view_mut(), &labels.view())?;
        let mut of_all = DeviceTensor::<f64>::unset(&self.device, ON, 1)?;
        on.squares(&mut of_all.view_mut(), &[scores.view()], 1.0)?;
        let Room { gradient, squares, hits } = &mut *self.room.borrow_mut();
        let rows = batch.labels.len();
        if hits.len() < rows {
            *hits = Pinned::zeros(&self.device, rows)?;
        }
        squares.copy_down(ON, &of_all, 0, 0..1)?;
        hits.copy_down(ON, &hit, 0, 0..rows)?;
        self.backward(scores, &values, rows, gradient)?;
        for (tensor, place) in self.shape.places().iter().enumerate() {
            out.write_device(tensor, &gradient.part(place.clone()))?;
        }
        // They were found before the passes back, which go on meanwhile.
        Ok(Found {
            squares: squares.read()?.iter().sum(),
            hits: hits.read()?[..rows].iter().copied().map(u64::from).sum(),
        })
    }

    fn hits(&self, batch: &Batch) -> Result<u64, ModelError> {
        let Passed { labels, values } = self.forward(batch)?;
        let scores = values.last().ok_or("expected scores, found none")?;
        let hit = self.hit(scores, &labels)?.to_vec()?;
        Ok(hit.into_iter().map(u64::from).sum())
    }

    fn update(&mut self, mean: &Mean<'_>, by: Adam) -> Result<(), ModelError> {
        let sum = mean.device_sum(&mut self.sum)?;
        let by = by.moments(mean.divisor()? as f32, 1.0);
        let [values, means, squares] = &mut self.state;
        let on = self.device.on(ON);
        for (tensor, place) in self.shape.places().iter().enumerate() {
            let mut part = [&mut *values, means, squares].map(|all| all.part_mut(place.clone()));
            let [values, means, squares] = part.each_mut();
            on.adam(values, means, squares, &sum.tensor(tensor)?, by)?;
        }
        Ok(())
    }

    fn read(&self, kind: Kind) -> Result<Vec<f32>, ModelError> {
        Ok(self.state[kind as usize].to_vec()?)
    }

    fn write(&mut self, kind: Kind, start: usize, values: &[f32]) -> Result<(), ModelError> {
        let on_host = &mut self.on_host;
        on_host.write()?[..values.len()].copy_from_slice(values);
        Ok(on_host.copy_up(ON, 0..values.len(), &mut self.state[kind as usize], start)?)
    }
}
