//! Normalisation over parts of a tensor, and what the layers that do it share. candle's fast layer normalisation has no gradient,
//! and its batch normalisation moves its state while it computes.

mod affine;
mod batch;
mod group;
mod layer;
mod standard;

use candle_core::{Result, Tensor, bail};
use candle_nn::Init;

pub use batch::BatchNorm2d;
pub use group::GroupNorm;
pub use layer::LayerNorm;

use crate::Builder;
use affine::scaled;

/// The trained scale and shift after a normalisation, one of each for each channel.
#[derive(Clone, Debug)]
struct Affine {
    weight: Tensor,
    bias: Tensor,
}

impl Affine {
    /// Scales by 1 and shifts by 0 at first.
    fn new(channels: usize, builder: &Builder) -> Result<Self> {
        Ok(Self {
            weight: builder.parameter(channels, "weight", Init::Const(1.0))?,
            bias: builder.parameter(channels, "bias", Init::Const(0.0))?,
        })
    }

    /// Of `input`, whose channels are at dimension `channels_at`.
    fn apply(&self, input: &Tensor, channels_at: usize) -> Result<Tensor> {
        scaled(input, channels_at, &self.weight, &self.bias)
    }

    /// How many channels it is for.
    fn channels(&self) -> usize {
        self.weight.elem_count()
    }
}

/// What is added to a variance, so that values which are all equal can be divided by its root.
fn checked_eps(layer: &str, eps: f64) -> Result<f64> {
    if eps > 0.0 && eps.is_finite() {
        Ok(eps)
    } else {
        bail!("{layer}: expected a finite `eps` above 0, found {eps}")
    }
}

/// Refuses what has no dimension of `channels` at `channels_at`, and what is empty.
fn check_channels(layer: &str, input: &Tensor, channels_at: usize, channels: usize) -> Result<()> {
    if input.dims().get(channels_at) != Some(&channels) {
        bail!(
            "{layer}: expected {channels} channels at dimension {channels_at}, found {:?}",
            input.shape()
        );
    }
    if input.elem_count() == 0 {
        bail!("{layer}: expected at least one value, found {:?}", input.shape());
    }
    Ok(())
}
