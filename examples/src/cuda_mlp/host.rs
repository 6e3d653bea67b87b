//! The network on processors, by the references of the kernels: slower than other code for processors, and to the bit what a GPU gives.

use sardana::model::{GradientWriter, Mean, ModelError};
use sardana_cuda::parameters::Adam;
use sardana_cuda::reference::{dense, norms, pointwise, updates};

use super::arithmetic::{Arithmetic, Batch, Found, Kind};
use super::shape::{Layer, Shape};

/// A network's state in the host's memory.
#[derive(Debug)]
pub struct Host {
    shape: Shape,
    /// By [`Kind`].
    state: [Vec<f32>; 3],
}

impl Host {
    /// With these values, and no update yet.
    #[must_use]
    pub fn new(shape: Shape, values: Vec<f32>) -> Self {
        let none = vec![0.0; values.len()];
        Self {
            shape,
            state: [values, none.clone(), none],
        }
    }

    /// The weights and biases of a layer.
    fn of(&self, layer: &Layer) -> [&[f32]; 2] {
        let [values, ..] = &self.state;
        [&values[layer.weights.clone()], &values[layer.biases.clone()]]
    }

    /// What goes into each layer, and the scores at the end.
    fn forward(&self, batch: &Batch) -> Vec<Vec<f32>> {
        let layers = self.shape.layers();
        let mut passed = vec![batch.images.clone()];
        for (number, layer) in layers.iter().enumerate() {
            let [weights, biases] = self.of(layer);
            let result = dense::forward(&passed[number], weights, biases, layer.sizes(batch.labels.len()));
            let is_last = number + 1 == layers.len();
            passed.push(if is_last { result } else { pointwise::rectify(&result) });
        }
        passed
    }

    fn hits_of(&self, scores: &[f32], labels: &[u32]) -> u64 {
        let classes = self.shape.layers().last().map_or(0, |last| last.outputs);
        let hits = pointwise::hits(scores, labels, classes);
        hits.into_iter().map(u64::from).sum()
    }
}

impl Arithmetic for Host {
    fn device(&self) -> String {
        "cpu".to_owned()
    }

    fn gradient(&self, batch: &Batch, out: &mut GradientWriter<'_>) -> Result<Found, ModelError> {
        let mut passed = self.forward(batch);
        let scores = passed.pop().unwrap_or_default();
        let hits = self.hits_of(&scores, &batch.labels);
        let classes = scores.len() / batch.labels.len().max(1);
        let mut gradient = pointwise::distances(&scores, &batch.labels, classes);
        let squares = norms::squares(&gradient, 1.0);
        for (number, layer) in self.shape.layers().iter().enumerate().rev() {
            let (sizes, inputs) = (layer.sizes(batch.labels.len()), &passed[number]);
            let [weights, biases] = layer.tensors;
            out.write_f32(weights, &dense::backward_weights(&gradient, inputs, sizes))?;
            out.write_f32(biases, &dense::backward_biases(&gradient, sizes))?;
            if number > 0 {
                let [weights, _] = self.of(layer);
                gradient = pointwise::rectify_backward(&dense::backward_inputs(&gradient, weights, sizes), inputs);
            }
        }
        Ok(Found { squares, hits })
    }

    fn hits(&self, batch: &Batch) -> Result<u64, ModelError> {
        let scores = self.forward(batch).pop().unwrap_or_default();
        Ok(self.hits_of(&scores, &batch.labels))
    }

    fn update(&mut self, mean: &Mean<'_>, by: Adam) -> Result<(), ModelError> {
        let [values, means, squares] = &mut self.state;
        for (tensor, place) in self.shape.places().iter().enumerate() {
            let [values, means, squares] = [&mut *values, means, squares].map(|all| &mut all[place.clone()]);
            // It is divided already.
            updates::adam(values, means, squares, &mean.f32(tensor)?, &by.moments(1.0, 1.0));
        }
        Ok(())
    }

    fn read(&self, kind: Kind) -> Result<Vec<f32>, ModelError> {
        Ok(self.state[kind as usize].clone())
    }

    fn write(&mut self, kind: Kind, start: usize, values: &[f32]) -> Result<(), ModelError> {
        self.state[kind as usize][start..start + values.len()].copy_from_slice(values);
        Ok(())
    }
}
