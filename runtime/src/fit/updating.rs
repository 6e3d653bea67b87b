//! What an update asks of the place where trained tensors are updated by a mean.

use crate::model::ModelError;
use crate::optim::Update;

/// Trained tensors of a network `N`, and the mean gradient of each.
pub(super) trait Updating<N> {
    /// The sum of squares of the mean gradients of these tensors, each tensor's by itself and then in this order.
    fn squares(&mut self, tensors: &mut dyn Iterator<Item = usize>) -> Result<f64, ModelError>;

    /// Updates a tensor by its mean gradient, multiplied by `factor`.
    fn update(&mut self, network: &mut N, tensor: usize, update: &Update, factor: Option<f32>) -> Result<(), ModelError>;
}
