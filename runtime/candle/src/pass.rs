//! What the layers of a network share with it while it computes: the shard's random numbers, and what is to be averaged over the batch.
//! candle's layers are called with a tensor alone; this is how the rest reaches those that need more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{Result, bail};
use sardana::data::{CounterRng, Shard};

/// Where the random streams of layers begin; those below are the user's own.
const LAYER_STREAMS: u32 = 1 << 31;

/// How many calls of one layer in one pass have random numbers of their own.
const MAX_CALLS: u32 = 1 << 15;

/// How many layers of a network may draw random numbers.
pub(crate) const MAX_DRAWING_LAYERS: u32 = 1 << 16;

/// One computation of a network, forward and backward, for one shard; shared by all of its layers. Clones are the same pass.
#[derive(Clone, Debug, Default)]
pub struct Pass(Arc<Mutex<Option<UnderWay>>>);

/// The pass under way. There is none while a network is evaluated.
#[derive(Debug)]
struct UnderWay {
    shard: Shard,
    /// How often each layer has drawn.
    calls: Vec<u32>,
    told: Vec<(Statistic, Vec<f32>)>,
}

/// A tensor that follows the mean over each batch of what its layer sees, such as a running mean. It is of the state, not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// Its number among the network's tensors.
    pub(crate) tensor: usize,
}

impl Pass {
    /// Begins the pass for `shard`.
    pub(crate) fn begin(&self, shard: &Shard) {
        *self.state() = Some(UnderWay {
            shard: shard.clone(),
            calls: Vec::new(),
            told: Vec::new(),
        });
    }

    /// Ends it, and gives what layers have told, in the order in which they have.
    pub(crate) fn end(&self) -> Vec<(Statistic, Vec<f32>)> {
        self.state().take().map(|pass| pass.told).unwrap_or_default()
    }

    /// Random numbers for the layer number `layer` (of [`Builder::drawing_layer`](crate::Builder::drawing_layer)): others for each step,
    /// shard and call, the same wherever they are computed.
    ///
    /// # Errors
    /// When no shard is under way: the network is evaluated, and nothing is to be drawn; or the layer is called too often.
    pub fn random(&self, layer: u32) -> Result<CounterRng> {
        let mut state = self.state();
        let Some(pass) = &mut *state else {
            bail!("expected a layer to draw random numbers only in training, found it evaluated: call `forward_t` with `train` false");
        };
        let layer_at = layer as usize;
        if pass.calls.len() <= layer_at {
            pass.calls.resize(layer_at + 1, 0);
        }
        let call = pass.calls[layer_at];
        if call >= MAX_CALLS {
            bail!("expected at most {MAX_CALLS} calls of a layer that draws random numbers in one pass, found more");
        }
        pass.calls[layer_at] += 1;
        Ok(pass.shard.random(LAYER_STREAMS + layer * MAX_CALLS + call))
    }

    /// Tells the mean of something over the shard's samples: `statistic` follows its mean over all samples of the batch. A statistic that
    /// is told several times in one pass follows their mean.
    ///
    /// # Errors
    /// When no shard is under way: a network that is evaluated changes nothing.
    pub fn tell(&self, statistic: Statistic, means: Vec<f32>) -> Result<()> {
        let mut state = self.state();
        let Some(pass) = &mut *state else {
            bail!("expected statistics to be told only in training, found the network evaluated: call `forward_t` with `train` false");
        };
        pass.told.push((statistic, means));
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, Option<UnderWay>> {
        // A panic in a layer ends the worker anyway; what it left is replaced when the next pass begins.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const _: () = assert!((MAX_DRAWING_LAYERS as u64) * (MAX_CALLS as u64) <= (u32::MAX - LAYER_STREAMS) as u64 + 1);
