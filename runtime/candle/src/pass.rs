//! What the layers of a network share with it while it computes: the shard's random numbers, and what is to be averaged over the batch.
//! candle's layers are called with a tensor alone; this is how the rest reaches those that need more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Result, Tensor, bail};
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
    told: Vec<(Statistic, Means)>,
}

/// What a layer tells.
#[derive(Debug)]
enum Means {
    Found(Vec<f32>),
    /// On a GPU, once it has come that far.
    Computed(Tensor),
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

    /// Ends it, and gives what layers have told, in the order in which they have. It waits for what is told of by a GPU.
    ///
    /// # Errors
    /// When that cannot be had.
    pub(crate) fn end(&self) -> Result<Vec<(Statistic, Vec<f32>)>> {
        let told = self.state().take().map(|pass| pass.told).unwrap_or_default();
        let found = |(statistic, means)| match means {
            Means::Found(means) => Ok((statistic, means)),
            Means::Computed(means) => Ok((statistic, means.to_dtype(DType::F32)?.to_vec1()?)),
        };
        told.into_iter().map(found).collect()
    }

    /// Random numbers for the layer number `layer` (of [`Builder::drawing_layer`](crate::Builder::drawing_layer)): others for each step,
    /// shard and call, the same wherever they are computed.
    ///
    /// # Errors
    /// When no shard is under way: the network is evaluated, and nothing is to be drawn; or the layer is called too often.
    pub fn random(&self, layer: u32) -> Result<CounterRng> {
        let mut state = self.state();
        let Some(pass) = &mut *state else {
            bail!(
                "expected a layer to draw random numbers only in training, found it evaluated: call `forward_t` with `train` false"
            );
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
        self.hear(statistic, Means::Found(means))
    }

    /// As [`Self::tell`], of a tensor of one dimension through which no gradient flows, wherever it lies: nothing waits for it before the pass has ended.
    ///
    /// # Errors
    /// As [`Self::tell`].
    pub fn tell_computed(&self, statistic: Statistic, means: &Tensor) -> Result<()> {
        self.hear(statistic, Means::Computed(means.detach()))
    }

    fn hear(&self, statistic: Statistic, means: Means) -> Result<()> {
        let mut state = self.state();
        let Some(pass) = &mut *state else {
            bail!(
                "expected statistics to be told only in training, found the network evaluated: call `forward_t` with `train` false"
            );
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

#[cfg(test)]
pub(crate) mod tests {
    use sardana::data::Sampler;
    use sardana::{Job, Step};

    use super::*;
    use crate::Builder;

    /// A shard of the job with this seed, which has 2 shards of 4 samples each.
    pub(crate) fn shard(seed: u64, step: u64, index: u32) -> Shard {
        let job = Job::builder("test")
            .seed(seed)
            .shards(2)
            .steps(10)
            .data(64, 8)
            .build()
            .unwrap();
        Sampler::new(job.spec()).unwrap().shard(Step::new(step), index)
    }

    fn drawn(pass: &Pass, layer: u32) -> u64 {
        pass.random(layer).unwrap().next_u64()
    }

    #[test]
    fn each_layer_and_call_has_random_numbers_of_its_own_in_whatever_order_they_draw() {
        let pass = Pass::default();
        pass.begin(&shard(1, 0, 0));
        let first = [drawn(&pass, 0), drawn(&pass, 0), drawn(&pass, 7), drawn(&pass, 7)];
        pass.begin(&shard(1, 0, 0));
        let [third, one, fourth, two] = [7, 0, 7, 0].map(|layer| drawn(&pass, layer));
        assert_eq!([one, two, third, fourth], first);
        let mut distinct = first.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), first.len());
    }

    #[test]
    fn random_numbers_of_layers_are_not_those_of_the_users_streams() {
        let pass = Pass::default();
        let shard = shard(1, 0, 0);
        pass.begin(&shard);
        assert_eq!(drawn(&pass, 0), shard.random(LAYER_STREAMS).next_u64());
        // The last call of the last layer still has a stream.
        let last = LAYER_STREAMS + (MAX_DRAWING_LAYERS - 1) * MAX_CALLS + (MAX_CALLS - 1);
        assert_eq!(last, u32::MAX);
    }

    #[test]
    fn a_layer_that_is_called_too_often_is_refused() {
        let pass = Pass::default();
        pass.begin(&shard(1, 0, 0));
        for _ in 0..MAX_CALLS {
            pass.random(1).unwrap();
        }
        let refusal = pass.random(1).unwrap_err().to_string();
        assert!(refusal.contains("at most 32768 calls"), "{refusal}");
        pass.random(0).unwrap();
    }

    #[test]
    fn what_is_told_comes_back_in_order_once() {
        let builder = Builder::new(1);
        let running = builder.running(2, 0.1).unwrap();
        let pass = builder.pass();
        // What a pass that was left has told is not of the next one.
        pass.begin(&shard(1, 0, 0));
        pass.tell(running.means, vec![9.0, 9.0]).unwrap();
        pass.begin(&shard(1, 0, 1));
        pass.tell(running.squares, vec![1.0, 2.0]).unwrap();
        builder.pass().tell(running.means, vec![3.0, 4.0]).unwrap();
        pass.tell(running.squares, vec![5.0, 6.0]).unwrap();
        let expected = [
            (running.squares, vec![1.0, 2.0]),
            (running.means, vec![3.0, 4.0]),
            (running.squares, vec![5.0, 6.0]),
        ];
        assert_eq!(pass.end().unwrap(), expected);
        assert_eq!(pass.end().unwrap(), []);
    }

    #[test]
    fn nothing_is_drawn_or_told_while_no_shard_is_under_way() {
        let builder = Builder::new(1);
        let running = builder.running(1, 0.1).unwrap();
        let pass = builder.pass();
        for begun_before in [false, true] {
            if begun_before {
                pass.begin(&shard(1, 0, 0));
                pass.end().unwrap();
            }
            let refusal = pass.random(0).unwrap_err().to_string();
            assert!(
                refusal.contains("found it evaluated: call `forward_t` with `train` false"),
                "{refusal}"
            );
            let refusal = pass.tell(running.means, vec![0.0]).unwrap_err().to_string();
            assert!(refusal.contains("found the network evaluated"), "{refusal}");
        }
    }
}
