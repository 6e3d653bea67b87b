//! The network on processors, by the references of the kernels: slower than other code for processors, and to the bit what a GPU gives.

use std::sync::Arc;

use sardana::fit::Values;
use sardana::model::{GradientWriter, ModelError};
use sardana_cuda::reference::{dense, norms, pointwise};

use super::arithmetic::{Arithmetic, Batch, Found};
use super::shape::{Layer, Shape};

/// A network's tensors in the host's memory.
#[derive(Clone, Debug)]
pub struct Host {
    shape: Arc<Shape>,
    values: Arc<Vec<f32>>,
}

impl Host {
    /// With these values.
    #[must_use]
    pub fn new(shape: Arc<Shape>, values: Vec<f32>) -> Self {
        Self {
            shape,
            values: Arc::new(values),
        }
    }

    /// The weights and biases of a layer.
    fn of(&self, layer: &Layer) -> [&[f32]; 2] {
        [&self.values[layer.weights.clone()], &self.values[layer.biases.clone()]]
    }

    /// What goes into each layer, how far the scores are from their targets, and what is found.
    fn forward(&self, batch: &Batch) -> (Vec<Vec<f32>>, Vec<f32>, Found) {
        let mut passed = Vec::new();
        let mut values = batch.images.clone();
        for layer in self.shape.layers() {
            let [weights, biases] = self.of(layer);
            // Rectifiers are between layers.
            let inputs = if passed.is_empty() {
                values
            } else {
                pointwise::rectify(&values)
            };
            values = dense::forward(&inputs, weights, biases, layer.sizes(batch.labels.len()));
            passed.push(inputs);
        }
        let classes = self.shape.layers().last().map_or(0, |last| last.outputs);
        let hits = pointwise::hits(&values, &batch.labels, classes);
        let distances = pointwise::distances(&values, &batch.labels, classes);
        let found = Found {
            squares: norms::squares(&distances, 1.0),
            hits: hits.into_iter().map(u64::from).sum(),
        };
        (passed, distances, found)
    }
}

impl Arithmetic for Host {
    fn device(&self) -> String {
        "cpu".to_owned()
    }

    fn gradient(&self, batch: &Batch, out: &mut GradientWriter<'_>, sums: &mut [f64]) -> Result<(), ModelError> {
        let (passed, mut gradient, found) = self.forward(batch);
        for (number, layer) in self.shape.layers().iter().enumerate().rev() {
            let inputs = &passed[number];
            let sizes = layer.sizes(batch.labels.len());
            let [weights, biases] = layer.tensors;
            out.write_f32(weights, &dense::backward_weights(&gradient, inputs, sizes))?;
            out.write_f32(biases, &dense::backward_biases(&gradient, sizes))?;
            if number > 0 {
                let [weights, _] = self.of(layer);
                gradient = pointwise::rectify_backward(&dense::backward_inputs(&gradient, weights, sizes), inputs);
            }
        }
        found.add_to(sums);
        Ok(())
    }

    fn measure(&self, batch: &Batch) -> Result<Found, ModelError> {
        let (_, _, found) = self.forward(batch);
        Ok(found)
    }

    fn values(&self) -> Box<dyn Values> {
        Box::new(self.clone())
    }

    fn change(&mut self, tensor: usize, change: &mut dyn FnMut(&mut [f32])) -> Result<(), ModelError> {
        change(&mut Arc::make_mut(&mut self.values)[self.shape.places()[tensor].clone()]);
        Ok(())
    }
}

impl Values for Host {
    fn see(&self, tensor: usize, see: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        see(&self.values[self.shape.places()[tensor].clone()]);
        Ok(())
    }
}
