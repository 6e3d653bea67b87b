//! What the network asks of whatever computes it.

use std::sync::Arc;

#[cfg(feature = "cuda")]
use sardana::fit::DeviceNetwork;
use sardana::fit::Values;
use sardana::model::{DeviceMemory, GradientWriter, ModelError, Summation};

/// Images with their labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// A row of values for each label.
    pub images: Vec<f32>,
    /// The number of each image's class.
    pub labels: Vec<u32>,
}

/// What is found beside a gradient: sums over a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Squares of how far scores are from their targets.
    pub squares: f64,
    /// Images whose largest score is their label's.
    pub hits: u64,
}

impl Found {
    /// Adds the loss and the hits to the sums of these metrics.
    pub fn add_to(self, sums: &mut [f64]) {
        let metrics = [0.5 * self.squares, self.hits as f64];
        sums.iter_mut().zip(metrics).for_each(|(sum, more)| *sum += more);
    }
}

/// A device that holds the tensors of a network and computes with them: processors, or a GPU. Both give the same bits.
pub trait Arithmetic {
    /// What it is, as [`sardana::model::Trainable::device`] says.
    fn device(&self) -> String;

    /// What it has of a GPU's memory, and must have for batches of up to so many images, as [`sardana::fit::Network::device_memory`] says.
    fn memory(&self, _images: usize) -> Option<DeviceMemory> {
        None
    }

    /// By what gradients can be summed over devices like this one, where they lie.
    fn summation(&self) -> Option<Arc<dyn Summation>> {
        None
    }

    /// Writes the gradient, summed over the batch, tensor by tensor. Adds what is found to `sums`, or has `out` do that later.
    ///
    /// # Errors
    /// When the device fails.
    fn gradient(&self, batch: &Batch, out: &mut GradientWriter<'_>, sums: &mut [f64]) -> Result<(), ModelError>;

    /// What is found of a batch that it is not trained on.
    ///
    /// # Errors
    /// When the device fails.
    fn measure(&self, batch: &Batch) -> Result<Found, ModelError>;

    /// As [`sardana::fit::Network::values`].
    fn values(&self) -> Box<dyn Values>;

    /// As [`sardana::fit::Network::change`].
    ///
    /// # Errors
    /// When the device fails.
    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<(), ModelError>;

    /// As [`sardana::fit::Network::on_device`].
    #[cfg(feature = "cuda")]
    fn on_device(&self) -> Option<&dyn DeviceNetwork> {
        None
    }

    /// As [`sardana::fit::Network::on_device_mut`].
    #[cfg(feature = "cuda")]
    fn on_device_mut(&mut self) -> Option<&mut dyn DeviceNetwork> {
        None
    }
}
