//! What the model asks of whatever computes it.

use sardana::model::{GradientWriter, Mean, ModelError};
use sardana_cuda::parameters::Adam;

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

/// The kinds of values of a state, each as many as the network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The network's own.
    Values,
    /// Adam's means of gradients.
    Means,
    /// Adam's means of their squares.
    Squares,
}

impl Kind {
    /// All of them, in the order in which a state shows them.
    pub const ALL: [Self; 3] = [Self::Values, Self::Means, Self::Squares];
}

/// A device that holds the state of a network and computes with it: processors, or a GPU. Both give the same bits.
pub trait Arithmetic {
    /// What it is, as [`sardana::model::Trainable::device`] says.
    fn device(&self) -> String;

    /// Writes the gradient, summed over the batch, tensor by tensor.
    ///
    /// # Errors
    /// When the device fails.
    fn gradient(&self, batch: &Batch, out: &mut GradientWriter<'_>) -> Result<Found, ModelError>;

    /// How many images of the batch have their largest score at their label.
    ///
    /// # Errors
    /// When the device fails.
    fn hits(&self, batch: &Batch) -> Result<u64, ModelError>;

    /// Makes an update of Adam from the mean gradient.
    ///
    /// # Errors
    /// When the device fails.
    fn update(&mut self, mean: &Mean<'_>, by: Adam) -> Result<(), ModelError>;

    /// All values of a kind.
    ///
    /// # Errors
    /// When the device fails.
    fn read(&self, kind: Kind) -> Result<Vec<f32>, ModelError>;

    /// Takes those values of a kind that begin at `start`.
    ///
    /// # Errors
    /// When the device fails.
    fn write(&mut self, kind: Kind, start: usize, values: &[f32]) -> Result<(), ModelError>;
}
