//! A small transformer that predicts the next of a sequence of tokens (Vaswani et al.: "Attention is all you need", 2017; normalised
//! before each part, as GPT-2 is).

use candle_core::{D, DType, Module, Result, Tensor, bail};
use candle_nn::{Embedding, Linear, ModuleT, embedding, linear, ops::softmax};
use sardana_candle::{Builder, Dropout, LayerNorm};

const EPSILON: f64 = 1e-5;

/// How large a transformer is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// How many tokens there are.
    pub tokens: usize,
    /// The longest sequence.
    pub places: usize,
    /// Values of each place.
    pub width: usize,
    /// Heads of attention; they divide the width.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
    /// Which part of the values is dropped in training.
    pub dropout: f32,
}

/// From sequences of tokens, shape (n, places), to scores of each place's next token, shape (n, places, tokens).
#[derive(Clone, Debug)]
pub struct Transformer {
    sizes: Sizes,
    tokens: Embedding,
    places: Embedding,
    layers: Vec<Layer>,
    norm: LayerNorm,
    scores: Linear,
}

#[derive(Clone, Debug)]
struct Layer {
    heads: usize,
    before_attention: LayerNorm,
    queries_keys_values: Linear,
    together: Linear,
    before_dense: LayerNorm,
    up: Linear,
    down: Linear,
    dropout: Dropout,
}

impl Transformer {
    /// The network.
    ///
    /// # Errors
    /// When the heads do not divide the width, or candle cannot hold a tensor.
    pub fn new(builder: &Builder, sizes: Sizes) -> Result<Self> {
        if sizes.heads == 0 || !sizes.width.is_multiple_of(sizes.heads) {
            bail!(
                "expected heads that divide the width {}, found {} heads",
                sizes.width,
                sizes.heads
            );
        }
        let layer = |number| Layer::new(sizes, &builder.pp(format!("layer{}", number + 1)));
        Ok(Self {
            sizes,
            tokens: embedding(sizes.tokens, sizes.width, builder.pp("tokens").vb())?,
            places: embedding(sizes.places, sizes.width, builder.pp("places").vb())?,
            layers: (0..sizes.layers).map(layer).collect::<Result<_>>()?,
            norm: LayerNorm::new(sizes.width, EPSILON, &builder.pp("norm"))?,
            scores: linear(sizes.width, sizes.tokens, builder.pp("scores").vb())?,
        })
    }
}

impl Layer {
    fn new(sizes: Sizes, builder: &Builder) -> Result<Self> {
        let width = sizes.width;
        Ok(Self {
            heads: sizes.heads,
            before_attention: LayerNorm::new(width, EPSILON, &builder.pp("norm1"))?,
            queries_keys_values: linear(width, 3 * width, builder.pp("attention").vb())?,
            together: linear(width, width, builder.pp("together").vb())?,
            before_dense: LayerNorm::new(width, EPSILON, &builder.pp("norm2"))?,
            up: linear(width, 4 * width, builder.pp("up").vb())?,
            down: linear(4 * width, width, builder.pp("down").vb())?,
            dropout: Dropout::new(sizes.dropout, builder)?,
        })
    }

    /// What each place takes from itself and the places before it.
    fn attention(&self, input: &Tensor, later: &Tensor) -> Result<Tensor> {
        let (n, places, width) = input.dims3()?;
        let each = width / self.heads;
        let all = self.queries_keys_values.forward(input)?;
        let part = |number: usize| {
            let part = all.narrow(D::Minus1, number * width, width)?;
            part.reshape((n, places, self.heads, each))?.transpose(1, 2)?.contiguous()
        };
        let (queries, keys, values) = (part(0)?, part(1)?, part(2)?);
        let fits = (queries.matmul(&keys.t()?.contiguous()?)? / (each as f64).sqrt())?;
        let weights = softmax(&fits.broadcast_add(later)?, D::Minus1)?;
        let taken = weights.matmul(&values)?.transpose(1, 2)?.reshape((n, places, width))?;
        self.together.forward(&taken)
    }

    fn forward(&self, input: &Tensor, later: &Tensor, train: bool) -> Result<Tensor> {
        let taken = self.attention(&self.before_attention.forward(input)?, later)?;
        let values = (input + self.dropout.forward_t(&taken, train)?)?;
        let dense = self.up.forward(&self.before_dense.forward(&values)?)?.gelu()?;
        &values + self.dropout.forward_t(&self.down.forward(&dense)?, train)?
    }
}

impl ModuleT for Transformer {
    fn forward_t(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        let (_, places) = input.dims2()?;
        if places > self.sizes.places {
            bail!("expected sequences of at most {} tokens, found {places}", self.sizes.places);
        }
        let numbers = Tensor::arange(0, places as u32, input.device())?;
        let mut values = self.tokens.forward(input)?.broadcast_add(&self.places.forward(&numbers)?)?;
        let later = later(places, &values)?;
        for layer in &self.layers {
            values = layer.forward(&values, &later, train)?;
        }
        self.scores.forward(&self.norm.forward(&values)?)
    }
}

/// What keeps each place from later ones, added before the softmax: minus much for those, 0 for others.
fn later(places: usize, like: &Tensor) -> Result<Tensor> {
    let of = |place: usize| (0..places).map(move |other| if other > place { -1e9_f32 } else { 0.0 });
    let values: Vec<f32> = (0..places).flat_map(of).collect();
    Tensor::from_vec(values, (places, places), like.device())?.to_dtype(DType::F32)
}
