//! A stand-in for training: states and gradients are numbers that depend on everything they should depend on.

use std::collections::BTreeSet;
use std::rc::Rc;

use sardana_protocol::checkpoint::PieceHash;
use sardana_protocol::job::Order;
use sardana_protocol::lineage::{Lineage, WantedSum};
use sardana_protocol::messages::Trailer;
use sardana_protocol::snapshot::Share;
use sardana_protocol::state::{StateHash, share_hash};
use sardana_protocol::words::Step;

/// The state before the first update.
pub(crate) const ZERO: u64 = 0x5eed;

/// Shards with their gradients, in the order in which they were added.
pub(crate) type Gradients = Vec<(u32, u64)>;

/// A finished sum, as it is kept and handed on.
#[derive(Debug, Clone)]
pub(crate) struct Sum {
    pub(crate) step: Step,
    pub(crate) gradients: Rc<[(u32, u64)]>,
    pub(crate) trailer: Trailer,
    /// Of the state that it leads to, once it is applied.
    pub(crate) lineage: Lineage,
}

impl Sum {
    pub(crate) fn is(&self, wanted: WantedSum) -> bool {
        self.step == wanted.step && self.lineage.leads_on_from(wanted.before)
    }
}

/// Scrambles two numbers into one; not symmetric, so that order shows.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.rotate_left(17) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 31;
    x.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The gradient of one shard.
pub(crate) fn gradient(state: u64, step: Step, shard: u32) -> u64 {
    mix(mix(state, step.get()), u64::from(shard))
}

/// The state after the update by these gradients, in this order.
pub(crate) fn apply(state: u64, gradients: &[(u32, u64)]) -> u64 {
    gradients.iter().fold(state, |sum, &(_, gradient)| mix(sum, gradient))
}

pub(crate) fn hash_of(state: u64) -> StateHash {
    StateHash::of(&state.to_le_bytes())
}

/// So many pieces make a state.
pub(crate) const PIECES: u64 = 12;

/// Bytes of each.
pub(crate) const PIECE_BYTES: u64 = 8;

/// What a piece of a state is called. Every third is the same in all states, as layers are that are not trained.
pub(crate) fn piece(state: u64, number: u64) -> PieceHash {
    let of = if number.is_multiple_of(3) { 0 } else { state };
    PieceHash::of(&[of.to_le_bytes(), number.to_le_bytes()].concat())
}

/// The piece that describes the tensors.
pub(crate) fn description() -> Vec<PieceHash> {
    vec![PieceHash::of(b"description")]
}

/// The pieces of a share.
pub(crate) fn pieces_of_share(state: u64, share: Share) -> Vec<PieceHash> {
    let (start, end) = share.pieces(PIECES);
    (start..end).map(|number| piece(state, number)).collect()
}

pub(crate) fn hash_of_share(state: u64, share: Share) -> StateHash {
    let pieces = pieces_of_share(state, share);
    share_hash(PIECE_BYTES * pieces.len() as u64, &pieces)
}

/// What the job's states may be: in exact order those of an undisturbed run, as far as they were asked for; in fast order those that updates
/// have led to, each by a sum of gradients that were computed with the very state that it was applied to.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    shards: u32,
    order: Order,
    states: Vec<u64>,
    reached: BTreeSet<(Step, u64)>,
}

impl Reference {
    pub(crate) fn new(shards: u32, order: Order) -> Self {
        Self {
            shards,
            order,
            ..Self::default()
        }
    }

    /// Whether a state of the job at `step` is such.
    pub(crate) fn is_at(&mut self, step: Step, is_such: impl Fn(u64) -> bool) -> bool {
        match self.order {
            Order::Fast if step > Step::ZERO => {
                let mut states = self.reached.range((step, 0)..=(step, u64::MAX));
                states.any(|&(_, state)| is_such(state))
            }
            Order::Exact | Order::Fast => is_such(self.at(step)),
        }
    }

    /// Whether the sum of `gradients` leads from the job's state `before` to another one of the job.
    pub(crate) fn leads_on(&mut self, step: Step, before: u64, gradients: &[(u32, u64)], state: u64) -> bool {
        match self.order {
            Order::Exact => state == self.at(step.next()),
            Order::Fast => {
                let own = gradients.iter().all(|&(shard, one)| one == gradient(before, step, shard));
                self.reached.insert((step.next(), state));
                own
            }
        }
    }

    fn at(&mut self, step: Step) -> u64 {
        let wanted = usize::try_from(step.get()).unwrap_or(usize::MAX);
        while self.states.len() <= wanted {
            let next = match self.states.last() {
                Some(&state) => {
                    let step = Step::new(self.states.len() as u64 - 1);
                    (0..self.shards).fold(state, |sum, shard| mix(sum, gradient(state, step, shard)))
                }
                None => ZERO,
            };
            self.states.push(next);
        }
        self.states[wanted]
    }
}
