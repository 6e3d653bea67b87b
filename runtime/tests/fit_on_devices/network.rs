//! A small network whose tensors lie in the host's memory or on a device, and whose gradients are computed on the host in both cases: what differs is where
//! they are added and applied.

use std::sync::{Arc, Mutex};

use sardana::data::{DataError, DataFingerprint, Dataset, SampleRandom, Shard};
use sardana::fit::{DeviceChange, DeviceLook, DeviceNetwork, Network, Parameter, Role, Values};
use sardana::model::{GradientWriter, ModelError};
use sardana_cuda::device::{Device, DeviceError, DeviceTensor, LentTensor, SharedTensor, Stream, Transfer};
use sardana_cuda::gradient::WriteOnDevice;

/// All is done in order.
const ON: Stream = Stream::Compute;

/// Of its tensors: weights that are cut into several runs, biases, and what follows the mean and the variance of the inputs.
const SHAPES: [(&str, &[usize]); 4] = [("weights", &[37, 61]), ("biases", &[61]), ("mean", &[5]), ("variance", &[5])];

/// Numbers that a sample says of itself.
#[derive(Debug)]
pub(crate) struct Waves;

impl Dataset for Waves {
    type Item = f32;

    fn len(&self) -> u64 {
        60
    }

    fn get(&self, index: u64, _: &SampleRandom) -> Result<f32, DataError> {
        Ok(index as f32 * 0.37 - 3.0)
    }

    fn fingerprint(&self) -> Result<DataFingerprint, DataError> {
        Ok(DataFingerprint::default())
    }
}

/// Its values, by tensor.
pub(crate) enum Net {
    OnHost(Arc<Vec<Vec<f32>>>),
    OnDevice(OnDevice),
}

pub(crate) struct OnDevice {
    device: Device,
    values: Vec<SharedTensor<f32>>,
    transfer: Arc<Mutex<Transfer>>,
}

/// A value of wave `at` in a sample.
fn wave(sample: f32, at: usize) -> f32 {
    let x = sample * (1.0 + at as f32 * 0.013);
    // A polynomial: the same bits everywhere.
    (x - x.floor() - 0.5) * 3.0
}

fn first_values() -> Vec<Vec<f32>> {
    let of = |(number, (_, shape)): (usize, &(&str, &[usize]))| {
        let elements: usize = shape.iter().product();
        (0..elements).map(|at| wave(number as f32 + 0.7, at)).collect()
    };
    SHAPES.iter().enumerate().map(of).collect()
}

/// The gradients of all tensors, and the loss: each trained value is drawn to its wave.
fn gradients(values: &[Vec<f32>], items: &[f32]) -> (Vec<Vec<f32>>, f64) {
    let mut loss = 0.0;
    let mut all: Vec<Vec<f32>> = values.iter().map(|values| vec![0.0; values.len()]).collect();
    for &sample in items {
        for (number, (gradient, values)) in all.iter_mut().zip(values).enumerate() {
            for (at, (gradient, value)) in gradient.iter_mut().zip(values).enumerate() {
                let x = wave(sample, at);
                *gradient += match number {
                    0 | 1 => value - x,
                    2 => x - value,
                    _ => 0.0,
                };
                loss += f64::from((value - x) * (value - x));
            }
        }
        let [.., means, _] = values else { continue };
        for (at, mean) in means.iter().enumerate() {
            all[3][at] += (wave(sample, at) - mean) * (wave(sample, at) - mean);
        }
    }
    (all, loss)
}

impl Net {
    pub(crate) fn on_host() -> Self {
        Self::OnHost(Arc::new(first_values()))
    }

    pub(crate) fn on_device(device: &Device) -> Result<Self, DeviceError> {
        let there = |values: Vec<f32>| Ok(SharedTensor::new(DeviceTensor::from_slice(device, ON, &values)?));
        Ok(Self::OnDevice(OnDevice {
            device: device.clone(),
            values: first_values().into_iter().map(there).collect::<Result<_, DeviceError>>()?,
            transfer: Arc::new(Mutex::new(Transfer::new(device)?)),
        }))
    }

    fn here(&self) -> Result<Vec<Vec<f32>>, DeviceError> {
        match self {
            Self::OnHost(values) => Ok(values.to_vec()),
            Self::OnDevice(own) => own.values.iter().map(|values| values.tensor().to_vec()).collect(),
        }
    }
}

impl Network for Net {
    type Item = f32;

    fn parameters(&self) -> Vec<Parameter> {
        let roles = [
            Role::Trained,
            Role::Trained,
            Role::RunningMean { momentum: 0.1 },
            Role::RunningVariance { momentum: 0.1, mean: 2 },
        ];
        let parameter = |(&(name, shape), role): (&(&str, &[usize]), Role)| Parameter {
            name: name.to_owned(),
            shape: shape.to_vec(),
            role,
        };
        SHAPES.iter().zip(roles).map(parameter).collect()
    }

    fn metrics(&self) -> Vec<String> {
        vec!["loss".to_owned()]
    }

    fn describe(&self) -> String {
        "waves".to_owned()
    }

    fn gradient(&self, _: &Shard, items: &[f32], out: &mut GradientWriter<'_>, sums: &mut [f64]) -> Result<(), ModelError> {
        let (gradients, loss) = gradients(&self.here()?, items);
        sums[0] += loss;
        for (tensor, gradient) in gradients.iter().enumerate() {
            match self {
                Self::OnHost(_) => out.write_f32(tensor, gradient)?,
                Self::OnDevice(own) => {
                    let there = DeviceTensor::from_slice(&own.device, ON, gradient)?;
                    out.write_device(tensor, &there.view())?;
                }
            }
        }
        Ok(())
    }

    fn measure(&self, items: &[f32], sums: &mut [f64]) -> Result<(), ModelError> {
        let (_, loss) = gradients(&self.here()?, items);
        sums[0] += loss;
        Ok(())
    }

    fn values(&self) -> Box<dyn Values> {
        match self {
            Self::OnHost(values) => Box::new(Here(Arc::clone(values))),
            Self::OnDevice(own) => {
                let ready = own.device.record(ON).unwrap();
                let values = own.values.iter().map(|values| values.lend(&ready)).collect();
                Box::new(There(values, Arc::clone(&own.transfer)))
            }
        }
    }

    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<(), ModelError> {
        match self {
            Self::OnHost(values) => change(&mut Arc::make_mut(values)[tensor]),
            Self::OnDevice(own) => {
                let mut there = own.values[tensor].change()?.view_mut();
                own.transfer.lock().unwrap().change(&mut there, change)?;
            }
        }
        Ok(())
    }

    fn on_device(&self) -> Option<&dyn DeviceNetwork> {
        match self {
            Self::OnHost(_) => None,
            Self::OnDevice(own) => Some(own),
        }
    }

    fn on_device_mut(&mut self) -> Option<&mut dyn DeviceNetwork> {
        match self {
            Self::OnHost(_) => None,
            Self::OnDevice(own) => Some(own),
        }
    }
}

impl DeviceNetwork for OnDevice {
    fn device(&self) -> &Device {
        &self.device
    }

    fn look(&self, look: &mut DeviceLook<'_>) -> Result<(), ModelError> {
        let views: Vec<_> = self.values.iter().map(|values| values.tensor().view()).collect();
        Ok(look(&views)?)
    }

    fn change(&mut self, tensor: usize, change: &mut DeviceChange<'_>) -> Result<(), ModelError> {
        Ok(change(self.values[tensor].change()?.view_mut())?)
    }
}

struct Here(Arc<Vec<Vec<f32>>>);

impl Values for Here {
    fn see(&self, tensor: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        see(&self.0[tensor]);
        Ok(())
    }
}

struct There(Vec<LentTensor<f32>>, Arc<Mutex<Transfer>>);

impl Values for There {
    fn see(&self, tensor: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        see(&self.0[tensor].to_vec(&mut self.1.lock().unwrap())?);
        Ok(())
    }
}
