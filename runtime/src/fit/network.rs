//! What a framework must offer so that its networks can be trained by [`super::Fit`]: gradients, and the values of its tensors.

use std::sync::Arc;

#[cfg(feature = "cuda")]
use sardana_cuda::device::{Device, DeviceError, View, ViewMut};

use crate::data::Shard;
use crate::model::{DeviceMemory, GradientWriter, ModelError, Summation};

/// What a tensor of a network is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// The optimizer changes it, by its mean gradient.
    Trained,
    /// It follows something's mean over each batch: each update it goes `momentum` of the way to it. Its "gradient" is how far that something
    /// is from this tensor's value, summed over the shard's samples: of large numbers the distances are exact where the numbers are not.
    RunningMean {
        /// From 0 to 1.
        momentum: f64,
    },
    /// It follows something's variance over each batch: each update it goes `momentum` of the way to it. Its "gradient" is the square of the
    /// distance of that something from the value of the tensor that follows its mean, summed over the shard's samples.
    RunningVariance {
        /// From 0 to 1.
        momentum: f64,
        /// Which tensor follows the mean of that something.
        mean: usize,
    },
}

/// A tensor of a network. All are f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name: another one for each.
    pub name: String,
    /// Its sizes, slowest first.
    pub shape: Vec<usize>,
    /// What it is for.
    pub role: Role,
}

/// A network with its loss, as a framework computes it.
///
/// Two promises make every membership give the same bits, as with [`crate::model::Trainable`]: a gradient changes nothing, and depends on
/// nothing but the tensors' values, the items, and the shard's random numbers.
pub trait Network {
    /// A sample, as the data set gives it.
    type Item: Send;

    /// All its tensors. Always the same, in the same order.
    fn parameters(&self) -> Vec<Parameter>;

    /// Names of what it sums over samples besides gradients, such as `loss` and `accuracy`. Always the same.
    fn metrics(&self) -> Vec<String>;

    /// What else decides the bits, such as the loss and its constants; compared between workers.
    fn describe(&self) -> String;

    /// What it computes on, as [`Trainable::device`](crate::model::Trainable::device) says.
    fn device(&self) -> String {
        "cpu".to_owned()
    }

    /// What it has of a GPU's memory, and must be able to have there for up to so many samples at once, beside the sum and what the optimizer remembers, which
    /// [`Fit`](super::Fit) adds: see [`Trainable::device_memory`](crate::model::Trainable::device_memory).
    fn device_memory(&self, _samples: usize) -> Option<DeviceMemory> {
        None
    }

    /// By what its gradients are summed in fast order, if not by links: see [`Trainable::summation`](crate::model::Trainable::summation).
    fn summation(&self) -> Option<Arc<dyn Summation>> {
        None
    }

    /// Writes the gradient of each tensor, summed over `items`, which are those of `shard`; adds the metrics' sums to `sums`, which are 0. A network on a device
    /// that is not to be waited for here reports all sums by [`GradientWriter::auxiliary_later`] in place of that.
    ///
    /// # Errors
    /// Whatever keeps it from computing them; the worker ends.
    fn gradient(
        &self,
        shard: &Shard,
        items: &[Self::Item],
        out: &mut GradientWriter<'_>,
        sums: &mut [f64],
    ) -> Result<(), ModelError>;

    /// Adds the metrics of `items`, which it is not trained on, to `sums`.
    ///
    /// # Errors
    /// Whatever keeps it from computing them; the worker ends.
    fn measure(&self, items: &[Self::Item], sums: &mut [f64]) -> Result<(), ModelError>;

    /// Its values, for this thread or another: not a copy. It is dropped before the next [`Self::change`].
    fn values(&self) -> Box<dyn Values>;

    /// Lets `change` change the values of tensor number `tensor`, row-major: if they lie on a device, a copy that comes from there and goes back.
    ///
    /// # Errors
    /// When they cannot be reached; the worker ends.
    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<(), ModelError>;

    /// Itself, if its tensors lie on a GPU. Then what the optimizer remembers lies there as well, and updates are made there, if there are
    /// [kernels](crate::optim::Optimizer::device_update) for them; and both are hashed there. Always the same.
    #[cfg(feature = "cuda")]
    fn on_device(&self) -> Option<&dyn DeviceNetwork> {
        None
    }

    /// The same, to be changed.
    #[cfg(feature = "cuda")]
    fn on_device_mut(&mut self) -> Option<&mut dyn DeviceNetwork> {
        None
    }
}

/// A network whose tensors lie on a GPU.
#[cfg(feature = "cuda")]
pub trait DeviceNetwork {
    /// The GPU. Always the same.
    fn device(&self) -> &Device;

    /// Lets `look` read the values of all tensors where they lie, in their order, each row-major: it enqueues that on
    /// [`Stream::Compute`](sardana_cuda::device::Stream::Compute). What the network has enqueued before is done by then, and what it enqueues afterwards changes
    /// nothing of it.
    ///
    /// # Errors
    /// When they cannot be reached, or what `look` says; the worker ends.
    fn look(&self, look: &mut DeviceLook<'_>) -> Result<(), ModelError>;

    /// Lets `change` change the values of tensor number `tensor` where they lie, row-major: it enqueues that on
    /// [`Stream::Compute`](sardana_cuda::device::Stream::Compute), and does not wait. What the network has enqueued before is done by then, and what it enqueues
    /// afterwards finds the values changed.
    ///
    /// # Errors
    /// When they cannot be reached, or what `change` says; the worker ends.
    fn change(&mut self, tensor: usize, change: &mut DeviceChange<'_>) -> Result<(), ModelError>;
}

/// What reads a network's tensors where they lie on a GPU.
#[cfg(feature = "cuda")]
pub type DeviceLook<'a> = dyn FnMut(&[View<'_, f32>]) -> Result<(), DeviceError> + 'a;

/// What changes a tensor where it lies on a GPU.
#[cfg(feature = "cuda")]
pub type DeviceChange<'a> = dyn FnMut(ViewMut<'_, f32>) -> Result<(), DeviceError> + 'a;

/// The values of a network's tensors at one boundary.
pub trait Values: Send {
    /// Shows the values of tensor number `tensor`, row-major.
    ///
    /// # Errors
    /// When they cannot be reached; the worker ends.
    fn see(&self, tensor: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), ModelError>;
}
